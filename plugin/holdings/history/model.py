"""The values of the history: named tuples, as thousands of them are kept. Times are seconds since the epoch (UTC)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from plugin.devices.allocation.preference.choice import Candidate, Preference
    from plugin.kubelet.pod_resources.attribution import PodContainer

MAX_CANDIDATES = 16
MAX_NAMED = 64  # devices of one choice: beyond, those of the candidates alone
MAX_TEXT = 300  # of a reason: what a person reads on one line


class Scored(NamedTuple):
    """Devices that could have been given together, and their score."""

    devices: tuple[str, ...]
    score: int


class Choice(NamedTuple):
    """A preference as it was asked for and answered. `rule` is the name of a `Rule` of `allocation.preference`.

    Candidates are kept packed, as there may be thousands: `3.5:400 0:60` are the devices at positions 3 and 5 of
    `available`, which score 400, and then the first one. The chosen one comes first; `left_off` more were not kept.
    Of many free devices (`free`) only those that are named otherwise are in `available`.
    """

    at: float
    free: int
    available: tuple[str, ...]
    required: tuple[str, ...]
    size: int
    chosen: tuple[str, ...]
    rule: str
    considered: int
    cut_off: str
    candidates: str
    left_off: int

    def scored(self) -> tuple[Scored, ...]:
        """Return the candidates unpacked; raises ValueError where they are none of these devices."""
        return tuple(self._scored(candidate) for candidate in self.candidates.split())

    def _scored(self, candidate: str) -> Scored:
        positions, _, score = candidate.partition(":")
        numbers = [int(one) if one.isdecimal() else MAX_NAMED**2 for one in positions.split(".")]
        if max(numbers) >= len(self.available):
            raise ValueError(f"{candidate[:64]!a} is of no available device")
        return Scored(tuple(self.available[one] for one in numbers), int(score))


def remember_choice(
    preference: Preference, available: Sequence[str], required: Sequence[str], size: int, at: float
) -> Choice:
    """Return what is worth remembering of an answered preference."""
    kept: list[Candidate] = []
    named = dict.fromkeys((*required, *preference.chosen))
    for candidate in preference.candidates[:MAX_CANDIDATES]:
        if kept and len(named) + len(candidate.devices) > 2 * MAX_NAMED:
            break
        kept.append(candidate)
        named.update(dict.fromkeys(candidate.devices))
    ids = sorted(set(available)) if len(available) <= MAX_NAMED else sorted(named)
    positions = {device: position for position, device in enumerate(ids)}
    return Choice(
        at=at,
        free=len(set(available)),
        available=tuple(map(sys.intern, ids)),
        required=tuple(map(sys.intern, required)),
        size=size,
        chosen=tuple(map(sys.intern, preference.chosen)),
        rule=preference.rule.name,
        considered=preference.considered,
        cut_off=clip(preference.cut_off),
        candidates=sys.intern(
            " ".join(
                f"{'.'.join(str(positions[one]) for one in candidate.devices)}:{candidate.score}" for candidate in kept
            )
        ),
        left_off=len(preference.candidates) - len(kept),
    )


class Claim(NamedTuple):
    """A container that the kubelet listed with just these devices.

    `listed_at` is the first time, `gone_at` the first listing without it (None: still there). It is not certain where
    the daemon did not run all the time in between: another plugin may have given the devices to it.
    """

    holder: PodContainer
    listed_at: float
    is_certain: bool = True
    gone_at: float | None = None


class Allocation(NamedTuple):
    """One container's devices of one resource, or why it did not get them (`refused`).

    Numbers grow. Several claims: the kubelet lists the devices more than once. No choice: the kubelet did not ask.
    """

    number: int
    at: float
    resource: str
    devices: tuple[str, ...]
    refused: str = ""
    choice: Choice | None = None
    claims: tuple[Claim, ...] = ()
    is_joinable: bool = True  # False: a container was listed with these devices, and the kubelet did not say until when


class DeviceChange(NamedTuple):
    """One change of a device, or of the whole node (`device` is "").

    `what`: seen, healthy, unhealthy (the state that kubelets are told); opened, closed, verdict (what health says of
    a cause); over share, within share (its memory, by a container that `reason` names); released, resumed (the node).
    """

    at: float
    device: str
    what: str
    cause: str = ""
    kind: str = ""  # the class of the cause, as in node-health
    reason: str = ""


class Place(NamedTuple):
    """Which index a device had last (`index` is a method of tuples)."""

    device: str
    position: int


Event: TypeAlias = "Allocation | DeviceChange | Place"  # an allocation with a known number is its newer state

STATES = frozenset({"seen", "healthy", "unhealthy"})


def clip(text: str) -> str:
    """Return a reason no longer than is kept."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
