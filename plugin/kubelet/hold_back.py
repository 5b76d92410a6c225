"""What of a plan must wait because containers still have the same devices in another way. Pure.

A GPU that is to be shared from now on may still be some container's as a whole one, or the other way round; fewer
shares may be wanted than are in use. The kubelet counts each id for itself and would give the new ones away. So they
are shown as unhealthy, with the reason, until the old ones are free.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from plugin.devices.sharing import MEMORY, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from plugin.devices.resources import OfferPlan, Resource, Unit
    from plugin.kubelet.pod_resources.holdings import Held


@dataclass(frozen=True)
class HeldBack:
    """A plan whose waiting units are unhealthy; `waits` are the devices that they belong to, and for whom."""

    plan: OfferPlan
    waits: tuple[tuple[str, str], ...] = ()


def hold_back(plan: OfferPlan, held: Held | None, unit_bytes: Mapping[str, int]) -> HeldBack:
    """Return a plan with what has to wait. `unit_bytes`: of what size a GPU's memory units were when last offered.

    `held` None: the kubelet has not said anything so far.
    """
    waits: dict[str, str] = {}
    resources = {
        name: replace(resource, units=tuple(_checked(name, resource, held, unit_bytes, waits)))
        for name, resource in plan.resources.items()
    }
    return HeldBack(replace(plan, resources=resources), tuple(waits.items()))


def _checked(
    name: str, resource: Resource, held: Held | None, unit_bytes: Mapping[str, int], waits: dict[str, str]
) -> Iterator[Unit]:
    by_device: dict[str, list[Unit]] = {}
    for unit in resource.units:
        by_device.setdefault(unit.source_id, []).append(unit)
    for device_id, units in by_device.items():
        kind = kind_of(units[0].device_id)
        whole = _of_another_size(units, held, unit_bytes)
        late: set[Unit] = set()
        if held:
            whole = held.other_use(device_id, name, kind) or _of_other_parts(units[0], held) or whole
            late = set() if whole else _surplus(units, held)
        for unit in units:
            why = whole or (_too_many(held, device_id) if held and unit in late else "")
            if why:
                waits.setdefault(device_id, why)
            yield replace(unit, unhealthy=unit.unhealthy or why) if why else unit


def _of_other_parts(unit: Unit, held: Held) -> str:
    """Return who has MIG devices of a whole GPU, or the GPU of a MIG device."""
    parts = (each.uuid for each in unit.gpu.gpu.mig) if unit.slice is None else (unit.gpu.gpu.uuid,)
    return next((who for part in parts if (who := held.any_of(part))), "")


def _too_many(held: Held, device_id: str) -> str:
    return f"as many containers as may have it do: {held.any_of(device_id)}"


def _of_another_size(units: Sequence[Unit], held: Held | None, unit_bytes: Mapping[str, int]) -> str:
    """Return who has, or may have, units of the same GPU that mean another amount of memory."""
    one = units[0]
    before = unit_bytes.get(one.source_id, one.memory_bytes)
    if kind_of(one.device_id) != MEMORY or before == one.memory_bytes:
        return ""
    if held is None:
        return f"the kubelet has not said yet who has units of {before // 2**20} MiB of it"
    who = held.any_of(one.source_id)
    return f"{who} has units of {before // 2**20} MiB of it" if who else ""


def _surplus(units: Sequence[Unit], held: Held) -> set[Unit]:
    """Return as many free units as there are held ones that are not offered any more."""
    offered = {unit.device_id for unit in units}
    gone = len(held.units_of(units[0].source_id) - offered)
    free = [unit for unit in units if not held.holder(unit.device_id)]
    return set(free[len(free) - gone :]) if gone else set()
