"""Decides what of a rollout's progress is news for people elsewhere, and says it in a sentence. Pure.

The contract of what is sent is ``docs/contracts/rollout-notification``.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from provision.base.printable import printable
from provision.rollout.interface.progress import PhaseEntered
from provision.rollout.model import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from provision.rollout.interface.progress import RolloutProgress
    from provision.rollout.interface.standing import Standing

SCHEMA: Final = "grapnel.dev/rollout-notification/v1alpha1"
MAX_TEXT: Final = 1000
# What chat services read in a text that is posted to them: links with another text, people who are called. Reasons are
# worded by nodes, of which one may belong to somebody else.
_MARKUP: Final = str.maketrans({"<": "\u2039", ">": "\u203a"})
_LINK: Final = re.compile(r"\](?=[\[(])")
_CALL: Final = re.compile(r"@(?=(?:all|channel|here|everyone)\b)|(?<!\w)@(?=\w)", re.IGNORECASE)

Type = Literal[
    "rollout.started",
    "rollout.stopped",
    "rollout.ended",
    "wave.started",
    "node.started",
    "node.done",
    "node.failed",
    "node.returned",
]


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What a receiver is sent. ``text`` is one sentence for people, which chat services show as it is."""

    schema: Literal["grapnel.dev/rollout-notification/v1alpha1"] = SCHEMA
    type: Type
    timestamp: str
    text: str
    data: Data


class Data(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of what it is told. ``place`` is where node state lives, ``rollout`` the same in all messages of a run."""

    place: str
    rollout: str
    node: str = ""
    wave: str = ""
    phase: str = ""
    reason: str = ""
    target: str = ""
    nodes: dict[str, int] = {}


@dataclass(slots=True)
class Newsroom:
    """Hears everything that an engine says, and returns what of it is news.

    ``place`` and ``rollout`` are in every message.
    """

    place: str
    rollout: str
    waves: dict[str, str] = field(default_factory=dict)
    phases: dict[str, Phase] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    waiting: int = 0
    stop: str = ""
    is_started: bool = False
    early: list[tuple[PhaseEntered, datetime]] = field(default_factory=list)

    def hear(self, progress: RolloutProgress, now: datetime) -> Iterator[Message]:
        """Yield what is news about a step of the rollout."""
        if not isinstance(progress, PhaseEntered):
            return
        if not self.is_started:  # the first nodes begin before it is told how the rollout stands
            self.early.append((progress, now))
            return
        node, phase = progress.node, progress.phase
        before, self.phases[node] = self.phases.get(node), phase
        wave = self.waves.get(node, "")
        if wave and wave not in self.begun and not phase.is_over:
            self.begun.add(wave)
            yield self._message("wave.started", now, f"{wave} begins", wave=wave)
        shown = printable(node)
        if phase is Phase.DONE:
            yield self._message("node.done", now, f"{shown} is in service again", node=node, wave=wave)
        elif phase.value == "returned":
            what = f"{shown} is in service again with its former driver: {progress.reason}"
            yield self._message("node.returned", now, what, node=node, wave=wave, reason=progress.reason)
        elif phase.is_over:
            where = "" if before is None or before.is_over else before.value
            what = f"{shown} has failed{f' in {where}' if where else ''}: {progress.reason}"
            yield self._message("node.failed", now, what, node=node, wave=wave, phase=where, reason=progress.reason)
        elif before is None or before.is_over:
            yield self._message("node.started", now, f"{shown} is taken out of service", node=node, wave=wave)

    def see(self, standing: Standing, now: datetime) -> Iterator[Message]:
        """Yield what is news about how the rollout stands."""
        self.waiting = sum(name not in standing.out for name in standing.waiting)
        back = [name for name, phase in self.phases.items() if not phase.is_over and name not in standing.out]
        for name in back:  # it is back in service as it was, for which there is no phase
            del self.phases[name]
        if not self.is_started:
            self.is_started = True
            self.waves = {name: wave.title for wave in standing.waves for name in wave.nodes}
            count = self.waiting + len(standing.out)
            yield self._message("rollout.started", now, f"a rollout of {_nodes(count)} has begun", nodes=self._counts())
            for progress, then in self.early:
                yield from self.hear(progress, then)
        if standing.stop and standing.stop != self.stop:
            self.stop = standing.stop
            said = f"no further node begins: {standing.stop}"
            yield self._message("rollout.stopped", now, said, reason=standing.stop, nodes=self._counts())

    def end(self, now: datetime) -> Iterator[Message]:
        """Yield what is news at the end; nothing where nothing had begun."""
        if not self.is_started:
            return
        counts = self._counts()
        said = ", ".join(f"{number} {what}" for what, number in counts.items() if number) or "nothing was changed"
        yield self._message("rollout.ended", now, f"the rollout has ended: {said}", reason=self.stop, nodes=counts)

    def _counts(self) -> dict[str, int]:
        """Return how many nodes are done, have failed, are out of service, and wait."""
        found = Counter(_count(phase) for phase in self.phases.values())
        return {"done": found["done"], "failed": found["failed"], "out": found["out"], "waiting": self.waiting}

    def _message(self, kind: Type, now: datetime, text: str, **data: Any) -> Message:
        data |= {key: printable(data[key]) for key in ("node", "wave", "reason") if key in data}
        whole = printable(unmarked(f"{self.place}: {text}"), limit=MAX_TEXT)
        told = Data(place=printable(self.place), rollout=self.rollout, **data)
        return Message(type=kind, timestamp=f"{now:%Y-%m-%dT%H:%M:%S.%fZ}", text=whole, data=told)


def unmarked(text: str) -> str:
    """Return a text in which chat services find no link with another text and nobody to call."""
    return _CALL.sub("@ ", _LINK.sub("] ", text.translate(_MARKUP)))


def _count(phase: Phase) -> str:
    if phase is Phase.DONE:
        return "done"
    return "failed" if phase.is_over else "out"


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def encode(message: Message) -> bytes:
    """Return a message as it is sent and signed."""
    return msgspec.json.encode(message)


def headers_of(ident: str, timestamp: int, signature: str) -> Mapping[str, str]:
    """Return the headers of Standard Webhooks."""
    return {"webhook-id": ident, "webhook-timestamp": str(timestamp), "webhook-signature": signature}
