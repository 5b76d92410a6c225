"""Defines how a rollout stands, as its engine tells those who watch it, and how long it is expected to take."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class Members:
    """The nodes of a wave or of a domain; ``title`` is what people call it."""

    title: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the engine that ``began`` knew at ``time``: what no record of a node has.

    ``at_once`` nodes are out of service together, ``soak`` apart; between the waves that are still to come there is
    ``wave_soak`` in all, and if one ``is_held``, a person is waited for, or a window or a gate. ``out`` are those that
    it is working at, ``waiting`` why each of the nodes that wait does. ``stop`` is why no further node begins. Where a
    reader was told of more nodes than could be named, ``unnamed`` has how many, by their reason. ``waves`` are in their
    order; they and ``domains`` stay the same for a whole rollout, and name fewer nodes where there are too many.
    """

    began: datetime
    time: datetime
    at_once: int
    soak: timedelta
    out: frozenset[str]
    waiting: Mapping[str, str]
    wave_soak: timedelta = timedelta(0)
    is_held: bool = False
    stop: str = ""
    unnamed: tuple[tuple[str, int], ...] = ()
    waves: tuple[Members, ...] = ()
    domains: tuple[Members, ...] = ()


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
