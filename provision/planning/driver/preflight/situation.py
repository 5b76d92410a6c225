"""Defines what findings are made of: a node's facts, what is declared, and the change that would be carried out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import DriverSource, KernelModule
from provision.planning.driver_change import change_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from provision.declaration.fleet.facts.driver import Kernel, StagedChange
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import Driver
    from provision.planning.driver_change import DriverChange

_UPSTREAM: Final = re.compile(r"^(?:[0-9]+:)?([0-9]{3}\.[0-9]+(?:\.[0-9]+)?)(?![0-9.])")
_SHOWN: Final = 6  # names in a message


@dataclass(frozen=True)
class Situation:
    """One node before a driver change; ``change`` is None where nothing has to change, or could not be planned."""

    facts: NodeFacts
    driver: Driver
    change: DriverChange | None

    @property
    def version(self) -> str | None:
        """The upstream version that is to run, None where a branch is declared and nothing was planned."""
        return self.driver.version if self.change is None else self.change.version

    @property
    def installs_module(self) -> bool:
        """Whether grapnel brings the kernel module."""
        if self.change is not None:
            return self.change.flavour != "none"
        return self.driver.kernel_module is not KernelModule.NONE and self.driver.source is not DriverSource.NONE

    @property
    def builds_module(self) -> bool:
        """Whether the change has the module built on the node, and not for all kernels before."""
        return self.change is not None and self.change.dkms is not None and not self.is_staged

    @cached_property
    def staged(self) -> StagedChange | None:
        """The change's place in the node's staging area, None where it is not there."""
        if self.change is None:
            return None
        wanted = change_id(self.change)
        return next((one for one in self.facts.driver.staged if one.id == wanted), None)

    @property
    def is_staged(self) -> bool:
        """Whether everything that the change needs lies on the node, its way back included."""
        return self.staged is not None and self.staged.complete

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """Kernels that matter to somebody who wants to use the GPUs."""
        return self.facts.kernels if self.facts.gpus else ()

    def has_module(self, kernel: Kernel) -> bool:
        """Tell whether a kernel has the module of the wanted version already."""
        return any(module.version == self.version for module in kernel.modules)

    @property
    def has_any_module(self) -> bool:
        """Whether any kernel has a module of the driver, of whatever version."""
        return any(kernel.modules for kernel in self.facts.kernels)


def upstream(version: str) -> str | None:
    """Return upstream's part of a package's version: ``550.163.01`` of ``3:550.163.01-1.el9``."""
    match = _UPSTREAM.match(version)
    return match.group(1) if match else None


def some(names: Iterable[str]) -> str:
    """Return names as a list that stays readable."""
    found = list(names)
    rest = len(found) - _SHOWN
    shown = ", ".join(found[:_SHOWN])
    return f"{shown} and {rest} more" if rest > 0 else shown
