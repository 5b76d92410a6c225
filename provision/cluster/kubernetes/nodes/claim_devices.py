"""Says which requests of a claim no device fits, node by node, and whether those that fit go together. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.cluster.kubernetes.nodes.device_fit import Verdict, judge
from provision.cluster.kubernetes.nodes.pod_reasons import GROUPS_SHOWN, Said, named
from provision.declaration.spec.text.excerpt import few

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from provision.cluster.kubernetes.nodes.device_fit import Judgement, Key, Pools, Published
    from provision.cluster.kubernetes.objects.claims import (
        Constraint,
        DeviceClass,
        DeviceRequest,
        ExactRequest,
        ResourceClaim,
    )

_NAMES: Final = 3


@dataclass(frozen=True, slots=True)
class _Here:
    """What one node has for one request: devices that fit, how many are needed, and what keeps the others off."""

    needed: int
    fitting: tuple[Published, ...]
    unclear: int
    why: tuple[tuple[str, tuple[str, ...]], ...]  # reasons, and the names of devices

    @property
    def is_enough(self) -> bool:
        return len(self.fitting) >= self.needed


@dataclass(frozen=True, slots=True)
class _Found:
    """Which way of a request a node has devices for."""

    request: str
    way: str
    here: _Here


def ways_of(request: DeviceRequest) -> list[tuple[str, ExactRequest]]:
    """Return what would do for a request, by the names that allocations have: alternatives in their order."""
    if request.exactly is not None:
        return [(request.name, request.exactly)]
    return [(f"{request.name}/{each.name}", each) for each in request.first_available]


def devices_for(claim: ResourceClaim, classes: Mapping[str, DeviceClass | None], pools: Pools) -> Iterator[Said]:
    """Yield what is in the way on each node. Of ``classes`` None is not there, and those that are missing not known."""
    enough: dict[str, list[_Found]] = defaultdict(list)
    for request in claim.spec.devices.requests:
        first: dict[str, _Found] = {}
        for name, way in ways_of(request):
            of_class = classes.get(way.device_class_name)
            if of_class is None and way.device_class_name in classes:
                continue
            places = _places(way, judge(way, of_class, pools))
            yield from _request(name, places)
            for node, here in places.items():
                if here.is_enough:
                    first.setdefault(node, _Found(request.name, name, here))
        for node, one in first.items():
            enough[node].append(one)
    every = len(claim.spec.devices.requests)
    together = {node: found for node, found in enough.items() if len(found) == every}
    if every and not together and len({each.request for found in enough.values() for each in found}) == every:
        yield Said("node", "none has devices for all requests at the same time")
    groups: dict[str, list[str]] = defaultdict(list)
    for node, found in together.items():
        groups[_clash(claim.spec.devices.constraints, found)].append(node)
    for clash, nodes in sorted(groups.items()):
        yield Said(
            "node", f"{named(sorted(nodes))}: {clash or 'devices fit: nothing that is looked at here is in the way'}"
        )


def _places(way: ExactRequest, judgements: Iterable[Judgement]) -> dict[str, _Here]:
    """Return how each node stands; those that have nothing of the class are left out where any has."""
    judged = list(judgements)
    nodes: dict[str, list[Judgement]] = defaultdict(list)
    is_any = any(each.verdict is not Verdict.FOREIGN for each in judged)
    for each in judged:
        if each.verdict is not Verdict.FOREIGN or not is_any:
            nodes[each.device.node].append(each)
    found = {}
    for node, those in nodes.items():
        of_kind = sum(each.verdict.is_of_kind for each in those)
        why: dict[str, list[str]] = defaultdict(list)
        for each in those:
            if each.verdict is not Verdict.FITS:
                why[each.why].append(each.device.device.name)
        found[node] = _Here(
            max(1, of_kind if way.allocation_mode == "All" else way.count),
            tuple(each.device for each in those if each.verdict is Verdict.FITS),
            sum(each.verdict is Verdict.UNCLEAR for each in those),
            tuple((reason, tuple(names)) for reason, names in why.items()),
        )
    return found


def _request(name: str, places: Mapping[str, _Here]) -> Iterator[Said]:
    """Yield why no node has enough for a request, nothing where any has."""
    if not places:
        yield Said(
            "request", f"{name}: no node publishes any device", "`kubectl get resourceslices` shows what there is"
        )
    if not places or any(each.is_enough for each in places.values()):
        return
    unclear = any(len(each.fitting) + each.unclear >= each.needed for each in places.values())
    yield Said("request", f"{name}: {'no node is known to have' if unclear else 'no node has'} enough devices that fit")
    groups: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for node, here in places.items():
        counts = tuple((why, len(names)) for why, names in here.why)
        groups[here.needed, len(here.fitting), counts].append(node)
    ranked = sorted(groups.values(), key=lambda nodes: len(places[nodes[0]].why))
    for nodes in ranked[:GROUPS_SHOWN]:
        here = places[nodes[0]]
        several = [f"{len(here.fitting)} of {here.needed} that are needed"] if here.needed > 1 else []
        why = [*several, *(f"{_devices(names, len(nodes))}: {each}" for each, names in here.why)]
        yield Said("node", f"{named(sorted(nodes))}: {'; '.join(why)}")
    if rest := sum(map(len, ranked[GROUPS_SHOWN:])):
        yield Said("node", f"and {rest} more, for other reasons")


def _devices(names: Sequence[str], nodes: int) -> str:
    if nodes == 1 and len(names) <= _NAMES:
        return ", ".join(names)
    return f"{len(names)} device{'s' if len(names) > 1 else ''}{' each' if nodes > 1 else ''}"


def _clash(constraints: Sequence[Constraint], found: Sequence[_Found]) -> str:
    """Return why what fits each request of a claim does not go together, empty where that is not seen."""
    if whole := _lacking(found, {one.key for each in found for one in each.here.fitting}):
        return f"all requests together need {whole[0]} devices, and {whole[1]} fit"
    for each in constraints:
        of = [one for one in found if not each.requests or {one.request, one.way} & set(each.requests)]
        name = each.match_attribute or each.distinct_attribute
        if not all(one.is_known(name) for request in of for one in request.here.fitting):
            continue
        values = {one.key: one.attribute(name) for request in of for one in request.here.fitting}
        if each.match_attribute:
            alike = [{key for key in values if values[key] == value} for value in set(values.values()) - {None}]
            if all(_lacking(of, keys) for keys in alike):
                return f"no devices that fit have the same {name}{_valued(values)}"
        elif each.distinct_attribute:
            needed = sum(one.here.needed for one in of)
            if len(set(values.values()) - {None}) < needed:
                return f"{needed} devices with a {name} each are needed{_valued(values)}"
    return ""


def _lacking(found: Sequence[_Found], may: set[Key]) -> tuple[int, int] | None:
    """Return how many devices are needed of those that may be had, and how many there are; None where they suffice."""
    most: set[Key] = set()
    for each in found:
        here = {one.key for one in each.here.fitting if one.key in may}
        if len(here) < each.here.needed:
            return each.here.needed, len(here)
        most |= here
    needed = sum(each.here.needed for each in found)
    shared = any(one.device.allow_multiple_allocations for each in found for one in each.here.fitting)
    return None if shared or needed <= len(most) else (needed, len(most))


def _valued(values: Mapping[Key, str | None]) -> str:
    told = [f"{key[-1]}: {value or 'none'}" for key, value in values.items()]
    return f" ({few(told, _NAMES)})" if told else ""
