"""A draft planned against the facts that it is from changes nothing, or what it names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from provision.declaration.fleet.facts.driver import ForeignDriver
from provision.declaration.fleet.facts.mig import MigGpu, MigState
from provision.declaration.fleet.facts.node import Engine, InstalledPackage, NodeFacts, parse_facts
from provision.planning.draft.model import values_of
from provision.planning.draft.node import draft_node
from provision.planning.planner.plan import plan_node
from tests.provision.planner.test_adoption import DAEMON, NODES, handlers
from tests.provision.samples import (
    GPU,
    PAYLOAD,
    RUNNING,
    configured,
    edit_file,
    make_facts,
    make_module,
    make_stack,
    replace,
    simulate_apply,
)

if TYPE_CHECKING:
    from provision.declaration.spec.model import StackSpec
    from provision.planning.draft.model import NodeDraft
    from provision.planning.node_plan import NodePlan

SAMPLES = Path(__file__).parents[3] / "docs/contracts/node-facts/good"
NO_KUBELET: dict[str, dict[str, object]] = {"plugin": {"enabled": False}}


def plan(facts: NodeFacts, stack: StackSpec) -> NodePlan:
    return plan_node(facts, stack, PAYLOAD)


def draft(facts: NodeFacts) -> NodeDraft:
    return draft_node(facts, plan)


def said(facts: NodeFacts) -> dict[str, Any]:
    return {".".join(path): value for path, value in values_of(draft(facts).said).items()}


MANAGED: dict[str, dict[str, Any]] = {
    "defaults": {},
    "not held": {"driver": {"hold": False}},
    "parameters of the module": {"driver": {"kernelModule": "auto", "moduleParameters": {"NVreg_EnableMSI": 1}}},
    "graphics": {"driver": {"capabilities": ["compute", "utility", "graphics"]}},
    "another handler": {"runtime": {"handler": "gpu"}},
    "images ask": {"runtime": {"entitlement": "env"}},
    "other names and places": {"plugin": {"resource": "example.com/gpu", "kubeletRoot": "/data/kubelet"}},
    "GPUs that are shared": {
        "plugin": {
            "sharedDevicesAllocationPolicy": "packed",
            "sharing": {
                "timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4, "rename": "gpu.shared"}]}
            },
        }
    },
    "names by product": {"plugin": {"resources": {"gpus": [{"pattern": "*A100*", "name": "gpu-a100"}]}}},
    "units of memory": {"plugin": {"memoryUnits": [{"resource": "example.com/mem", "unitMiB": 256}]}},
    "a class of devices": {"plugin": {"deviceClasses": [{"name": "fuse", "content": "{}"}]}},
    "claims": {"plugin": {"interface": "dra", "dynamicMig": True, "kubernetesApi": "/etc/kubernetes/kubelet.conf"}},
    "channels for domains": {
        "plugin": {"interface": "dra", "computeDomains": True, "kubernetesApi": "/etc/kubernetes/kubelet.conf"}
    },
    "what is done on the Node": {"plugin": {"labels": "node", "memoryOveruse": "evict"}},
    "tenants": {"tenancy": {"namespaces": ["a", "b"]}},
    "no driver": {"driver": {"enabled": False}},
    "no daemon": {"plugin": {"enabled": False}},
}


@pytest.mark.parametrize("sections", list(MANAGED.values()), ids=list(MANAGED))
def test_a_node_of_grapnel_s_is_declared_as_it_is(sections: dict[str, Any]) -> None:
    facts = configured(make_stack(**{name: dict(section) for name, section in sections.items()}))

    found = draft(facts)

    assert found.plan.is_empty
    assert not found.unsaid


def of_debian(**changes: object) -> NodeFacts:
    """Return a node whose driver somebody else installed from Debian's packages."""
    facts = configured(make_stack(driver={"kernelModule": "auto"}))
    packages = {name: replace(each, hold=False) for name, each in facts.packages.items()}
    bare = make_facts(packages=packages, gpus=(GPU,), module=make_module("550.163.01", "550.163.01"))
    return replace(bare, **changes)


FOREIGN: dict[str, tuple[NodeFacts, dict[str, Any]]] = {
    "a driver of packages": (
        of_debian(), {"driver.enabled": False, "driver.version": "550.163.01", "driver.hold": False}
    ),
    "a .run driver": (
        make_facts(foreign_driver=ForeignDriver(kind="runfile", version="570.86.15")),
        {"driver.enabled": False, "driver.version": "570.86.15"},
    ),
    "a driver in a pod": (
        make_facts(
            module=make_module("570.86.15", None), product_files=("/run/nvidia/driver/usr/bin/nvidia-smi",), gpus=(GPU,)
        ),
        {"driver.enabled": False, "driver.version": "570.86.15"},
    ),
    "no driver": (make_facts(), {"driver.enabled": False}),
    "no engine": (make_facts(), {"runtime.enabled": False}),
    "Docker with NVIDIA's runtime": (
        NODES["Docker"],
        {"runtime.enabled": False, "runtime.engine": "docker", "runtime.adopt": True, "runtime.entitlement": "env"},
    ),
    "containerd with NVIDIA's drop-in": (
        NODES["containerd 1.7, in the main file"], {"runtime.enabled": False, "runtime.adopt": True}
    ),
    "containerd with NVIDIA's drop-in at the place of ours": (
        NODES["containerd 2, in a drop-in that makes it the default"],
        {"runtime.enabled": False, "runtime.adopt": True},
    ),
    "CRI-O with NVIDIA's drop-in": (
        NODES["CRI-O, by nvidia-ctk"], {"runtime.enabled": False, "runtime.engine": "crio", "runtime.adopt": True}
    ),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "expected"), list(FOREIGN.values()), ids=list(FOREIGN))
