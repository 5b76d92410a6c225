"""Plays a scenario with many seeds, and says what the best, the usual and the worst of them are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from statistics import median, quantiles
from typing import TYPE_CHECKING, Final

from provision.rollout.model import Phase
from provision.rollout.simulate.play import play

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from provision.rollout.simulate.playback import NodePlay, Playback
    from provision.rollout.simulate.scenario import Scenario

_ENDINGS: Final = (Phase.DONE, Phase.RETURNED, Phase.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedResult:
    """One seed in figures: how many nodes came to which end, and how long each was out of service in the middle."""

    seed: int
    took_s: float
    done: int
    returned: int
    failed: int
    untouched: int
    out_median_s: float
    out_longest_s: float
    most_out: int
    stop: str

    @property
    def badness(self) -> tuple[int, float]:
        """What makes one worse than another: nodes that were not changed, then time."""
        return (self.returned + self.failed + self.untouched, self.took_s)


def outcome_of(one: Playback) -> SeedResult:
    """Return a playback in figures."""
    ends = [node.ending for node in one.nodes]
    out = [node.was_out_s for node in one.nodes if node.was_out_s is not None]
    counted = {ending: ends.count(ending) for ending in _ENDINGS}
    return SeedResult(
        seed=one.seed,
        took_s=one.took_s,
        done=counted[Phase.DONE],
        returned=counted[Phase.RETURNED],
        failed=counted[Phase.FAILED],
        untouched=len(ends) - sum(counted.values()),
        out_median_s=median(out) if out else 0.0,
        out_longest_s=max(out, default=0.0),
        most_out=one.most_out,
        stop=one.stop,
    )


def play_many(
    scenario: Scenario, seeds: Iterable[int], told: Callable[[int, int, float], None] = lambda _seed, _over, _at_s: None
) -> tuple[Playback, tuple[SeedResult, ...]]:
    """Return what happened with the first seed, and all of them in figures; ``told`` hears of a seed how far it is."""
    played = (play(scenario, seed, partial(told, seed)) for seed in seeds)
    first = next(played)
    return first, (outcome_of(first), *map(outcome_of, played))


def worst_of(outcomes: Sequence[SeedResult]) -> SeedResult:
    """Return the worst case."""
    return max(outcomes, key=lambda one: one.badness)


@dataclass(frozen=True, slots=True, kw_only=True)
class WavePlay:
    """One wave of a playback."""

    title: str
    nodes: int
    began_s: float | None
    ended_s: float | None
    done: int
    failed: int
    out_median_s: float
    out_p95_s: float


def waves_of(one: Playback) -> tuple[WavePlay, ...]:
    """Return the waves in their order; without any, the roll-out as one."""
    groups: list[tuple[str, list[NodePlay]]] = [
        (title, [node for node in one.nodes if node.wave == index]) for index, title in enumerate(one.waves)
    ] or [("all nodes", list(one.nodes))]
    return tuple(_wave(title, nodes) for title, nodes in groups)


def _wave(title: str, nodes: Sequence[NodePlay]) -> WavePlay:
    out = [node.was_out_s for node in nodes if node.was_out_s is not None]
    ends = [node.back_s for node in nodes if node.back_s is not None]
    return WavePlay(
        title=title,
        nodes=len(nodes),
        began_s=min((node.out_s for node in nodes if node.out_s is not None), default=None),
        ended_s=max(ends, default=None),
        done=sum(node.ending is Phase.DONE for node in nodes),
        failed=sum(node.ending in (Phase.FAILED, Phase.RETURNED) for node in nodes),
        out_median_s=median(out) if out else 0.0,
        out_p95_s=quantiles(out, n=20)[-1] if len(out) > 1 else sum(out),
    )
