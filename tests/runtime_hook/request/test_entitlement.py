"""Who is entitled, in tables: from the container's own configuration, then held against the inventory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime_hook.base.errors import RequestError
from runtime_hook.host.inventory import parse_inventory
from runtime_hook.inputs.bundle import ContainerConfig, parse_container
from runtime_hook.inputs.config import HookConfig
from runtime_hook.request.claim import Claim, Nothing
from runtime_hook.request.entitlement import find_claim
from runtime_hook.request.grant import Grant, resolve_claim

SAMPLE = Path(__file__).resolve().parents[3] / "docs/contracts/inventory/good/debian-one-gpu.json"
INVENTORY = parse_inventory(json.loads(SAMPLE.read_text(encoding="utf-8")), "sample")
UUID = INVENTORY.gpus[0].uuid
GPU = {"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}
RENAMED = {"path": "/dev/fast", "type": "c", "major": 195, "minor": 0}
IMPOSTOR = {"path": "/dev/nvidia0", "type": "c", "major": 1, "minor": 3}
BLOCK = {"path": "/dev/nvidia0", "type": "b", "major": 195, "minor": 0}
CONTROL = {"path": "/dev/nvidiactl", "type": "c", "major": 195, "minor": 255}
# As containerd writes them for a privileged container, whatever capabilities it keeps; and for all others.
EVERY_DEVICE, NO_DEVICE = {"allow": True, "access": "rwm"}, {"allow": False, "access": "rwm"}
KUBELET, ENV = HookConfig(), HookConfig(entitlement="env")
STRICT_ENV = HookConfig(entitlement="env", accept_envvar_unprivileged=False)


def decide(config: HookConfig, *, privileged: bool = False, **parts: Any) -> Grant | Nothing:
    content = {
        "process": {
            "env": parts.get("env", []),
            "capabilities": {"bounding": ["CAP_SYS_ADMIN"] if privileged else ["CAP_CHOWN"]},
        },
        "annotations": parts.get("annotations"),
        "linux": {"devices": parts.get("devices"), "resources": {"devices": parts.get("rules")}},
    }
    container = parse_container(content, "/bundle")
    claim = find_claim(container, config)
    return resolve_claim(claim, container, config, INVENTORY) if isinstance(claim, Claim) else claim


ALLOCATION = {"grapnel.dev/allocation": UUID}
ALL = ["NVIDIA_VISIBLE_DEVICES=all"]
# CRI-O: the container's own annotations as JSON, and all of them, the pod's too, beside it.
CRIO = "io.kubernetes.cri-o.Annotations"
CRIO_ALLOCATION = {CRIO: json.dumps(ALLOCATION)}


@pytest.mark.parametrize(
    ("config", "parts", "source"),
    [
        pytest.param(KUBELET, {"devices": [GPU, CONTROL]}, "devices", id="a GPU's node"),
        pytest.param(
            KUBELET, {"devices": [GPU], "rules": [EVERY_DEVICE, NO_DEVICE]}, "devices", id="all allowed, then none"
        ),
        pytest.param(KUBELET, {"devices": [RENAMED]}, "devices", id="a GPU's numbers under another path"),
        pytest.param(KUBELET, {"annotations": ALLOCATION}, "annotation", id="an allocation"),
        pytest.param(KUBELET, {"annotations": ALLOCATION, "privileged": True}, "annotation", id="a privileged one's"),
        pytest.param(
            KUBELET,
            {"annotations": CRIO_ALLOCATION, "privileged": True},
            "annotation",
            id="a privileged one's of CRI-O",
        ),
        pytest.param(KUBELET, {"devices": [GPU], "annotations": ALLOCATION}, "devices", id="devices before annotation"),
        pytest.param(ENV, {"env": ALL}, "environment", id="the environment where it counts"),
        pytest.param(ENV, {"env": ["NVIDIA_VISIBLE_DEVICES=none"]}, "environment", id="none"),
        pytest.param(ENV, {"env": ["CUDA_VERSION=9.0"]}, "environment", id="a legacy image"),
        pytest.param(STRICT_ENV, {"env": ALL, "privileged": True}, "environment", id="a privileged one's environment"),
    ],
)
def test_entitled(config: HookConfig, parts: dict[str, Any], source: str) -> None:
    found = decide(config, **parts)
    assert isinstance(found, Grant)
    assert found.source == source
    assert found.adds_devices == (config.entitlement == "env" and bool(found.gpus))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "parts", "traced"),
    [
        pytest.param(KUBELET, {}, False, id="nothing at all"),
        pytest.param(KUBELET, {"env": ALL}, True, id="an image that says all"),
        pytest.param(KUBELET, {"env": ALL, "privileged": True}, True, id="a privileged image that says all"),
        pytest.param(KUBELET, {"env": ["NVIDIA_VISIBLE_DEVICES=void"]}, False, id="void"),
        pytest.param(KUBELET, {"annotations": ALLOCATION | {CRIO: "{}"}}, True, id="a pod's annotation under CRI-O"),
        pytest.param(
            KUBELET, {"annotations": ALLOCATION | {CRIO: "{}"}, "privileged": True}, True, id="a privileged one's pod's"
        ),
        pytest.param(
            KUBELET,
            {"annotations": ALLOCATION | {"io.kubernetes.cri-o.TTY": "false"}},
            True,
            id="CRI-O without its own",
        ),
        pytest.param(KUBELET, {"annotations": ALLOCATION | {CRIO: "{"}}, True, id="CRI-O's own, broken"),
        pytest.param(KUBELET, {"annotations": ALLOCATION | {CRIO: "[1]"}}, True, id="CRI-O's own, a list"),
        pytest.param(
            KUBELET,
            {"annotations": ALLOCATION | {CRIO: '{"grapnel.dev/allocation": ["GPU-1"]}'}},
            True,
            id="CRI-O's own, not a text",
        ),
        pytest.param(KUBELET, {"annotations": ALLOCATION | {CRIO: "\ud800"}}, True, id="CRI-O's own, not Unicode"),
        pytest.param(KUBELET, {"devices": [GPU], "privileged": True}, True, id="a privileged container's nodes"),
        pytest.param(KUBELET, {"devices": [GPU], "rules": [EVERY_DEVICE]}, True, id="a list where all is allowed"),
        pytest.param(KUBELET, {"devices": [IMPOSTOR]}, True, id="another device under a GPU's path"),
        pytest.param(KUBELET, {"devices": [BLOCK]}, True, id="a block device"),
        pytest.param(KUBELET, {"devices": [CONTROL]}, True, id="a control node alone"),
        pytest.param(ENV, {"devices": [GPU]}, False, id="devices where the environment decides"),
        pytest.param(ENV, {"env": ["NVIDIA_VISIBLE_DEVICES=0,void"]}, False, id="void in a list"),
        pytest.param(ENV, {"env": ["NVIDIA_VISIBLE_DEVICES="]}, False, id="set but empty"),
        pytest.param(ENV, {"env": ["CUDA_VERSION=9", "NVIDIA_VISIBLE_DEVICES="]}, False, id="a legacy image, empty"),
        pytest.param(STRICT_ENV, {"env": ALL}, True, id="an unprivileged environment that is not accepted"),
    ],
)
def test_not_entitled(config: HookConfig, parts: dict[str, Any], traced: bool) -> None:  # noqa: FBT001 - a table's column
    found = decide(config, **parts)
    assert isinstance(found, Nothing)
    assert found.is_traced == traced


def test_an_allocation_of_an_unknown_gpu_is_refused() -> None:
    with pytest.raises(RequestError, match="unknown GPU GPU-gone"):
        decide(KUBELET, annotations={"grapnel.dev/allocation": "GPU-gone"})


def test_devices_decide_over_an_annotation_and_it_is_noted() -> None:
    found = decide(KUBELET, devices=[GPU], annotations={"grapnel.dev/allocation": "GPU-gone"})
    assert isinstance(found, Grant)
    assert "which decide" in found.note


MEMORY = {"grapnel.dev/memory": f"{UUID}=1073741824"}
GIVEN_MEMORY = MEMORY["grapnel.dev/memory"]
FORGED = {"grapnel.dev/memory": f"{UUID}=85899345920"}


def memory_of(found: Grant | Nothing) -> str:
    assert isinstance(found, Grant)
    return found.memory


@pytest.mark.parametrize(
    ("parts", "memory"),
    [
        pytest.param({"annotations": ALLOCATION | MEMORY}, GIVEN_MEMORY, id="the platform's annotation"),
        pytest.param({"devices": [GPU], "annotations": MEMORY}, GIVEN_MEMORY, id="beside the platform's nodes"),
        pytest.param({"annotations": ALLOCATION | MEMORY, "privileged": True}, GIVEN_MEMORY, id="a privileged one's"),
        pytest.param(
            {"annotations": FORGED | {CRIO: json.dumps(ALLOCATION | MEMORY)}},
            GIVEN_MEMORY,
            id="CRI-O's own, not the pod's",
        ),
        pytest.param(
            {"devices": [GPU], "annotations": FORGED | {CRIO: json.dumps(ALLOCATION)}},
            "",
            id="the pod's alone under CRI-O",
        ),
        pytest.param({"devices": [GPU], "annotations": FORGED | {CRIO: "{"}}, "", id="CRI-O's, damaged"),
        pytest.param({"devices": [GPU], "env": [f"GRAPNEL_MEMORY={GIVEN_MEMORY}"]}, "", id="a whole GPU"),
        pytest.param(
            {"devices": [GPU], "env": ["NVIDIA_GPU_MEMORY_LIMIT=1", "NVIDIA_GPU_MEMORY_REQUEST=1"]},
            "",
            id="the variables of NVIDIA's toolkit",
        ),
    ],
)
def test_memory_is_what_the_platform_says(parts: dict[str, Any], memory: str) -> None:
    assert memory_of(decide(KUBELET, **parts)) == memory


def test_where_the_environment_counts_no_annotation_says_anything_of_memory() -> None:
    assert memory_of(decide(ENV, env=ALL, annotations=FORGED)) == ""


def test_the_memory_of_a_restored_container_is_its_checkpoint_images_word() -> None:
    content = {"annotations": ALLOCATION | FORGED, "linux": {"devices": [GPU]}}
    container = parse_container(content, "/bundle")
    restored = ContainerConfig(**{**vars(container), "is_restored": True})
    claim = find_claim(restored, KUBELET)
    assert isinstance(claim, Claim)
    assert claim.memory == ""
