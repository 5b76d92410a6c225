"""The lines of the history's file, contract `docs/contracts/node-history`. Pure.

The file is a log: one JSON object on each line, of which the first names the schema. Not here: the file (`store`).
"""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any

from plugin.base.documents import list_of, load, member, members, optional, text, truth, whole
from plugin.holdings.history.model import Allocation, Choice, Claim, DeviceChange, Place
from plugin.kubelet.pod_resources.attribution import PodContainer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from plugin.holdings.history.model import Event

SCHEMA = "grapnel.dev/node-history/v1alpha1"
MAX_BYTES = 16 * 1024 * 1024
_MAX_TEXT = 1024
_MAX_LIST = 4096
_MAX_NUMBER = 2**53
_MAX_TIME = 253402300800  # the year 10000: beyond, it is no date


def _line(value: dict[str, object]) -> str:
    return json.dumps(value, separators=(",", ":")) + "\n"


def render_start() -> str:
    """Return the first line."""
    return _line({"schema": SCHEMA})


def render_events(events: Iterable[Event]) -> Iterator[str]:
    """Return a line for each event, in ASCII."""
    return (_line(_to_json(event)) for event in events)


def _to_json(event: Event) -> dict[str, object]:
    if isinstance(event, Allocation):
        return {"allocation": _allocation_to_json(event)}
    if isinstance(event, DeviceChange):
        return {
            "change": {
                "at": event.at,
                "device": event.device,
                "what": event.what,
                **_given(cause=event.cause, kind=event.kind, reason=event.reason),
            }
        }
    return {"place": {"device": event.device, "index": event.position}}


def _given(**values: object) -> dict[str, object]:
    """Return what says something: a log is long."""
    return {key: value for key, value in values.items() if value}


def _allocation_to_json(one: Allocation) -> dict[str, object]:
    return {
        "number": one.number,
        "at": one.at,
        "resource": one.resource,
        "devices": one.devices,
        **_given(
            refused=one.refused,
            choice=None if one.choice is None else _choice_to_json(one.choice),
            claims=[_claim_to_json(claim) for claim in one.claims],
            notJoinable=not one.is_joinable,
        ),
    }


def _choice_to_json(choice: Choice) -> dict[str, object]:
    """Return devices by position in `available`, which is listed once."""
    positions = {device: position for position, device in enumerate(choice.available)}
    return {
        "at": choice.at,
        "free": choice.free,
        "available": choice.available,
        "required": [positions[one] for one in choice.required],
        "size": choice.size,
        "chosen": [positions[one] for one in choice.chosen],
        "rule": choice.rule,
        "considered": choice.considered,
        "candidates": choice.candidates,
        **_given(cutOff=choice.cut_off, leftOff=choice.left_off),
    }


def _claim_to_json(claim: Claim) -> dict[str, object]:
    holder = claim.holder
    return {
        "namespace": holder.namespace,
        "pod": holder.pod,
        "container": holder.container,
        "listedAt": claim.listed_at,
        "goneAt": claim.gone_at,
        "certain": claim.is_certain,
    }


def parse_history(content: bytes) -> list[Event]:
    """Return what a file says.

    A last line without its end is what a crash in the middle of writing leaves, and counts as not written. Raises
    ValueError for anything else that this version does not understand.
    """
    if len(content) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES} bytes")
    lines = content[: content.rfind(b"\n") + 1].split(b"\n")[:-1]
    if content and (not lines or members(load(lines[0], MAX_BYTES)).get("schema") != SCHEMA):
        raise ValueError(f'line 1: schema is not "{SCHEMA}"')
    return list(_parse_lines(lines))


def _parse_lines(lines: list[bytes]) -> Iterator[Event]:
    for number, line in enumerate(lines[1:], 2):
        try:
            event = _parse_event(members(load(line, MAX_BYTES)))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
        if event is not None:
            yield event


def _parse_event(value: dict[str, Any]) -> Event | None:
    """Return the event of a line; None for a kind of a later release."""
    for kind, parse in _KINDS.items():
        if kind in value:
            if not isinstance(value[kind], dict):
                raise ValueError(f"{kind} must be an object")
            return parse(value[kind])
    return None


_text, _whole = text(_MAX_TEXT), whole(end=_MAX_NUMBER)


def _candidates(value: object) -> str:
    if not isinstance(value, str) or len(value) > _MAX_LIST * 16:
        raise ValueError("must be a text")
    return value


def _time(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError("must be seconds since the epoch")
    if not 0 <= value < _MAX_TIME:
        raise ValueError("must be seconds since the epoch")
    return float(value)


def _ids(value: object) -> tuple[str, ...]:
    """Return device ids, each kept once in memory: there are few, in thousands of places."""
    return tuple(map(sys.intern, list_of(_text, _MAX_LIST)(value)))


def _parse_change(value: dict[str, Any]) -> DeviceChange:
    return DeviceChange(
        at=member(value, "at", _time),
        device=member(value, "device", _text),
        what=member(value, "what", _text),
        cause=member(value, "cause", _text, ""),
        kind=member(value, "kind", _text, ""),
        reason=member(value, "reason", _text, ""),
    )


def _parse_place(value: dict[str, Any]) -> Place:
    return Place(member(value, "device", _text), member(value, "index", _whole))


def _parse_allocation(value: dict[str, Any]) -> Allocation:
    return Allocation(
        number=member(value, "number", _whole),
        at=member(value, "at", _time),
        resource=sys.intern(member(value, "resource", _text)),
        devices=member(value, "devices", _ids),
        refused=member(value, "refused", _text, ""),
        choice=member(value, "choice", _parse_choice, None),
        claims=member(value, "claims", _parse_claims, ()),
        is_joinable=not member(value, "notJoinable", truth, default=False),
    )


def _parse_choice(value: object) -> Choice:
    available = member(value, "available", _ids)

    def devices(positions: object) -> tuple[str, ...]:
        numbers = list_of(_whole, _MAX_LIST)(positions)
        if any(one >= len(available) for one in numbers):
            raise ValueError("is of no available device")
        return tuple(available[one] for one in numbers)

    choice = Choice(
        at=member(value, "at", _time),
        free=member(value, "free", _whole),
        available=available,
        required=member(value, "required", devices),
        size=member(value, "size", _whole),
        chosen=member(value, "chosen", devices),
        rule=member(value, "rule", _text),
        considered=member(value, "considered", _whole),
        cut_off=member(value, "cutOff", _text, ""),
        candidates=member(value, "candidates", _candidates),
        left_off=member(value, "leftOff", _whole, 0),
    )
    try:
        choice.scored()
    except ValueError as error:
        raise ValueError(f"candidates: {error}") from error
    return choice


def _parse_claims(value: object) -> tuple[Claim, ...]:
    return list_of(_parse_claim, _MAX_LIST)(value)


def _parse_claim(value: object) -> Claim:
    return Claim(
        PodContainer(member(value, "namespace", _text), member(value, "pod", _text), member(value, "container", _text)),
        listed_at=member(value, "listedAt", _time),
        is_certain=member(value, "certain", truth),
        gone_at=member(value, "goneAt", optional(_time)),
    )


_KINDS: dict[str, Callable[[dict[str, Any]], Event]] = {
    "allocation": _parse_allocation,
    "change": _parse_change,
    "place": _parse_place,
}
