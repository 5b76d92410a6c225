"""Keeps what happened, bounded, and joins allocations with the pods that the kubelet lists. Pure.

The kubelet's Allocate names no pod. An allocation is a container's where the kubelet lists, after it, a container with
just its devices under its resource, and no other was given any of them in between. Nothing else is ever concluded.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from plugin.holdings.history.model import STATES, Allocation, Choice, Claim, DeviceChange, Place, clip

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from plugin.devices.health.model import Transition
    from plugin.devices.inventory import Inventory
    from plugin.holdings.history.model import Event
    from plugin.kubelet.pod_resources.attribution import DeviceAssignment, PodContainer

MAX_ALLOCATIONS = 1000
MAX_CHANGES = 100  # of each device, and of the node
MAX_DEVICES = 1024
_MAX_ID = 63  # the device plugin API's limit
_MAX_FRESH = 2000  # events that wait to be written; beyond, the whole file is rewritten
_MAX_SHARED = 256
_CHOICE_S = 10.0  # a kubelet that asks allocates at once


class Ledger:
    """The memory. `since` is the start of this process: what is older was read from a file."""

    def __init__(self, since: float) -> None:
        self.allocations: dict[int, Allocation] = {}
        self.changes: dict[str, list[DeviceChange]] = {}
        self.indices: dict[str, int] = {}
        self._since = since
        self._choices: dict[str, list[Choice]] = {}  # resource → what was preferred and not allocated yet
        self._tuples: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._open: dict[int, Allocation] = {}  # given away, and no container seen with them yet
        self._claimed: dict[int, Allocation] = {}  # whose container is still listed
        self._fresh: list[Event] | None = []  # None: too many, or the file is not as it should be

    # What the kubelet does

    def preferred(self, resource: str, choice: Choice) -> None:
        """Remember what was preferred until it is allocated, or something else is."""
        choices = self._choices.setdefault(resource, [])
        choices.append(choice._replace(available=self._shared(choice.available)))
        del choices[:-8]

    def _shared(self, devices: tuple[str, ...]) -> tuple[str, ...]:
        """Return an equal tuple that is kept already: on most nodes the same devices are free again and again."""
        if len(self._tuples) > _MAX_SHARED:
            self._tuples.clear()
        return self._tuples.setdefault(devices, devices)

    def allocated(
        self, resource: str, devices: Sequence[str], at: float, *, is_joinable: bool = True, is_sole: bool = True
    ) -> None:
        """Record one container's devices; not joinable: another may still be listed with them from before.

        Not sole: others may have them at the same time, under the same ids.
        """
        one = self._new(resource, devices, at, "")._replace(is_joinable=is_joinable)
        if is_sole:
            self._supersede(one, at)
        if is_joinable:
            self._open[one.number] = one
        self._keep(one)

    def refused(self, resource: str, devices: Sequence[str], at: float, reason: str) -> None:
        """Record that a container did not get devices, and why."""
        self._keep(self._new(resource, devices, at, clip(reason)))

    def _new(self, resource: str, devices: Sequence[str], at: float, refused: str) -> Allocation:
        ids = self._shared(tuple(sys.intern(str(one)[:_MAX_ID]) for one in devices[:MAX_DEVICES]))
        number = next(reversed(self.allocations), 0) + 1
        return Allocation(number, at, sys.intern(resource), ids, refused, self._choice_for(resource, ids, at))

    def _choice_for(self, resource: str, devices: tuple[str, ...], at: float) -> Choice | None:
        """Return what was preferred for this allocation; whatever was asked for before it is not coming any more."""
        choices = self._choices.get(resource, [])
        for position, choice in enumerate(choices):
            fits = choice.size == len(devices) and set(devices) <= set(choice.available)
            if fits and abs(at - choice.at) <= _CHOICE_S:
                del choices[: position + 1]
                return choice
        choices.clear()
        return None

    def _supersede(self, new: Allocation, at: float) -> None:
        """End what the devices were given for before."""
        ids = set(new.devices)
        self._open = {number: one for number, one in self._open.items() if ids.isdisjoint(one.devices)}
        for one in [one for one in self._claimed.values() if not ids.isdisjoint(one.devices)]:
            del self._claimed[one.number]
            self._set_gone(one, at)

    # What the kubelet lists

    @property
    def is_waiting(self) -> bool:
        """Whether a container is still looked for."""
        return bool(self._open)

    def given_since(self, at: float) -> tuple[str, ...]:
        """Return the devices that were given away since a moment, and whose container was not seen so far."""
        return tuple(device for one in self._open.values() if one.at >= at for device in one.devices)

    def listed(self, assignments: Iterable[DeviceAssignment], asked_at: float) -> None:
        """Join what was given away until `asked_at` with what the kubelet lists since.

        A container that is not listed may be listed again: a kubelet that has just started knows of no pods yet.
        """
        holders = _holders(assignments)
        for one in [one for one in self._claimed.values() if one.at <= asked_at]:
            found = holders.get((one.resource, frozenset(one.devices)), ())
            is_there = all(claim.holder in found for claim in one.claims)
            self._claimed[one.number] = self._set_gone(one, None if is_there else asked_at)
        for one in [one for one in self._open.values() if one.at <= asked_at]:
            found = holders.get((one.resource, frozenset(one.devices)), ())
            if found:
                del self._open[one.number]
                claims = tuple(Claim(holder, asked_at, one.at >= self._since) for holder in found)
                self._claimed[one.number] = one._replace(claims=claims)
                self._keep(self._claimed[one.number])

    def _set_gone(self, one: Allocation, at: float | None) -> Allocation:
        """Return it with its containers listed (None) or not listed any more since `at`, or earlier."""
        if all((claim.gone_at is None) == (at is None) for claim in one.claims):
            return one
        one = one._replace(claims=tuple(claim._replace(gone_at=at) for claim in one.claims))
        self._keep(one)
        return one

    def _keep(self, one: Allocation) -> None:
        """Take a new allocation, or the newer state of one that is not forgotten."""
        if one.number in self.allocations or one.number > next(reversed(self.allocations), 0):
            self._put(one)
            self._tell(one)

    def _put(self, one: Allocation) -> None:
        self.allocations[one.number] = one
        if len(self.allocations) > MAX_ALLOCATIONS:
            del self.allocations[next(iter(self.allocations))]

    # What happens to devices

    def observed(self, inventory: Inventory, transitions: Iterable[Transition], at: float) -> None:
        """Record what changed since the last state that is known, also before a restart."""
        closed: dict[str, list[str]] = {}
        for one in transitions:
            if one.uuid:
                reason = clip(one.reason)
                self._change(DeviceChange(at, one.uuid, one.change.value, one.cause, one.kind.word, reason))
                if one.change.value != "opened":
                    closed.setdefault(one.uuid, []).append(f"{one.cause}: {one.reason}")
        for device in inventory.devices:
            uuid = device.gpu.uuid
            if self.indices.get(uuid) != device.gpu.index and len(self.indices) < MAX_DEVICES:
                self.indices[uuid] = device.gpu.index
                self._tell(Place(uuid, device.gpu.index))
            self._follow_state(uuid, device.unhealthy, "; ".join(closed.get(uuid, ())), at)

    def _follow_state(self, uuid: str, unhealthy: str, closed: str, at: float) -> None:
        state = self.state_of(uuid)
        cause = clip(unhealthy.partition(":")[0])
        if unhealthy and (state is None or state.what != "unhealthy" or state.cause != cause):
            self._change(DeviceChange(at, uuid, "unhealthy", cause, "", clip(unhealthy)))
        elif not unhealthy and (state is None or state.what == "unhealthy"):
            self._change(DeviceChange(at, uuid, "seen" if state is None else "healthy", reason=clip(closed)))

    def state_of(self, uuid: str) -> DeviceChange | None:
        """Return the last change of a device's state."""
        return next((one for one in reversed(self.changes.get(uuid, ())) if one.what in STATES), None)

    def happened(self, device: str, what: str, reason: str, at: float) -> None:
        """Record what happened to a device and is no state of it."""
        self._change(DeviceChange(at, device, what, reason=clip(reason)))

    def note(self, what: str, reason: str, at: float) -> None:
        """Record what happened to the whole node, unless that is what happened last."""
        if not self._is_last_of_node(what, clip(reason)):
            self._change(DeviceChange(at, "", what, reason=clip(reason)))

    def _is_last_of_node(self, what: str, reason: str) -> bool:
        node = self.changes.get("", ())
        return any((one.what, one.reason) == (what, reason) for one in node[-1:])

    def _change(self, change: DeviceChange) -> None:
        if change.device not in self.changes and len(self.changes) > MAX_DEVICES:
            return
        self._append(change.device, change)
        self._tell(change)

    def _append(self, device: str, change: DeviceChange) -> None:
        """Forget the oldest beyond the limit; a device's last state stays, however much was found since."""
        changes = self.changes.setdefault(device, [])
        changes.append(change)
        if len(changes) > MAX_CHANGES:
            last = next((one for one in reversed(changes) if one.what in STATES), None)
            changes.remove(next(one for one in changes if one is not last))

    # What is to be written

    def _tell(self, event: Event) -> None:
        if self._fresh is not None:
            self._fresh.append(event)
            if len(self._fresh) > _MAX_FRESH:
                self._fresh = None

    @property
    def has_fresh(self) -> bool:
        """Whether something has not been taken."""
        return self._fresh is None or bool(self._fresh)

    def take_fresh(self) -> list[Event] | None:
        """Return what happened since the last time; None: everything is to be written."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def write_all(self) -> None:
        """Have everything written the next time."""
        self._fresh = None

    def everything(self) -> list[Event]:
        """Return all that is known, oldest first within each kind."""
        places = [Place(uuid, index) for uuid, index in self.indices.items()]
        return [*places, *(one for each in self.changes.values() for one in each), *self.allocations.values()]

    def begin_with(self, events: Iterable[Event]) -> None:
        """Put what was read from the file before what happened since the start; once, and soon after it."""
        own, changes, indices = self.allocations, self.changes, self.indices
        self.allocations, self.changes, self.indices = {}, {}, {}
        for event in events:
            self._replay(event)
        last = next(reversed(self.allocations), 0)
        for number, one in own.items():
            self._put(one._replace(number=last + number))
        for change in (change for some in changes.values() for change in some):
            if change.device or not self._is_last_of_node(change.what, change.reason):
                self._append(change.device, change)
        self.indices.update(indices)
        if own:
            self._fresh = None  # it names numbers that are others now
        self._find_unfinished()

    def _replay(self, event: Event) -> None:
        if isinstance(event, Allocation):
            if event.number in self.allocations or event.number > next(reversed(self.allocations), 0):
                self._put(event)
        elif isinstance(event, DeviceChange):
            self._append(event.device, event)
        elif len(self.indices) < MAX_DEVICES:
            self.indices[event.device] = event.position

    def _find_unfinished(self) -> None:
        """Go on with the last allocation of each device."""
        self._open, self._claimed = {}, {}
        later: set[str] = set()
        for one in reversed(self.allocations.values()):
            if one.refused:
                continue
            if later.isdisjoint(one.devices):
                if one.claims:
                    self._claimed[one.number] = one
                elif one.is_joinable:
                    self._open[one.number] = one
            later.update(one.devices)


def _holders(assignments: Iterable[DeviceAssignment]) -> Mapping[tuple[str, frozenset[str]], tuple[PodContainer, ...]]:
    """Return who has just these devices of a resource; the kubelet may tell one container's in several parts."""
    parts: dict[tuple[PodContainer, str], set[str]] = {}
    for each in assignments:
        parts.setdefault((each.holder, each.resource), set()).update(each.device_ids)
    found: dict[tuple[str, frozenset[str]], list[PodContainer]] = {}
    for (holder, resource), ids in parts.items():
        found.setdefault((resource, frozenset(ids)), []).append(holder)
    return {key: tuple(sorted(holders, key=_name)) for key, holders in found.items()}


def _name(holder: PodContainer) -> tuple[str, str, str]:
    return holder.namespace, holder.pod, holder.container
