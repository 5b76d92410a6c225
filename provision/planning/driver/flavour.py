"""Chooses the flavour of the kernel module: what is declared, if the GPUs run it, else what they need.

The rules are those of NVIDIA's own tools: nvidia-driver-assistant (``get_driver_from_json_hints``) for nodes with
different GPUs, the driver container (``KERNEL_MODULE_TYPE=auto``) for the branch from which open is the default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from provision.declaration.spec.model import KernelModule
from provision.planning.driver.branches import newest_branch
from provision.planning.driver.gpus import list_date
from provision.planning.driver.terms import (
    FIRST_OPEN,
    LAST_BEFORE_TURING,
    OPEN_BY_DEFAULT,
    WITHOUT_PROPRIETARY,
    branch_of,
)
from provision.planning.driver.terms import Flavour as FlavourValue
from provision.planning.node_plan import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.planning.driver.gpus import GpuSupport


@dataclass(frozen=True)
class Flavour:
    """The flavour of a node, and why it has this one."""

    value: FlavourValue
    reason: str


def choose(gpus: Sequence[GpuSupport], version: str, declared: KernelModule) -> Flavour | Problem:
    """Return the flavour for a version or branch on a node with these GPUs, or why there is none."""
    if declared is KernelModule.NONE:
        return Flavour(FlavourValue.NONE, "declared: something else provides the kernel module")
    if not gpus and declared is KernelModule.AUTO:
        return Flavour(FlavourValue.NONE, "the node has no NVIDIA GPU, and needs no kernel module")
    if declared is KernelModule.OPEN:
        return _declared_open(gpus, version)
    if declared is KernelModule.PROPRIETARY:
        return _declared_proprietary(gpus, version)
    return _derived(gpus, version)


def _declared_open(gpus: Sequence[GpuSupport], version: str) -> Flavour | Problem:
    without = [each for each in gpus if not each.open]
    if without and all(each.proprietary for each in gpus):
        return Problem(
            code="flavour-not-supported",
            message=f"driver.kernelModule is open, which does not support {_names(without)}",
            hint=_for_old(without),
        )
    if branch_of(version) < FIRST_OPEN:
        return Problem(
            code="flavour-not-supported",
            message=f"driver.kernelModule is open, which driver {version} does not have",
            hint=f"declare kernelModule: proprietary, or branch {FIRST_OPEN} or newer",
        )
    return Flavour(FlavourValue.OPEN, "declared")


def _declared_proprietary(gpus: Sequence[GpuSupport], version: str) -> Flavour | Problem:
    if without := [each for each in gpus if each.known and not each.proprietary]:
        return Problem(
            code="flavour-not-supported",
            message=f"driver.kernelModule is proprietary, which does not support {_names(without)}",
            hint="declare kernelModule: open, or auto",
        )
    if branch_of(version) >= WITHOUT_PROPRIETARY:
        return _no_proprietary(gpus, version)
    return Flavour(FlavourValue.PROPRIETARY, "declared")


def _derived(gpus: Sequence[GpuSupport], version: str) -> Flavour | Problem:
    branch = branch_of(version)
    before_turing = [each for each in gpus if not each.open]
    open_only = [each for each in gpus if each.open and not each.proprietary]
    if open_only:
        idle = f"; {_names(before_turing)} does not work with it" if before_turing else ""
        return Flavour(FlavourValue.OPEN, _why_open_only(open_only) + idle)
    if before_turing:
        if branch >= WITHOUT_PROPRIETARY:
            return _no_proprietary(gpus, version)
        return Flavour(FlavourValue.PROPRIETARY, f"{_names(before_turing)} needs the proprietary module")
    if branch < OPEN_BY_DEFAULT:
        return Flavour(FlavourValue.PROPRIETARY, f"branches before {OPEN_BY_DEFAULT} have the proprietary module")
    return Flavour(FlavourValue.OPEN, f"all GPUs support it, and from branch {OPEN_BY_DEFAULT} on it is the default")


def _why_open_only(gpus: Sequence[GpuSupport]) -> str:
    unknown = [each for each in gpus if not each.known]
    if unknown:
        return f"{_names(unknown)} is not in the list of {list_date()}, and new GPUs need the open module"
    return f"{_names(gpus)} needs the open module"


def _no_proprietary(gpus: Sequence[GpuSupport], version: str) -> Problem:
    last = newest_branch(gpus) or WITHOUT_PROPRIETARY - 1
    return Problem(
        code="flavour-not-supported",
        message=f"driver {version} has no proprietary kernel module: {WITHOUT_PROPRIETARY} is the first branch without",
        hint=f"declare kernelModule: open, or branch {last} or older"
        if all(each.open for each in gpus)
        else f"declare driver.branch: '{last}', the newest that works on this node",
    )


def _for_old(without: Sequence[GpuSupport]) -> str:
    last = newest_branch(without) or LAST_BEFORE_TURING
    return f"declare kernelModule: proprietary or auto; branch {last} is the newest that works on this node"


def _names(gpus: Sequence[GpuSupport]) -> str:
    return ", ".join(sorted({each.name for each in gpus}))
