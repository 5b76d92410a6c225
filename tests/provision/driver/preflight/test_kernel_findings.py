"""Kernels that lack a module, headers or what builds one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.declaration.fleet.facts.driver import (
    DkmsBuild,
)
from provision.planning.driver_change import DriverChange, PackageVersion
from tests.provision.driver.preflight.situations import (
    NEW,
    NEXT,
    RUNNING,
    TOOLS,
    found,
    make_change,
    make_node,
    without_headers,
)
from tests.provision.samples import replace

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts

KERNELS = {
    "no headers for the running kernel": (
        make_node(kernels=(without_headers(RUNNING), NEXT)),
        make_change(),
        "kernel-headers-missing",
        f"kernel headers are missing for {RUNNING.release}",
    ),
    "no headers for the kernel that boots by default": (
        make_node(kernels=(replace(RUNNING, default=False), replace(without_headers(NEXT), default=True))),
        make_change(),
        "kernel-headers-missing",
        f"kernel headers are missing for {NEXT.release}",
    ),
    "a prebuilt module for another kernel": (
        make_node(),
        make_change(
            dkms=None,
            packages=(PackageVersion(f"linux-modules-nvidia-550-{NEXT.release}", "6.12"),),
        ),
        "module-package-missing",
        f"there is no prebuilt module for {RUNNING.release}",
    ),
    "a change that leaves out the running kernel": (
        make_node(),
        make_change(kernels=(NEXT.release,)),
        "kernel-module-missing",
        f"{RUNNING.release} runs, and has no kernel module {NEW}",
    ),
    "a change that leaves out an installed kernel": (
        make_node(),
        make_change(kernels=(RUNNING.release,)),
        "kernel-module-missing-next-boot",
        f"{NEXT.release} may boot next without kernel module {NEW}",
    ),
    "another kernel boots next": (
        make_node(kernels=(replace(RUNNING, default=False), replace(NEXT, default=True))),
        make_change(),
        "other-kernel-next-boot",
        f"{RUNNING.release} runs, and the next boot starts {NEXT.release}",
    ),
    "no compiler": (
        make_node(build_tools=replace(TOOLS, gcc=False)),
        make_change(),
        "build-tools-missing",
        "DKMS 3.2.2 has no gcc",
    ),
    "neither compiler nor make": (
        make_node(build_tools=replace(TOOLS, gcc=False, make=False)),
        make_change(),
        "build-tools-missing",
        "DKMS 3.2.2 has no gcc and no make",
    ),
    "DKMS is told not to build": (
        make_node(build_tools=replace(TOOLS, autoinstall=False)),
        make_change(),
        "dkms-autoinstall-off",
        "/etc/dkms/no-autoinstall keeps DKMS from building for new kernels",
    ),
    "a dkms.conf without AUTOINSTALL": (
        make_node(dkms=(DkmsBuild(module="nvidia-current", version=NEW, autoinstall=False),)),
        make_change(),
        "dkms-autoinstall-off",
        "dkms.conf of nvidia-current does not ask for builds for new kernels",
    ),
    "a build that failed": (
        make_node(dkms=(DkmsBuild(module="nvidia-current", version=NEW),)),
        make_change(),
        "dkms-not-installed",
        f"DKMS has nvidia-current {NEW}, which is added for {RUNNING.release}",
    ),
    "a build for another kernel only": (
        make_node(dkms=(DkmsBuild(module="nvidia", version=NEW, kernel=NEXT.release, state="installed"),)),
        None,
        "dkms-not-installed",
        f"DKMS has nvidia {NEW}, which is not built for {RUNNING.release}",
    ),
}


@pytest.mark.parametrize(("facts", "change", "code", "message"), KERNELS.values(), ids=KERNELS)
def test_kernels_and_modules(facts: NodeFacts, change: DriverChange | None, code: str, message: str) -> None:
    assert found(facts, change)[code].message == message
