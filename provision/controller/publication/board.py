"""Combines what several rollouts say of themselves into what the lease carries: one reader, one fleet."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from provision.rollout.interface.standing import Standing

if TYPE_CHECKING:
    from collections.abc import Iterable


def combine(standings: Iterable[Standing]) -> Standing | None:
    """Return the standing of several rollouts that go on beside one another, or None. Pure."""
    found = sorted(standings, key=lambda each: each.began)
    if len(found) <= 1:
        return found[0] if found else None
    return Standing(
        began=found[0].began,
        time=max(each.time for each in found),
        at_once=sum(each.at_once for each in found),
        soak=max(each.soak for each in found),
        wave_soak=max(each.wave_soak for each in found),
        is_held=any(each.is_held for each in found),
        out=frozenset().union(*(each.out for each in found)),
        waiting={node: reason for each in found for node, reason in each.waiting.items()},
        stop="; ".join(dict.fromkeys(each.stop for each in found if each.stop)),
        waves=tuple(wave for each in found for wave in each.waves),
        domains=tuple(domain for each in found for domain in each.domains),
    )


class Board:
    """How the rollouts of all stacks stand, by stack. May be written and read on several threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._standings: dict[str, Standing] = {}
        self._latest: dict[str, Standing] = {}

    def put(self, stack: str, standing: Standing) -> None:
        """Take how the rollout of a stack stands."""
        titled = tuple(replace(wave, title=f"{stack}: {wave.title}") for wave in standing.waves)
        with self._mutex:
            self._standings[stack] = self._latest[stack] = replace(standing, waves=titled)

    def clear(self, stack: str) -> None:
        """Know that the rollout of a stack has ended."""
        with self._mutex:
            self._standings.pop(stack, None)

    def get(self, stack: str) -> Standing | None:
        """Return how the rollout of a stack stands, or None."""
        with self._mutex:
            return self._standings.get(stack)

    def latest(self, stack: str) -> Standing | None:
        """Return how the rollout of a stack stood last, also after its end: a short one is over before a look."""
        with self._mutex:
            return self._latest.get(stack)

    def combined(self) -> Standing | None:
        """Return how all of them stand together."""
        with self._mutex:
            return combine(self._standings.values())
