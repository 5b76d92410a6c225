"""Which devices are offered under which resource name, whole, as MIG devices, or as shares of either. Pure.

How a container gets one is `allocation`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from plugin.devices.mig import MIXED, NONE, resource_suffix, short_profile, why_invalid, why_not_offered
from plugin.devices.naming import DOMAIN, NamePattern, explain_change, find_pattern
from plugin.devices.sharing import ShareRule, Strategy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from plugin.devices.inventory import Device, Inventory
    from plugin.devices.mig import Slice

    IdLengths = Mapping[tuple[int, int | None], int]  # how many units have an id of this length, on this NUMA node

MIG_PREFIX = f"{DOMAIN}/mig-"  # of the resources of the strategy `mixed`


class Placement(Enum):
    """Which of the free units a container is preferred to have."""

    LINKED = "by the links between GPUs"
    DISTRIBUTED = "on the devices that the fewest have"
    PACKED = "on the devices that the most have"
    ONE_DEVICE = "all on one GPU"
    NEAR = "near the GPU that was given away last"


@dataclass(frozen=True)
class Offer:
    """One line of the device list: `device_id` is unique on the node, over all resources."""

    device_id: str
    is_healthy: bool
    numa_node: int | None


@dataclass(frozen=True)
class Unit:
    """What is offered: a GPU, a MIG device (`slice`), or one of several units of either.

    `device_id` is what the kubelet knows it by, `unhealthy` why no container can be given it now.
    """

    device_id: str
    gpu: Device
    slice: Slice | None = None
    unhealthy: str = ""
    memory_bytes: int = 0  # of a memory unit

    @property
    def source_id(self) -> str:
        """The UUID of the GPU or MIG device that it is, or is a part of."""
        return self.gpu.gpu.uuid if self.slice is None else self.slice.facts.uuid

    @property
    def names(self) -> tuple[str, ...]:
        """Its device as settings may name it."""
        index = str(self.gpu.gpu.index)
        return (self.source_id, index if self.slice is None else f"{index}:{self.slice.facts.index}")

    @property
    def source_memory_bytes(self) -> int | None:
        """The memory of its device, None where it is not known."""
        if self.slice is None:
            return self.gpu.memory_bytes
        return None if self.slice.facts.size is None else self.slice.facts.size.memory_mib * 2**20

    @property
    def offer(self) -> Offer:
        """It as the kubelet is shown it."""
        return Offer(self.device_id, is_healthy=not self.unhealthy, numa_node=self.gpu.numa_node)


@dataclass(frozen=True)
class Resource:
    """Everything under one name. `refuses_several`: a container may have one unit of it alone."""

    units: tuple[Unit, ...]
    placement: Placement = Placement.LINKED
    refuses_several: bool = False
    strategy: Strategy = Strategy.NONE
    is_renamed: bool = False  # its devices would have another name if they were not shared

    @property
    def offers(self) -> tuple[Offer, ...]:
        """The list that the kubelet is shown."""
        return tuple(unit.offer for unit in self.units)


@dataclass(frozen=True)
class OfferRules:
    """What decides under which name, and in how many parts, a device is offered. `is_packed`: shares fill up a GPU."""

    patterns: tuple[NamePattern, ...]
    mig_strategy: str = NONE
    mig_patterns: tuple[NamePattern, ...] = ()
    shares: tuple[ShareRule, ...] = ()
    is_packed: bool = False


@dataclass(frozen=True)
class OfferPlan:
    """Resource → what is offered under its name; resources without a device are not in it.

    `findings` are devices and resources that are not offered at all, and why; `refused` are the resources of them.
    """

    resources: Mapping[str, Resource] = field(default_factory=dict)
    findings: tuple[tuple[str, str], ...] = ()
    refused: tuple[str, ...] = ()


def plan_offers(
    inventory: Inventory, rules: OfferRules, refuse: Callable[[IdLengths], str] = lambda _: ""
) -> OfferPlan:
    """Return what is offered of an inventory.

    `refuse` says why a resource cannot be offered with so many units, before any of them is made; "" where it can.
    """
    planner = _Planner(inventory, rules)
    resources: dict[str, list[_Parts]] = {}
    positions: dict[str, int] = {}
    for name, unit in planner.whole_units():
        position = positions[name] = positions.get(name, -1) + 1
        rule = next((each for each in rules.shares if each.resource == name and each.takes(unit.names, position)), None)
        count = planner.count(unit, rule)
        if count:
            resources.setdefault(name if rule is None else rule.shown_as, []).append(_Parts(unit, rule, count))
    made = {}
    for name, found in resources.items():
        why = refuse(_id_lengths(found))
        if why:
            planner.leave_out(name, why)
        else:
            pairs = [(unit, parts.rule) for parts in found for unit in parts.units()]
            made[name] = _resource(pairs, is_packed=rules.is_packed)
    return OfferPlan(made, tuple(planner.findings), tuple(name for name in resources if name not in made))


class _Parts(NamedTuple):
    """A device, and in how many units it is offered; whole without a rule."""

    unit: Unit
    rule: ShareRule | None
    many: int

    def units(self) -> Iterator[Unit]:
        unit, rule = self.unit, self.rule
        if rule is None:
            yield unit
            return
        for number in range(self.many):
            yield Unit(rule.unit_id(unit.source_id, number), unit.gpu, unit.slice, unit.unhealthy, rule.unit_bytes)


def _id_lengths(found: Sequence[_Parts]) -> IdLengths:
    lengths: Counter[tuple[int, int | None]] = Counter()
    for unit, rule, count in found:
        whole = [(len(unit.device_id), 1)]
        for length, many in whole if rule is None else rule.id_lengths(unit.source_id, count):
            lengths[length, unit.gpu.numa_node] += many
    return lengths


def _resource(found: Sequence[tuple[Unit, ShareRule | None]], *, is_packed: bool) -> Resource:
    shared = {rule.strategy for _, rule in found if rule is not None}
    strategy = next(iter(shared), Strategy.NONE)
    refuses_several = any(rule.refuses_several for _, rule in found if rule is not None)
    if strategy is Strategy.MEMORY or (strategy is Strategy.MPS and not refuses_several):
        placement = Placement.ONE_DEVICE
    elif shared or any(unit.slice for unit, _ in found):
        placement = Placement.PACKED if is_packed else Placement.DISTRIBUTED
    else:
        placement = Placement.LINKED
    is_renamed = any(rule.shown_as != rule.resource for _, rule in found if rule is not None)
    return Resource(tuple(unit for unit, _ in found), placement, refuses_several, strategy, is_renamed)


class MemoryCards(NamedTuple):
    """GPUs that are offered as units of memory: the resource, and of each its UUID, index, units and health."""

    resource: str
    unit_bytes: int
    cards: tuple[tuple[str, int, int, bool], ...]


NO_CARDS = MemoryCards("", 0, ())


def find_memory_cards(plan: OfferPlan) -> MemoryCards:
    """Return the GPUs of the first resource of memory units; a node with several of them reports one."""
    for name, resource in plan.resources.items():
        if resource.strategy is Strategy.MEMORY:
            counts = Counter(unit.source_id for unit in resource.units)
            firsts = {unit.source_id: unit for unit in reversed(resource.units)}
            cards = tuple(
                (each, firsts[each].gpu.gpu.index, count, not firsts[each].unhealthy) for each, count in counts.items()
            )
            return MemoryCards(name, resource.units[0].memory_bytes, cards)
    return NO_CARDS


def without_sharing(plan: OfferPlan, problem: Callable[[str], str]) -> OfferPlan:
    """Return a plan in which the shares of a GPU are unhealthy that cannot be shared through MPS now.

    `problem` says why, by the GPU's UUID.
    """
    if all(resource.strategy is not Strategy.MPS for resource in plan.resources.values()):
        return plan
    resources = {
        name: replace(resource, units=tuple(_judged(unit, problem) for unit in resource.units))
        if resource.strategy is Strategy.MPS
        else resource
        for name, resource in plan.resources.items()
    }
    return replace(plan, resources=resources)


def without_all(plan: OfferPlan, why: str) -> OfferPlan:
    """Return a plan in which nothing can be given away."""
    resources = {
        name: replace(resource, units=tuple(replace(unit, unhealthy=unit.unhealthy or why) for unit in resource.units))
        for name, resource in plan.resources.items()
    }
    return replace(plan, resources=resources)


def _judged(unit: Unit, problem: Callable[[str], str]) -> Unit:
    why = "" if unit.unhealthy or unit.device_id == unit.source_id else problem(unit.source_id)
    return replace(unit, unhealthy=why) if why else unit


@dataclass(frozen=True)
class Division:
    """How a GPU or MIG device is shared: in how many units, and whether under a name of its own."""

    strategy: Strategy = Strategy.NONE
    units: int = 1
    is_renamed: bool = False


UNDIVIDED = Division()


def find_divisions(plan: OfferPlan) -> dict[str, Division]:
    """Return the devices that are shared, by id."""
    found: dict[str, Division] = {}
    for resource in plan.resources.values():
        if resource.strategy is not Strategy.NONE:
            counts = Counter(unit.source_id for unit in resource.units if unit.device_id != unit.source_id)
            found |= {each: Division(resource.strategy, count, resource.is_renamed) for each, count in counts.items()}
    return found


class _Planner:
    """One look at an inventory; `findings` are what is not offered."""

    def __init__(self, inventory: Inventory, rules: OfferRules) -> None:
        self._inventory = inventory
        self._rules = rules
        self.findings: list[tuple[str, str]] = []
        gpus = [device.gpu for device in inventory.devices]
        is_mig_offered = rules.mig_strategy != NONE
        self._is_mixed = rules.mig_strategy == MIXED
        self._invalid = why_invalid(gpus) if is_mig_offered and not self._is_mixed else ""
        self._is_mig_offered = is_mig_offered

    def leave_out(self, device_id: str, why: str) -> None:
        """Note why a device, or a resource, is not offered."""
        self.findings.append((device_id, f"{device_id} is not offered: {why}"))

    def whole_units(self) -> Iterator[tuple[str, Unit]]:
        """Yield every GPU and MIG device that is offered, with the resource that it belongs to."""
        for device in self._inventory.devices:
            gpu = device.gpu
            if self._invalid:
                self.leave_out(gpu.uuid, f"migStrategy is single, and {self._invalid}")
            elif self._is_mig_offered and (gpu.is_cut or gpu.mig):
                yield from self._slices(device)
            else:
                name = self._name_of(device)
                if name:
                    yield name, Unit(gpu.uuid, device, unhealthy=device.unhealthy)

    def _name_of(self, device: Device) -> str:
        gpu = device.gpu
        pattern = find_pattern(gpu.model, self._rules.patterns)
        if pattern is None:
            why = explain_change(gpu.model, self._rules.patterns) or f"no pattern of resources.gpus fits {gpu.model!r}"
            self.leave_out(gpu.uuid, why)
            return ""
        return pattern.resource

    def _slices(self, device: Device) -> Iterator[tuple[str, Unit]]:
        """Yield the MIG devices of a GPU; one without any is told of."""
        if not device.slices:
            self.leave_out(device.gpu.uuid, "it is in MIG mode and has no MIG device")
        for each in device.slices:
            why = why_not_offered(each.facts.profile)
            name = "" if why else self._name_of_slice(device, each)
            if why:
                self.leave_out(each.facts.uuid, why)
            if name:
                yield name, Unit(each.facts.uuid, device, each, device.unhealthy or each.problem)

    def _name_of_slice(self, device: Device, each: Slice) -> str:
        if not self._is_mixed:
            return self._name_of(device)
        profile = short_profile(each.facts.profile)
        if not self._rules.mig_patterns:
            return f"{MIG_PREFIX}{resource_suffix(profile)}"
        pattern = find_pattern(profile, self._rules.mig_patterns)
        if pattern is None:
            self.leave_out(each.facts.uuid, f"no pattern of resources.mig fits {profile!r}")
            return ""
        return pattern.resource

    def count(self, unit: Unit, rule: ShareRule | None) -> int:
        """Return how many units a device is offered as."""
        count = 1 if rule is None else rule.count(unit.source_memory_bytes)
        if rule is not None and count < 1:
            self.leave_out(unit.source_id, rule.why_none(unit.source_memory_bytes))
        return count
