"""Encodes and decodes how a rollout stands, for an annotation of the lease or a file: JSON of bounded size.

It is written by the engine that has the lease and read by whoever may read it; the contract is
``docs/contracts/rollout-progress``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

from provision.base import strict_json
from provision.base.strict_json import MalformedError
from provision.cluster.errors import RecordError
from provision.cluster.record import Moment
from provision.rollout.interface.standing import Members, Standing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SCHEMA: Final = "grapnel.dev/rollout-progress/v1alpha1"
MAX_BYTES: Final = 128 << 10  # half of what all annotations of an object may have together
MAX_REASONS: Final = 100
MAX_REASON_BYTES: Final = 400
MAX_NAMES_BYTES: Final = 32 << 10
_MAX_NODES: Final = 100_000
_GROUP_BYTES: Final = 24  # the keys of a wave or a domain
_OTHERS: Final = "for other reasons"

Count = Annotated[int, msgspec.Meta(ge=0, le=_MAX_NODES)]


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that wait for the same reason. ``nodes`` may name fewer than ``count``."""

    reason: str
    count: Count
    nodes: list[str] = []


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A wave or a domain. ``nodes`` may name fewer than there are."""

    title: str
    nodes: list[str] = []


class ProgressDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """How a rollout stands. Unknown keys are ignored: a newer grapnel may say more."""

    schema: Literal["grapnel.dev/rollout-progress/v1alpha1"]
    began: Moment
    time: Moment
    at_once: Count
    soak_seconds: Annotated[int, msgspec.Meta(ge=0, le=31_536_000)] = 0
    wave_soak_seconds: Annotated[int, msgspec.Meta(ge=0, le=31_536_000)] = 0
    held: bool = False
    out: list[str] = []
    waiting: list[Waiting] = []
    stop: str = ""
    waves: list[Group] = []
    domains: list[Group] = []


def encode_progress(standing: Standing, names: Mapping[str, str] | None = None) -> str:
    """Return it as one line of JSON, at most ``MAX_BYTES`` long; ``names`` are what nodes are called there.

    Reasons of few nodes come first: they say more. Nodes beyond the limits are counted with their reason.
    """
    called = {name: _text(node) for name, node in (names or {}).items()}
    budget = _Budget()
    out = budget.spans(called.get(name) or _text(name) for name in standing.out)
    document = ProgressDocument(
        schema=SCHEMA,
        began=standing.began,
        time=standing.time,
        at_once=standing.at_once,
        soak_seconds=int(standing.soak.total_seconds()),
        wave_soak_seconds=int(standing.wave_soak.total_seconds()),
        held=standing.is_held,
        out=out,
        waiting=_waiting(standing, called, budget),
        stop=_cut(standing.stop),
        **_places(standing, called),
    )
    return msgspec.json.encode(document).decode()


def decode_progress(text: str | bytes) -> Standing:
    """Return what was written; raises RecordError, which says what is wrong with it."""
    try:
        data = text if isinstance(text, bytes) else text.encode()
        document = strict_json.decode(data, ProgressDocument, limit_bytes=MAX_BYTES)
    except (MalformedError, UnicodeEncodeError) as error:
        raise RecordError(str(error)) from error
    waiting: dict[str, str] = {}
    unnamed, room = [], _MAX_NODES
    for group in document.waiting:
        named = list(expand(group.nodes, room))
        room -= len(named)
        waiting |= dict.fromkeys(named, group.reason)
        if group.count > len(named):
            unnamed.append((group.reason, group.count - len(named)))
    return Standing(
        began=document.began,
        time=document.time,
        at_once=document.at_once,
        soak=timedelta(seconds=document.soak_seconds),
        wave_soak=timedelta(seconds=document.wave_soak_seconds),
        is_held=document.held,
        out=frozenset(expand(document.out, _MAX_NODES)),
        waiting=waiting,
        stop=document.stop,
        unnamed=tuple(unnamed),
        waves=tuple(_members(document.waves)),
        domains=tuple(_members(document.domains)),
    )


class _Budget:
    """How many bytes of names there is still room for."""

    def __init__(self) -> None:
        self._left = MAX_NAMES_BYTES

    def take(self, text: str) -> bool:
        """Tell whether there is room for a title."""
        self._left -= len(msgspec.json.encode(text)) + _GROUP_BYTES
        return self._left >= 0

    def spans(self, names: Iterable[str]) -> list[str]:
        """Return as many of the names as there is room for."""
        kept = []
        for span in collapse(names):
            self._left -= len(msgspec.json.encode(span)) + 1
            if self._left < 0:
                break
            kept.append(span)
        return kept


def _places(standing: Standing, called: Mapping[str, str]) -> dict[str, list[Group]]:
    """Return waves and domains as far as there is room, waves first: there are few of them."""
    budget = _Budget()
    found = {}
    for key, groups in (("waves", standing.waves), ("domains", standing.domains)):
        titled = [(_cut(each.title), each.nodes) for each in groups]
        found[key] = [
            Group(title=title, nodes=budget.spans(called.get(name) or _text(name) for name in nodes))
            for title, nodes in titled
            if budget.take(title)
        ]
    return found


def _members(groups: Iterable[Group]) -> Iterator[Members]:
    room = _MAX_NODES
    for group in groups:
        nodes = tuple(expand(group.nodes, room))
        room -= len(nodes)
        yield Members(group.title, nodes)


def _waiting(standing: Standing, called: Mapping[str, str], budget: _Budget) -> list[Waiting]:
    groups: dict[str, list[str]] = defaultdict(list)
    for name, reason in standing.waiting.items():
        groups[_cut(reason)].append(called.get(name) or _text(name))
    ranked = sorted(groups.items(), key=lambda entry: len(entry[1]))
    kept, rest = (ranked, []) if len(ranked) <= MAX_REASONS else (ranked[-MAX_REASONS:], ranked[:-MAX_REASONS])
    found = [Waiting(reason=reason, count=len(nodes), nodes=budget.spans(nodes)) for reason, nodes in kept]
    others = sum(len(nodes) for _, nodes in rest)
    return [*found, Waiting(reason=_OTHERS, count=others)] if others else found


def _text(text: str) -> str:
    """Return it with whatever is no UTF-8 replaced: programs may print any bytes."""
    return text.encode(errors="replace").decode()


def _cut(text: str) -> str:
    """Return a text that is JSON within the limit, escapes included."""
    shown = _text(text[: MAX_REASON_BYTES + 1])
    while len(msgspec.json.encode(shown)) > MAX_REASON_BYTES:
        shown = shown[: max(1, len(shown) * 9 // 10)].removesuffix("…") + "…"
    return shown


# Writes many node names in few words: ``gpu001..gpu040`` for names that are counted up.

_LAST_NUMBER: Final = re.compile(r"(.*?)([0-9]{1,9})([^0-9]*)", re.DOTALL)
_BETWEEN: Final = ".."
_LEAST: Final = 3  # names in a row that are worth a span


def collapse(names: Iterable[str]) -> list[str]:
    """Return the names in order, those that follow one another as one span."""
    runs: list[list[str]] = []
    for name in sorted(names, key=_key):
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    return [word for run in runs for word in _words(run)]


def expand(spans: Iterable[str], limit: int) -> Iterator[str]:
    """Yield the names, at most ``limit``; what is not a valid span counts as a name."""
    for span in spans:
        for name in _names(span, limit):
            if limit <= 0:
                return
            limit -= 1
            yield name


def _words(run: list[str]) -> list[str]:
    return [f"{run[0]}{_BETWEEN}{run[-1]}"] if len(run) >= _LEAST else run


def _names(span: str, limit: int) -> Iterator[str]:
    first, _, last = span.partition(_BETWEEN)
    (head, low, tail), (end_head, high, end_tail) = _parts(first), _parts(last)
    if not (low and high) or (head, tail) != (end_head, end_tail) or int(low) > int(high):
        yield span
        return
    for number in range(int(low), min(int(high), int(low) + limit) + 1):
        yield f"{head}{number:0{len(low)}}{tail}"


def _parts(name: str) -> tuple[str, str, str]:
    found = _LAST_NUMBER.fullmatch(name)
    return (found[1], found[2], found[3]) if found else (name, "", "")


def _key(name: str) -> tuple[str, str, int, str]:
    head, number, tail = _parts(name)
    return head, tail, int(number or -1), name


def _follows(before: str, name: str) -> bool:
    head, number, tail = _parts(before)
    return bool(number) and name == f"{head}{int(number) + 1:0{len(number)}}{tail}"
