"""Keeps what happened in a simulated roll-out: each node's way, and what was waited for."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from provision.rollout.interface.progress import PhaseEntered

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from provision.rollout.interface.progress import RolloutProgress
    from provision.rollout.interface.standing import Standing
    from provision.rollout.model import Phase
    from provision.rollout.simulate.world import VirtualTime

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)? UTC")
_MORE: Final = re.compile(r"(, a node[^,]*)+|( and \d+ more)")
_PODS: Final = re.compile(r"^pod .* still on the node$", re.DOTALL)
_WHERE: Final = re.compile(r"^(waits for (a node|wave [^:]*)): .*$")  # which node, and how far it is
_LIMITS: Final = (  # what a reason has in common for all nodes, with the key that people may change
    (re.compile(r"^waits for a node$"), "others are changed first: rollout.maxParallel"),
    (re.compile(r"^(\d+ of \d+ nodes may be unavailable): .*$"), r"\1: rollout.maxUnavailable"),
    (re.compile(r"^soaks until .*$"), "a node that was just changed soaks: rollout.soakMinutes"),
    (re.compile(r"^(wave .*) soaks until .*$"), r"\1 soaks: its soakMinutes in rollout.waves"),
    (re.compile(r"^(.* of zone .* may be unavailable), and .*$"), r"\1: rollout.zones.maxUnavailable"),
    (re.compile(r"^waits for its window, which opens .*$"), "waits for its window to open: rollout.windows"),
    (
        re.compile(r"^waits until .*, because of a blackout(.*)$"),
        r"waits for the end of a blackout\1: rollout.blackouts",
    ),
)
_WORD: Final = re.compile(r"[\w.-]+")


@dataclass(frozen=True, slots=True)
class Entry:
    """A node enters a phase, so many seconds after the roll-out began; ``reason`` belongs to a failure."""

    at_s: float
    node: str
    phase: Phase
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlay:
    """A node's way: when it left service and came back (None: it did not), and how it ended.

    ``reason`` is why it failed, or why one that was not touched was not.
    """

    name: str
    wave: int | None
    out_s: float | None = None
    back_s: float | None = None
    ending: Phase | None = None
    reason: str = ""

    @property
    def was_out_s(self) -> float | None:
        """How long it was out of service; None where it never was, or has not come back."""
        return None if self.out_s is None or self.back_s is None else self.back_s - self.out_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Playback:
    """One simulated roll-out. ``waits`` are node-seconds by what was waited for, ``stop`` why it did not go on.

    ``most_out`` nodes were worked at together, at most; ``turns`` is how often the engine decided.
    """

    seed: int
    took_s: float
    nodes: tuple[NodePlay, ...]
    entries: tuple[Entry, ...]
    waves: tuple[str, ...] = ()
    waits: Mapping[str, float] = field(default_factory=dict)
    stop: str = ""
    most_out: int = 0
    turns: int = 0


class Recorder:
    """Writes down what an engine tells."""

    def __init__(self, time: VirtualTime, nodes: Collection[str]) -> None:
        self._time, self._names = time, frozenset(nodes)
        self.entries: list[Entry] = []
        self.most_out = self.turns = 0
        self._over: set[str] = set()
        self._waits: Counter[str] = Counter()
        self._counted: Counter[str] = Counter()
        self._since_s = 0.0

    def observe(self, progress: RolloutProgress) -> None:
        """Keep what is about phases."""
        if isinstance(progress, PhaseEntered):
            self.entries.append(Entry(self._time.now_s, progress.node, progress.phase, progress.reason))
            (self._over.add if progress.phase.is_over else self._over.discard)(progress.node)

    def published(self, standing: Standing) -> None:
        """Count what nodes wait for from now on."""
        self.turns += 1
        self.most_out = max(self.most_out, len(standing.out))
        self._pass()
        self._counted = Counter(standing.waiting.values())

    @property
    def over(self) -> int:
        """How many nodes have come to an end so far."""
        return len(self._over)

    @property
    def still_s(self) -> float:
        """For how long nothing has happened to any node."""
        return self._time.now_s - (self.entries[-1].at_s if self.entries else 0.0)

    def most_waited(self) -> str:
        """Return what most nodes wait for now, empty where none does."""
        kinds = Counter({kind_of(reason, self._names): nodes for reason, nodes in self._counted.items() if reason})
        return next((kind for kind, _nodes in kinds.most_common(1)), "")

    def _pass(self) -> None:
        seconds, self._since_s = self._time.now_s - self._since_s, self._time.now_s
        if seconds:
            for reason, nodes in self._counted.items():
                self._waits[reason] += nodes * seconds  # type: ignore[assignment]  # node-seconds are no whole numbers

    def waits(self) -> dict[str, float]:
        """Return node-seconds by the kind of what was waited for, the longest first."""
        self._pass()
        kinds: Counter[str] = Counter()
        for reason, seconds in self._waits.items():
            kinds[kind_of(reason, self._names)] += seconds
        return dict(kinds.most_common())


def kind_of(reason: str, names: Collection[str]) -> str:
    """Return a reason without what it says of single nodes, pods and moments."""
    text = _TIME.sub("some time", _PODS.sub("pods still on the node", reason))
    text = _WORD.sub(lambda word: "a node" if word[0] in names else word[0], text)
    text = _WHERE.sub(r"\1", _MORE.sub("", text))
    for said, limit in _LIMITS:
        text = said.sub(limit, text)
    return text


def plays_of(
    entries: Collection[Entry], waves: Mapping[str, int | None], waiting: Mapping[str, str]
) -> tuple[NodePlay, ...]:
    """Return the way of each node; ``waves`` has all of them, ``waiting`` why some had none."""
    found: dict[str, list[Entry]] = {name: [] for name in waves}
    for entry in entries:
        found[entry.node].append(entry)
    return tuple(_play(name, waves[name], way, waiting.get(name, "")) for name, way in found.items())


def _play(name: str, wave: int | None, way: Collection[Entry], waits: str) -> NodePlay:
    if not way:
        return NodePlay(name=name, wave=wave, reason=waits)
    first, last = next(iter(way)), list(way)[-1]
    is_back = last.phase.is_in_service
    return NodePlay(
        name=name,
        wave=wave,
        out_s=first.at_s,
        back_s=last.at_s if is_back else None,
        ending=last.phase,
        reason=last.reason,
    )
