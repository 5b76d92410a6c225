"""A plan with problems shows what else would be done: it was one or the other, and a problem hid all the changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.declaration.fleet.facts.kernel import KernelState
from provision.declaration.fleet.facts.kubelet import KubeletState
from provision.declaration.fleet.facts.mig import MigGpu, MigState
from provision.declaration.fleet.facts.node import AvailablePackage, Gpu, InstalledPackage, KernelModule
from provision.planning.driver.packages.catalogue import find_distribution
from provision.planning.node_plan import Problem, Roles
from provision.planning.planner.drivers.choice import request_packages
from provision.planning.planner.drivers.kernel_module import TARGET
from provision.planning.planner.node_daemon import UNIT_PATH
from provision.planning.render.kubelet_record import KUBELET_RECORD_PATH
from provision.planning.render.mig_layout import MIG_LAYOUT_PATH
from provision.planning.render.node_config import NODE_CONFIG_PATH
from provision.planning.render.tuning import GRUB_PATH, SYSCTL_PATH, TUNING_RECORD_PATH
from tests.provision.samples import (
    configured,
    edit_file,
    edit_file_state,
    edit_package_manager,
    edit_service,
    make_facts,
    make_module,
    make_stack,
    plan,
    replace,
    steps,
)

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec

    Case = tuple[NodeFacts, StackSpec, list[str], list[tuple[str, str]]]

KUBELET, FOLDER = "/var/lib/kubelet/config.yaml", "/etc/kubernetes/kubelet.conf.d"
KEYLESS: dict[str, object] = {"source": "nvidia", "repository": None}
DROP_IN = [("write", KUBELET_RECORD_PATH), ("write", f"{FOLDER}/99-grapnel.conf"), ("restart", "kubelet.service")]
OLD, NEW = "535.309.01", "550.163.01"


def with_driver(*, module: KernelModule) -> NodeFacts:
    """Return a node with a driver that is older than the declared one."""
    return replace(configured(make_stack(driver={"version": OLD})), module=module)


def knows_packages(stack: StackSpec) -> NodeFacts:
    """Return a bare node on which somebody has set up the repository that has what is declared."""
    facts = make_facts()
    distribution = find_distribution(facts.node)
    assert not isinstance(distribution, Problem)
    wanted = request_packages(facts, stack.driver, distribution)
    assert not isinstance(wanted, Problem)
    found = (AvailablePackage(version=f"{NEW}-1", source="nvidia-graphics-drivers"),)
    return replace(facts, available={**facts.available, **dict.fromkeys(wanted.request.roots, found)})


def kubelet(**changes: object) -> NodeFacts:
    state = KubeletState(
        unit="kubelet.service",
        active="active",
        program="/usr/bin/kubelet",
        config=KUBELET,
        config_dir=FOLDER,
        root_dir="/var/lib/kubelet",
    )
    facts = replace(configured(), kubelet=replace(state, **changes))
    return edit_file(edit_service(facts, "kubelet.service", load="loaded", active="active"), KUBELET, "maxPods: 110\n")


def kernel(**changes: object) -> NodeFacts:
    state = KernelState(numa_balancing=1, hugepages={"2Mi": 0, "1Gi": 0}, boot_loader="grub")
    return replace(configured(), kernel=replace(state, **changes))


def cut(*told: MigGpu) -> NodeFacts:
    """Return a node with an A100 of 40 GB for each GPU that tells how it is divided by MIG; two, if none does."""
    found = tuple(
        Gpu(address=f"0000:{n}0:00.0", vendor="10de", device="20b0", class_="030200")
        for n in range(1, 1 + (len(told) or 2))
    )
    module = KernelModule(loaded=True, version=NEW, on_disk=NEW)
    facts = configured(make_stack(plugin={"migStrategy": "mixed"}))
    return replace(facts, gpus=found, module=module, mig=MigState(gpus=told) if told else MigState(error="it hangs"))


def layout(*entries: dict[str, object]) -> StackSpec:
    config = {"version": "v1", "mig-configs": {"mine": list(entries)}}
    return make_stack(plugin={"migStrategy": "mixed"}, mig={"layout": "mine", "config": config})


def of_kubelet(**settings: object) -> StackSpec:
    return make_stack(node={"kubelet": settings})


def of_kernel(**settings: object) -> StackSpec:
    return make_stack(node={"kernel": settings})


FOREIGN = {"nvidia-tesla-535-alternative": InstalledPackage(version="1", source="nvidia-graphics-drivers-tesla-535")}
WHOLE = {"devices": [1], "mig-enabled": True, "mig-devices": {"1g.5gb": 7}}
CROWDED = {"devices": [0], "mig-enabled": True, "mig-devices": {"1g.5gb": 8}}

CASES: dict[str, Case] = {
    "driver: packages of another driver": (
        replace(make_facts(), packages=FOREIGN),
        make_stack(),
        ["driver-foreign-packages"],
        [("stage", f"driver {NEW}"), ("install", "nvidia-alternative")],
    ),
    "driver: no key of its repository": (
        edit_package_manager(make_facts(), interrupted=True),
        make_stack(driver=KEYLESS),
        ["repository-key-missing"],
        [("deploy", "driver"), ("repair", "dpkg")],
    ),
    "driver: no key of its repository, and a node that knows the packages": (
        knows_packages(make_stack(driver=KEYLESS)),
        make_stack(driver=KEYLESS),
        ["repository-key-missing"],
        [("stage", f"driver {NEW}"), ("install", "nvidia-driver-cuda")],
    ),
    "driver: a version that does not exist": (
        edit_package_manager(make_facts(), interrupted=True),
        make_stack(driver={"version": "551.61"}),
        ["version-not-available"],
        [("deploy", "driver"), ("repair", "dpkg")],
    ),
    "driver: a module that nobody has put on the disk": (
        with_driver(module=make_module(OLD, OLD)),
        make_stack(),
        ["module-not-on-disk"],
        [("stage", f"driver {NEW}"), ("upgrade", "nvidia-alternative")],
    ),
    "kubelet: a later file that says something else": (
        edit_file(kubelet(), f"{FOLDER}/99-later.conf", "topologyManagerPolicy: none\n"),
        of_kubelet(topologyManagerPolicy="best-effort"),
        ["kubelet-overridden"],
        DROP_IN,
    ),
    "kubelet: a file that is not YAML": (
        edit_file(kubelet(), f"{FOLDER}/10-other.conf", "a: [\n"),
        of_kubelet(topologyManagerPolicy="best-effort"),
        ["kubelet-config"],
        DROP_IN,
    ),
    "kubelet: a record that cannot be read": (
        edit_file(kubelet(), KUBELET_RECORD_PATH, "{"),
        of_kubelet(topologyManagerPolicy="best-effort"),
        ["kubelet-record"],
        DROP_IN,
    ),
    "kubelet: no file and no folder, and huge pages to count": (
        replace(kernel(), kubelet=kubelet(config="", config_dir="").kubelet),
        make_stack(node={"kubelet": {"topologyManagerPolicy": "best-effort"}, "kernel": {"hugepages": {"2Mi": 4}}}),
        ["kubelet-without-config"],
        [("set", "vm.nr_hugepages"), ("restart", "kubelet.service")],
    ),
    "tuning: a setting that the kernel does not have": (
        kernel(numa_balancing=None),
        of_kernel(numaBalancing=False, hugepages={"2Mi": 4}),
        ["kernel-setting"],
        [("write", SYSCTL_PATH), ("set", "vm.nr_hugepages")],
    ),
    "tuning: huge pages that the kernel does not have": (
        kernel(hugepages={"2Mi": 0}),
        of_kernel(iommu="enabled", hugepages={"1Gi": 4}),
        ["kernel-setting"],
        [("write", GRUB_PATH), ("reboot", "kernel")],
    ),
    "tuning: nothing to tell the kernel's arguments": (
        kernel(boot_loader=""),
        of_kernel(iommu="enabled", numaBalancing=False),
        ["boot-loader-unknown"],
        [("write", SYSCTL_PATH), ("set", "kernel.numa_balancing")],
    ),
    "tuning: a record that cannot be read": (
        edit_file(kernel(), TUNING_RECORD_PATH, "[]"),
        of_kernel(numaBalancing=False),
        ["tuning-record"],
        [("write", SYSCTL_PATH), ("set", "kernel.numa_balancing")],
    ),
    "tuning: facts of an older collection": (
        replace(configured(), kernel=None),
        of_kernel(numaBalancing=False),
        ["kernel-setting"],
        [("write", SYSCTL_PATH)],
    ),
    "daemon: a Python that is too old": (
        replace(make_facts(), node=replace(make_facts().node, python="3.9")),
        make_stack(),
        ["unsupported-python"],
        [("write", NODE_CONFIG_PATH), ("write", UNIT_PATH), ("enable", "grapnel-node.service")],
    ),
    "mig: a layout that one of the GPUs cannot have": (
        cut(MigGpu(index=0, uuid="GPU-0", enabled=False), MigGpu(index=1, uuid="GPU-1", enabled=False)),
        layout(CROWDED, WHOLE),
        ["mig-layout-impossible"],
        [("write", MIG_LAYOUT_PATH), ("divide", "GPUs by MIG")],
    ),
    "mig: GPUs that do not tell": (
        cut(),
        layout(WHOLE),
        ["mig-unknown"],
        [("write", MIG_LAYOUT_PATH)],
    ),
}


@pytest.mark.parametrize(("facts", "stack", "codes", "shown"), CASES.values(), ids=CASES)
def test_what_would_be_done_is_shown_beside_what_keeps_it_from_being_done(
    facts: NodeFacts, stack: StackSpec, codes: list[str], shown: list[tuple[str, str]]
) -> None:
    found = plan(facts, stack)

    assert [problem.code for problem in found.problems] == codes
    assert [step for step in steps(found.items) if step in shown] == shown
    assert found.roles == Roles(), "nothing can be carried out by mistake"


def test_packages_of_another_driver_are_no_part_of_what_would_be_done() -> None:
    found = plan(replace(make_facts(), packages=FOREIGN))

    assert not FOREIGN.keys() & {item.target for item in found.items}


def test_the_kernel_module_that_is_not_there_is_not_loaded_in_what_would_be_done() -> None:
    found = plan(with_driver(module=make_module(OLD, OLD)))

    assert TARGET not in {item.target for item in found.items}


@pytest.mark.parametrize(
    "facts",
    [edit_file(kernel(), TUNING_RECORD_PATH, "[]"), edit_file(kubelet(), KUBELET_RECORD_PATH, "{")],
    ids=["the kernel's", "the kubelet's"],
)
def test_what_is_given_back_is_not_guessed_without_the_record_of_it(facts: NodeFacts) -> None:
    found = plan(facts, make_stack())

    assert len(found.problems) == 1
    assert found.items == ()


def test_only_the_gpus_that_can_have_the_layout_are_named_in_what_would_be_done() -> None:
    facts, stack, _, _ = CASES["mig: a layout that one of the GPUs cannot have"]

    (divide,) = [item for item in plan(facts, stack).items if item.target == "GPUs by MIG"]

    assert divide.reason == "GPU 1 is not in mig mode"


def test_two_parts_tell_of_their_problems_and_changes_side_by_side() -> None:
    facts = edit_file_state(edit_file(kubelet(), KUBELET_RECORD_PATH, "{"), NODE_CONFIG_PATH, mode="0600")

    found = plan(facts, make_stack(driver={"version": "551.61"}))

    assert [problem.code for problem in found.problems] == ["version-not-available", "kubelet-record"]
    assert ("write", NODE_CONFIG_PATH) in steps(found.items)
