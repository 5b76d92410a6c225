"""Kernels of a fake machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.preflight.kernels import read_kernels

if TYPE_CHECKING:
    from typing import Any

    from tests.playbooks.fakes import Machine

OLD, NEW = "6.12.107+deb13-amd64", "6.12.117+deb13-amd64"


def add_kernel(machine: Machine, release: str, *, headers: bool = True, image: bool = True) -> None:
    machine.write(f"/lib/modules/{release}/modules.dep")
    if image:
        machine.write(f"/boot/vmlinuz-{release}")
    if headers:
        machine.write(f"/usr/src/linux-headers-{release}/Makefile")
        build = machine.root / f"lib/modules/{release}/build"
        build.symlink_to(f"/usr/src/linux-headers-{release}")


def kernels(machine: Machine) -> dict[str, dict[str, Any]]:
    return {one["release"]: one for one in read_kernels(machine.host)}