def test_a_node_of_somebody_else_s_is_declared_and_not_touched(facts: NodeFacts, expected: dict[str, Any]) -> None:
    found = draft(facts)

    assert found.plan.is_empty
    assert expected.items() <= said(facts).items()


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("a .run driver", ["driver-runfile"]),
        ("a driver in a pod", ["driver-container", "mig-unknown"]),
        ("Docker with NVIDIA's runtime", ["default-runtime"]),
        ("no driver", []),
    ],
)
def test_what_no_key_says_is_named(name: str, codes: list[str]) -> None:
    assert [each.code for each in draft(FOREIGN[name][0]).unsaid] == codes


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.json")), ids=lambda path: path.stem)
def test_what_is_still_to_do_is_what_is_named(path: Path) -> None:
    facts = parse_facts(path.read_bytes())
    found = draft(facts)

    assert plan(facts, found.stack) == found.plan
    assert not found.plan.problems


def test_an_offer_is_what_the_plan_would_be() -> None:
    facts = NODES["Docker"]
    (offer,) = (each for each in draft(facts).offers if each.key == "runtime.enabled")
    values = {"engine": "docker", "adopt": True, "entitlement": "env"}

    planned = plan(facts, make_stack(driver={"enabled": False}, plugin={"enabled": False}, runtime=values))
    assert offer.items == planned.items


def test_mig_is_a_layout_of_its_own() -> None:
    gpus = tuple(
        MigGpu(
            index=index,
            uuid=f"GPU-{index}",
            device_id="20b010de",
            enabled=index < 2,
            devices={"1g.5gb": 7} if index < 2 else {},
        )
        for index in range(3)
    )
    facts = replace(configured(make_stack(driver={"kernelModule": "auto"})), mig=MigState(gpus=gpus), gpus=tuple(
        replace(GPU, address=f"0000:1{index}:00.0") for index in range(3)
    ))  # fmt: skip

    assert said(facts)["mig.config"]["mig-configs"]["as-found"] == [
        {"devices": [0, 1], "mig-enabled": True, "mig-devices": {"1g.5gb": 7}},
        {"devices": [2], "mig-enabled": False},
    ]
    assert [item.target for item in draft(facts).plan.items if item.action.value == "divide"] == []


def test_a_layout_that_grapnel_wrote_is_read_back() -> None:
    entry = {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 7}, "device-filter": ["0x20B010DE"]}
    config = {"version": "v1", "mig-configs": {"sevenths": [entry]}}
    facts = make_facts(gpus=(GPU,))
    stack = make_stack(mig={"layout": "sevenths", "config": config})
    for _ in range(4):
        facts = simulate_apply(facts, plan(facts, stack))
    gpu = MigGpu(index=0, uuid="GPU-0", device_id="20b010de", enabled=True, devices={"1g.5gb": 7})
    facts = replace(facts, mig=MigState(gpus=(gpu,)))
    assert plan(facts, stack).is_empty

    assert said(facts)["mig.config"]["mig-configs"]["as-found"] == [entry]
    assert draft(facts).plan.is_empty


def test_two_engines_and_a_kubelet_mean_the_kubelet_s() -> None:
    engines = {
        name: Engine(binary=f"/usr/bin/{name}", version=version)
        for name, version in (("docker", "26.1.5"), ("containerd", "1.7.24"))
    }
    services = {"kubelet.service": RUNNING, "docker.service": RUNNING, "containerd.service": RUNNING}
    facts = edit_file(make_facts(engines=engines, services=services), "/etc/docker/daemon.json", DAEMON)

    assert "runtime.engine" not in said(facts)
    assert "other-engines" in [each.code for each in draft(facts).unsaid]


@pytest.mark.parametrize(
    ("names", "handler", "adopt"),
    [
        (("nvidia", "nvidia-cdi"), None, True),
        (("nvidia-cdi", "nvidia-legacy"), "nvidia-cdi", True),
        (("wasm",), None, None),
        ((), None, None),
    ],
)
def test_a_handler_of_theirs_keeps_its_name(names: tuple[str, ...], handler: str | None, *, adopt: bool | None) -> None:
    text = handlers("io.containerd.grpc.v1.cri", 2, *names)
    facts = edit_file(NODES["containerd 1.7, in the main file"], "/etc/containerd/config.toml", text)

    found = said(facts)
    assert (found.get("runtime.handler"), found.get("runtime.adopt")) == (handler, adopt)


def test_what_root_of_a_node_wrote_into_our_files_breaks_nothing() -> None:
    facts = configured(make_stack())
    for path, text in {
        "/etc/grapnel/node.json": '{"resource": 7, "memoryUnits": {}, "kubeletRoot": "../x"}',
        "/etc/grapnel/hook.json": '{"rules": [3]}',
        "/etc/modprobe.d/grapnel-nvidia.conf": "options nvidia x=\n",
    }.items():
        facts = edit_file(facts, path, text)

    assert draft(facts).stack.plugin.resource == "nvidia.com/gpu"


def test_the_most_common_version_of_packages_counts_where_no_module_is_there() -> None:
    source = "nvidia-graphics-drivers"
    packages = {f"libnvidia-{n}": InstalledPackage(version="550.163.01-2", source=source) for n in range(2)}
    packages["libnvidia-old"] = InstalledPackage(version="535.247.01-1", source=source)

    assert said(make_facts(packages=packages))["driver.version"] == "550.163.01"
