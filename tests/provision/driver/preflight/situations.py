"""Nodes, driver changes and declarations with which findings are looked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.declaration.fleet.facts.driver import (
    BuildTools,
    Initramfs,
    Kernel,
    ModuleFile,
    Nouveau,
    SecureBoot,
)
from provision.declaration.fleet.facts.node import InstalledPackage
from provision.declaration.spec.model import Driver
from provision.planning.driver.preflight import findings
from provision.planning.driver_change import DriverChange, ModuleTarget, PackageVersion
from tests.provision.samples import GPU, make_facts, make_module, replace

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.planning.driver.preflight import Finding

NEW, OLD = "550.163.01", "535.261.03"
RUNNING = Kernel(release="6.12.107+deb13-amd64", running=True, default=True, headers=True)
NEXT = Kernel(release="6.12.117+deb13-amd64", headers=True)
SOURCE = "nvidia-graphics-drivers"
TOOLS = BuildTools(dkms="3.2.2", gcc=True, make=True)
SIGNED = ModuleFile(version=NEW, flavour="proprietary", signer="DKMS module signing key")
ENFORCED = SecureBoot(enabled=True, enforced=True, lockdown="integrity", enrolled=("Debian Secure Boot CA",))
ROOM = 10_000_000_000


def make_change(**changes: object) -> DriverChange:
    change = DriverChange(
        version=NEW,
        flavour="proprietary",
        manager="apt",
        packages=(PackageVersion("libcuda1", f"{NEW}-2"), PackageVersion("nvidia-kernel-dkms", f"{NEW}-2")),
        kernels=(RUNNING.release, NEXT.release),
        dkms="nvidia-current",
        module=ModuleTarget(version=NEW),
    )
    return replace(change, **changes)


def make_node(**changes: object) -> NodeFacts:
    """Return the facts of a node with a GPU that has everything a change needs."""
    usual = {
        "gpus": (GPU,),
        "kernels": (replace(RUNNING, default=True), NEXT),
        "build_tools": TOOLS,
        "secure_boot": SecureBoot(enabled=False, enrolled=(), lockdown="none"),
        "nouveau": Nouveau(blacklisted=True),
        "initramfs": Initramfs(tool="initramfs-tools"),
        "disk_free": {"/": ROOM, "/var": ROOM, "/usr": ROOM, "/boot": ROOM, "/tmp": ROOM},
    }
    return make_facts(**(usual | changes))


def declare(**changes: object) -> Driver:
    return replace(Driver(version=NEW), **changes)


def found(facts: NodeFacts, change: DriverChange | None = None, driver: Driver | None = None) -> dict[str, Finding]:
    return {one.code: one for one in findings(facts, driver or declare(), change)}


def with_packages(version: str, **changes: object) -> NodeFacts:
    package = replace(InstalledPackage(version=version, source=SOURCE), **changes)
    return make_node(packages={"libcuda1": package}, module=make_module(None, None))


def without_headers(kernel: Kernel) -> Kernel:
    return replace(kernel, headers=False)
