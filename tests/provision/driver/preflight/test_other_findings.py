"""Other drivers, other changes, and whoever uses the GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.declaration.fleet.facts.driver import (
    DriverRun,
    DriverState,
    ForeignDriver,
    Initramfs,
    Nouveau,
)
from provision.declaration.fleet.facts.node import DeviceHolder
from provision.planning.driver.preflight import findings
from tests.provision.driver.preflight.situations import (
    NEXT,
    OLD,
    RUNNING,
    SIGNED,
    declare,
    found,
    make_change,
    make_node,
)
from tests.provision.samples import make_module, replace

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts

OTHERS = {
    "nouveau has the GPUs": (
        make_node(nouveau=Nouveau(loaded=True, blacklisted=True)),
        ["nouveau-loaded"],
    ),
    "nouveau has the GPUs, and nothing can write an initramfs without it": (
        make_node(nouveau=Nouveau(loaded=True), initramfs=Initramfs(tool="none")),
        ["nouveau-loaded", "initramfs-tool-missing", "nouveau-not-blacklisted"],
    ),
    "nouveau may come back": (
        make_node(nouveau=Nouveau(), kernels=(replace(RUNNING, modules=(SIGNED,)), replace(NEXT, modules=(SIGNED,)))),
        ["nouveau-not-blacklisted"],
    ),
    "nouveau before the first installation: packages bring a blacklist": (make_node(nouveau=Nouveau()), []),
    "a driver of the installer": (
        make_node(foreign_driver=ForeignDriver(kind="runfile", uninstaller="/usr/bin/nvidia-uninstall")),
        ["foreign-driver"],
    ),
    "libraries of nobody": (
        make_node(foreign_driver=ForeignDriver(kind="files", files=("/usr/lib64/libcuda.so.550.54.15",))),
        ["foreign-driver"],
    ),
    "a change that was taken back": (
        make_node(driver=DriverState(run=DriverRun(state="returned", verb="swap", step="verify", reason="no GPU"))),
        ["last-change-failed"],
    ),
    "a change that waits for a reboot": (
        make_node(driver=DriverState(run=DriverRun(state="needs-reboot", verb="swap", reboot_due=True))),
        ["driver-change-waits"],
    ),
    "a change that goes on after a reboot": (
        make_node(driver=DriverState(run=DriverRun(state="needs-reboot", verb="swap"))),
        ["driver-change-waits"],
    ),
    "a change that is under way": (
        make_node(driver=DriverState(run=DriverRun(state="running", verb="swap", step="packages"))),
        ["driver-change-running"],
    ),
    "work on the GPUs, and services of the driver": (
        make_node(
            module=make_module(OLD, OLD),
            device_holders=(
                DeviceHolder(pid=7, command="train", pod_uid="1f0c"),
                DeviceHolder(pid=8, command="jupyter", unit="jupyter.service"),
                DeviceHolder(pid=9, command="nvidia-persiste", is_driver_service=True),
            ),
        ),
        ["gpu-in-use"],
    ),
}


@pytest.mark.parametrize(("facts", "expected"), OTHERS.values(), ids=OTHERS)
def test_others(facts: NodeFacts, expected: list[str]) -> None:
    assert [one.code for one in findings(facts, declare(), make_change())] == expected


def test_users_are_named_with_what_they_are_and_driver_services_are_not() -> None:
    facts, _ = OTHERS["work on the GPUs, and services of the driver"]

    assert (
        found(facts, make_change())["gpu-in-use"].message
        == "GPUs are open in jupyter (jupyter.service), train in a pod"
    )
