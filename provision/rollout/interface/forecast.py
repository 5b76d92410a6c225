"""Defines how long a roll-out is expected to take, as values; ``provision.rollout.simulate.foresee`` says it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveForecast:
    """One wave: when its first node leaves service and its last one is done, in seconds from now.

    ``soak_s`` is how long it then has to stay healthy before the next one begins.
    """

    title: str
    nodes: int
    begins_s: float
    ends_s: float
    soak_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What is expected of a roll-out. ``seconds`` is None where a phase was not measured yet.

    ``measured`` nodes have told how long their phases took. ``is_played``: the engine has played it in virtual time;
    otherwise it was reckoned from counts, which know of no window, zone or domain. ``uncounted`` names in words what
    the roll-out may wait for besides.
    """

    seconds: float | None = None
    measured: int = 0
    is_played: bool = False
    waves: tuple[WaveForecast, ...] = ()
    uncounted: tuple[str, ...] = ()
