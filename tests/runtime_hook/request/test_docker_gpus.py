"""``docker run --gpus``: what counts of a container to which dockerd has added NVIDIA's hook."""

from __future__ import annotations

from typing import Any

import pytest

from runtime_hook.base.errors import RequestError
from runtime_hook.inputs.config import ENTITLEMENT_CDI, ENTITLEMENT_GPUS, HookConfig
from runtime_hook.request.claim import Claim, Nothing
from runtime_hook.request.entitlement import find_claim
from runtime_hook.request.grant import Grant, resolve_claim
from tests.runtime_hook.nodes import container, inventory

PROGRAM = "nvidia-container-runtime-hook"
ADDED = {"path": f"/usr/local/sbin/{PROGRAM}", "args": [PROGRAM, "prestart"], "env": ["PATH=/usr/sbin:/usr/bin"]}
BY_GPUS = {"prestart": [ADDED]}
OF_CDI = {"path": "/usr/lib/grapnel/hook/grapnel-hook", "args": ["grapnel-hook", "prestart", "--entitlement", "cdi"]}
GPUS = HookConfig(entitlement=ENTITLEMENT_GPUS, swarm_resources=("DOCKER_RESOURCE_GPU",), accept_volume_mounts=True)
KUBELET, ENV = HookConfig(), HookConfig(entitlement="env")


def decide(config: HookConfig, *env: str, **parts: Any) -> Grant | Nothing:
    made = container(*env, **{"hooks": BY_GPUS, **parts})
    claim = find_claim(made, config)
    return resolve_claim(claim, made, config, inventory()) if isinstance(claim, Claim) else claim


def granted(*env: str, **parts: Any) -> Grant:
    found = decide(GPUS, *env, **parts)
    assert isinstance(found, Grant), found
    return found


@pytest.mark.parametrize(
    ("written", "gpus"),
    [
        pytest.param("all", [0, 1, 2], id="--gpus all"),
        pytest.param("0,1", [0, 1], id="--gpus 2"),
        pytest.param("1", [1], id="--gpus device=1"),
    ],
)
def test_the_gpus_that_docker_was_asked_for(written: str, gpus: list[int]) -> None:
    found = granted(f"NVIDIA_VISIBLE_DEVICES={written}")
    assert [gpu.index for gpu in found.gpus] == gpus
    assert (found.source, found.adds_devices, found.extras) == ("docker-gpus", True, ())


@pytest.mark.parametrize(
    ("env", "parts"),
    [
        pytest.param(["NVIDIA_VISIBLE_DEVICES=all"], {}, id="the same variable"),
        pytest.param(["DOCKER_RESOURCE_GPU=all"], {}, id="a swarm resource"),
        pytest.param([], {"requests": ["0", "1"]}, id="volumes"),
        pytest.param(["CUDA_VERSION=9.0"], {}, id="a legacy image"),
    ],
)
def test_an_image_gets_no_more_than_docker_was_asked_for(env: list[str], parts: dict[str, Any]) -> None:
    assert [gpu.index for gpu in granted(*env, "NVIDIA_VISIBLE_DEVICES=1", **parts).gpus] == [1]


@pytest.mark.parametrize(
    "env",
    [
        "NVIDIA_MIG_CONFIG_DEVICES=all",
        "NVIDIA_GDS=enabled",
        "NVIDIA_IMEX_CHANNELS=0",
    ],
)
def test_a_privileged_image_gets_nothing_besides_gpus(env: str) -> None:
    found = granted(env, "NVIDIA_VISIBLE_DEVICES=1", privileged=True)
    assert (found.extras, found.imex_channels) == ((), ())


def test_capabilities_are_dockers_word_else_the_images() -> None:
    image, asked = "NVIDIA_DRIVER_CAPABILITIES=compute,utility", "NVIDIA_VISIBLE_DEVICES=0"
    assert granted(image, asked).capabilities == ("compute", "utility")
    assert granted(image, asked, "NVIDIA_DRIVER_CAPABILITIES=utility").capabilities == ("utility",)


@pytest.mark.parametrize("env", [[], ["NVIDIA_VISIBLE_DEVICES=void"], ["CUDA_VERSION=9.0"]], ids=str)
def test_docker_was_asked_for_none(env: list[str]) -> None:
    assert decide(GPUS, *env) == Nothing("Docker's --gpus asks for none", is_traced=False)


@pytest.mark.parametrize(
    "hooks",
    [
        pytest.param({}, id="no hook at all"),
        pytest.param({"prestart": [{**ADDED, "args": [ADDED["path"], "prestart"], "env": []}]}, id="NVIDIA's runtime"),
    ],
)
def test_who_does_not_come_from_docker_is_entitled_to_nothing(hooks: dict[str, Any]) -> None:
    """NVIDIA's runtime finds the program by its name as well, and starts it for what any image asks."""
    found = decide(GPUS, "NVIDIA_VISIBLE_DEVICES=all", hooks=hooks)
    assert found == Nothing("the container was not started with Docker's --gpus", is_traced=True)


@pytest.mark.parametrize("config", [KUBELET, ENV], ids=["kubelet", "env"])
def test_the_runtimes_own_hook_leaves_it_to_that_of_gpus(config: HookConfig) -> None:
    found = decide(config, "NVIDIA_VISIBLE_DEVICES=all", nodes=["/dev/nvidia0"])
    assert found == Nothing("the hook of Docker's --gpus does the work", is_traced=False)


def test_where_a_device_was_named_as_well_the_cdi_files_hook_does_the_work_alone() -> None:
    both = {**BY_GPUS, "createRuntime": [OF_CDI]}
    assert isinstance(decide(GPUS, "NVIDIA_VISIBLE_DEVICES=all", hooks=both), Nothing)
    by_name = decide(HookConfig(entitlement=ENTITLEMENT_CDI), hooks=both, nodes=["/dev/nvidia1", "/dev/nvidiactl"])
    assert isinstance(by_name, Grant)
    assert [gpu.index for gpu in by_name.gpus] == [1]


def test_what_the_nodes_rules_deny_is_refused_and_not_left_out() -> None:
    denied = HookConfig(entitlement=ENTITLEMENT_GPUS, denial="rules[0] denies GPUs for user 7")
    with pytest.raises(RequestError, match=r"rules\[0\] denies GPUs for user 7"):
        decide(denied, "NVIDIA_VISIBLE_DEVICES=0")
