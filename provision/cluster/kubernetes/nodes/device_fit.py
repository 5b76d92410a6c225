"""Says which published devices a request of a claim may be given, and what keeps the others from it. Pure.

It goes by what the scheduler goes by as it looks at one device for one request
(k8s.io/dynamic-resource-allocation/structured). Which devices go together is in `claim_reasons`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING, Final, TypeVar

from provision.cluster.kubernetes.nodes.fit import is_tolerated
from provision.cluster.kubernetes.nodes.selectors import NotJudgedError, NotThereError, Seen, parse
from provision.cluster.kubernetes.objects.nodes import Taint
from provision.declaration.spec.text.excerpt import few
from provision.declaration.spec.values.quantities import read_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from provision.cluster.kubernetes.objects.claims import (
        Capacity,
        DescribedDevice,
        DescribedSlice,
        DeviceClass,
        ExactRequest,
        RequestPolicy,
        ResourceClaim,
        Selector,
    )

    Key = tuple[str, str, str]  # driver, pool, device: as allocations have it
    SetKey = tuple[str, str, str, str]  # driver, pool, node, set of counters

_Name = TypeVar("_Name")

ANYWHERE: Final = "(several nodes)"
_KEEPS_OFF: Final = frozenset({"NoSchedule", "NoExecute"})
_HOLDERS: Final = 3
_NOTHING: Final = Fraction(0)


class Verdict(Enum):
    """Whether a device may be given.

    ``FOREIGN`` is not of the class, ``OTHER`` is not what the claim wants of it. ``TAKEN`` is, and something is in the
    way.
    """

    FITS = "fits"
    TAKEN = "taken"
    OTHER = "other"
    FOREIGN = "foreign"
    UNCLEAR = "unclear"

    @property
    def is_of_kind(self) -> bool:
        """Whether it is what is asked for, as far as that is known."""
        return self not in (Verdict.OTHER, Verdict.FOREIGN)


@dataclass(frozen=True, slots=True)
class Published:
    """A device, the node that it is on, and how expressions see it."""

    driver: str
    pool: str
    node: str
    device: DescribedDevice
    seen: Seen

    @property
    def key(self) -> Key:
        """Which one it is, as allocations name it."""
        return self.driver, self.pool, self.device.name

    def set_key(self, counter_set: str) -> SetKey:
        """Which set of counters it draws on: a pool of one node is that node's alone, whatever others call theirs."""
        return self.driver, self.pool, self.node, counter_set

    def attribute(self, name: str) -> str | None:
        """Return an attribute by its full name, None where it has none."""
        domain, _, own = name.rpartition("/")
        return self.seen.shown.get(name, self.seen.shown.get(own) if domain == self.driver else None)

    def is_known(self, name: str) -> bool:
        """Tell whether an attribute, by its full name, is in a form that is known here, or not there at all."""
        domain, _, own = name.rpartition("/")
        found = self.device.attributes
        has = found.get(name) or (found.get(own) if domain == self.driver else None)
        return has is None or has.value is not None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a device is for a request, and why."""

    device: Published
    verdict: Verdict
    why: str = ""


@dataclass(frozen=True, slots=True)
class Pools:
    """What may be given, and what claims have of it.

    ``holders`` are claims that have a device, ``taken`` how much of its capacities; ``drawing`` are claims that draw on
    a set of counters, ``left`` what there is of each. ``troubles`` are pools of which the scheduler gives nothing.
    """

    devices: tuple[Published, ...]
    holders: Mapping[Key, tuple[str, ...]]
    taken: Mapping[Key, Mapping[str, Fraction]]
    drawing: Mapping[SetKey, tuple[str, ...]]
    left: Mapping[SetKey, Mapping[str, Fraction]]
    troubles: tuple[str, ...] = ()


def pools_of(slices: Iterable[DescribedSlice], claims: Iterable[ResourceClaim]) -> Pools:
    """Return what slices publish, of which claims have some."""
    given, troubles = _complete(slices)
    holders: dict[Key, list[str]] = defaultdict(list)
    taken: dict[Key, dict[str, Fraction]] = defaultdict(dict)
    for claim in claims:
        for each in claim.results:
            if not each.admin_access:  # who watches takes nothing
                key = (each.driver, each.pool, each.device)
                holders[key].append(f"{claim.metadata.namespace}/{claim.metadata.name}")
                for name, amount in each.consumed_capacity.items():
                    taken[key][name] = taken[key].get(name, _NOTHING) + _number(amount)
    devices = tuple(
        Published(of.driver, of.pool.name, of.node_name or ANYWHERE, each, Seen.of(each, of.driver))
        for of in (each.spec for each in given)
        for each in of.devices
    )
    left: dict[SetKey, dict[str, Fraction]] = {
        (of.driver, of.pool.name, of.node_name or ANYWHERE, each.name): {
            name: _number(counter.value) for name, counter in each.counters.items()
        }
        for of in (each.spec for each in given)
        for each in of.shared_counters
    }
    drawing: dict[SetKey, list[str]] = defaultdict(list)
    for one in devices:
        for draws in one.device.consumes_counters if one.key in holders else ():
            drawn = one.set_key(draws.counter_set)
            drawing[drawn] += holders[one.key]
            for name, counter in draws.counters.items():
                if name in left.get(drawn, {}):
                    left[drawn][name] -= _number(counter.value)
    return Pools(devices, _once(holders), taken, _once(drawing), left, troubles)


def _once(names: Mapping[_Name, Iterable[str]]) -> dict[_Name, tuple[str, ...]]:
    return {key: tuple(dict.fromkeys(each)) for key, each in names.items()}


def _complete(slices: Iterable[DescribedSlice]) -> tuple[list[DescribedSlice], tuple[str, ...]]:
    """Return the slices of the newest generation of each pool that has all of them, and which pools have not.

    A pool of one node is that node's alone, whatever others call theirs.
    """
    pools: dict[tuple[str, str], list[DescribedSlice]] = defaultdict(list)
    for each in slices:
        pools[each.spec.driver, each.spec.pool.name].append(each)
    given: list[DescribedSlice] = []
    troubles = []
    for (driver, name), those in sorted(pools.items()):
        for node in sorted({each.spec.node_name for each in those}):
            here = _newest([each for each in those if each.spec.node_name == node])
            count, found = here[0].spec.pool.resource_slice_count, len(here)
            if found != count:
                newest = _newest(those)
                found = len(newest) if here[0] in newest else found
            if found == count:
                given += here
            else:
                troubles.append(f"pool {name} of {driver} has {found} of {count} slices: nothing is given of it")
    return given, tuple(troubles)


def _newest(slices: list[DescribedSlice]) -> list[DescribedSlice]:
    newest = max(each.spec.pool.generation for each in slices)
    return [each for each in slices if each.spec.pool.generation == newest]


def judge(request: ExactRequest, of_class: DeviceClass | None, pools: Pools) -> Iterator[Judgement]:
    """Yield what each device is for a request; where its class is not known, None, none fits for certain."""
    for device in pools.devices:
        verdict, why = _kind(request, of_class, device)
        if verdict.is_of_kind and (obstacles := [*_obstacles(request, device, pools)]):
            verdict, why = Verdict.TAKEN, "; ".join(obstacles)
        if verdict is Verdict.FITS and of_class is None:
            verdict, why = Verdict.UNCLEAR, f"what class {request.device_class_name} wants could not be read"
        yield Judgement(device, verdict, why)


def _kind(request: ExactRequest, of_class: DeviceClass | None, device: Published) -> tuple[Verdict, str]:
    """Return whether a device is of the kind that is asked for."""
    of_this = () if of_class is None else of_class.spec.selectors
    unclear = ""
    name = f"class {request.device_class_name}"
    for whose, no, selectors in ((name, Verdict.FOREIGN, of_this), ("the claim", Verdict.OTHER, request.selectors)):
        for each in selectors:
            verdict, why = _selected(each, device.seen)
            if verdict is Verdict.OTHER:
                return no, f"{whose} wants {why}"
            unclear = unclear or (f"{whose} wants {why}" if verdict is Verdict.UNCLEAR else "")
    return (Verdict.UNCLEAR, unclear) if unclear else (Verdict.FITS, "")


def _selected(selector: Selector, seen: Seen) -> tuple[Verdict, str]:
    """Return whether a device is selected; if not, by which part of the expression, and what the device has instead."""
    if selector.cel is None:
        return Verdict.UNCLEAR, "something in a form that is not known here"
    text = " ".join(selector.cel.expression.split())
    try:
        whole = parse(selector.cel.expression)
        if whole.holds(seen):
            return Verdict.FITS, ""
    except NotJudgedError:
        return Verdict.UNCLEAR, f"`{text}`, which is not judged here"
    except NotThereError as error:
        return Verdict.OTHER, f"`{text}`, and it has no {error}: the scheduler gives up there, for the whole claim"
    for part in whole.all_of:
        try:
            if not part.holds(seen):
                whole = part
                break
        except (NotJudgedError, NotThereError):
            continue
    told = seen.told(whole)
    return Verdict.OTHER, f"`{' '.join(whole.text.split())}`{f', and {told}' if told else ''}"


def _obstacles(request: ExactRequest, device: Published, pools: Pools) -> Iterator[str]:
    """Yield why a device of the right kind cannot be given now."""
    if not request.admin_access:
        yield from _held(request, device, pools)
    for taint in device.device.taints:
        known = Taint(key=taint.key, value=taint.value, effect=taint.effect)
        if taint.effect in _KEEPS_OFF and not is_tolerated(known, request.tolerations):
            yield f"taint {taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect} is not tolerated"


def _held(request: ExactRequest, device: Published, pools: Pools) -> Iterator[str]:
    holders = pools.holders.get(device.key, ())
    if holders and not device.device.allow_multiple_allocations:
        yield f"held by {few(holders, _HOLDERS)}"
        return
    for name, capacity in device.device.capacity.items():
        if lacking := _short(name, capacity, request, device, pools):
            yield lacking
    for name in request.capacity.requests:
        if _own(name, device.driver) not in {_own(each, device.driver) for each in device.device.capacity}:
            yield f"it has no capacity {name}"
    for each in device.device.consumes_counters:
        key = device.set_key(each.counter_set)
        for name, counter in each.counters.items():
            left = pools.left.get(key, {}).get(name, _NOTHING)
            if left < (needed := _number(counter.value)):
                by = f", by {few(pools.drawing[key], _HOLDERS)}" if key in pools.drawing else ""
                yield f"counter {name} of {each.counter_set} has {_shown(left)} left{by}, and it takes {_shown(needed)}"


def _short(name: str, capacity: Capacity, request: ExactRequest, device: Published, pools: Pools) -> str:
    """Return why there is not enough of a capacity, empty where there is."""
    asked = {_own(each, device.driver): amount for each, amount in request.capacity.requests.items()}
    wanted, has = asked.get(_own(name, device.driver)), _number(capacity.value)
    taken = _NOTHING
    if device.device.allow_multiple_allocations:
        taken = pools.taken.get(device.key, {}).get(name, _NOTHING)
        needed = _consumed(wanted, has, capacity.request_policy)
        if needed is None:
            return f"{wanted} of its {name} is not given to one claim"
    else:
        needed = _NOTHING if wanted is None else _number(wanted)
    if taken + needed <= has:
        return ""
    by = f", by {few(pools.holders[device.key], _HOLDERS)}" if taken else ""
    left = f"{_shown(has - taken)} of its {capacity.value} {name} {'is' if has - taken == 1 else 'are'} left{by}"
    return f"{left}, and {_shown(needed)} {'is' if needed == 1 else 'are'} asked for"


def _consumed(wanted: str | None, has: Fraction, policy: RequestPolicy | None) -> Fraction | None:
    """Return what a claim would take of a shared capacity, rounded up as its policy says; None where it may not."""
    if policy is None:
        return has if wanted is None else _number(wanted)
    amount = _number(policy.default if wanted is None else wanted)
    if policy.valid_values:
        return min((each for each in map(_number, policy.valid_values) if each >= amount), default=None)
    if policy.valid_range is None:
        return amount
    least, step = _number(policy.valid_range.min), _number(policy.valid_range.step)
    amount = max(amount, least)
    if step:
        amount = least + -(-(amount - least) // step) * step
    return None if policy.valid_range.max and amount > _number(policy.valid_range.max) else amount


def _own(name: str, driver: str) -> str:
    """Return a name in full: one without a domain is in the driver's."""
    return name if "/" in name else f"{driver}/{name}"


def _number(quantity: str) -> Fraction:
    return read_quantity(quantity) or _NOTHING


def _shown(amount: Fraction) -> str:
    """Return an amount in the largest unit that has it in whole numbers."""
    for power, unit in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if amount >= 1024**power and amount % 1024**power == 0:
            return f"{amount // 1024**power}{unit}"
    return f"{float(amount):g}"
