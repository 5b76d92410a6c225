"""What is offered of other devices: values that the kubelet's face is given. Small, as every daemon imports it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.devices.allocation.table import AllocationTable
    from plugin.devices.resources import Offer


@dataclass(frozen=True)
class OtherResource:
    """Everything under one name: the list that the kubelet is shown, and the table of answers.

    `pcie_roots` are those of devices on a PCI bus, by their ids.
    """

    class_name: str
    offers: tuple[Offer, ...]
    table: AllocationTable
    pcie_roots: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OtherPlan:
    """Resource → what is offered. `findings`: what is not, or is unhealthy, and why; each has a topic of its own."""

    resources: Mapping[str, OtherResource] = field(default_factory=dict)
    findings: tuple[tuple[str, str], ...] = ()
