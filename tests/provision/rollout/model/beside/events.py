"""The table of what may happen next where a controller is at work beside terminals."""

from __future__ import annotations

from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING, Final

from provision.rollout.model import Phase
from tests.provision.rollout.model.beside.fleet import CONTROLLER, Beside
from tests.provision.rollout.model.events import KINDS as TERMINALS
from tests.provision.rollout.model.events import Event, Kind, happen
from tests.provision.rollout.model.policies import NAMES, NEW, NEWER, OLD, POLICIES
from tests.provision.rollout.model.shrink import violated_by

if TYPE_CHECKING:
    from collections.abc import Sequence

LENGTH: Final = 14
FIRST: Final = 4  # so many events of each are how it begins
THOROUGH: Final = 0.2  # of all interleavings: it takes twice as long as all that comes before

_TURNS: Final = (1, 2, 3, 5, 8, 13, 21)
_EFFECTS: Final = tuple(range(16))
_BETWEEN: Final = ("turn_back", "end_step", "lose_connections", "cordon", "uncordon", "abandon", "skip", "retry")
_OUT: Final = tuple(phase for phase in Phase if not phase.is_over)
_TARGETS: Final = (NEW, NEW, NEWER, OLD)

OWN: Final = (
    Kind("turns", ((CONTROLLER,), _TURNS), 40, is_injected=False),
    Kind("declare_stack", (_TARGETS, range(len(POLICIES))), 6),
    Kind("turn_back", (), 6),
    Kind("change_mind", (NAMES, _OUT, _TARGETS, range(len(POLICIES))), 8),
    Kind("delete_stack", (), 3),
    Kind("release_stack", ()),
    Kind("install", (), 8),
    Kind("uninstall", (), 5),
    Kind("stop", (), 3),
    Kind("kill", ((CONTROLLER,),), 3),
    Kind("kill_at", ((CONTROLLER,), _EFFECTS), 4),
    Kind("disturb_at", ((CONTROLLER,), _EFFECTS, _BETWEEN, NAMES), 10),
    Kind("end_step", (NAMES,), 5),
    Kind("lag", ((2.0, 20.0, 60.0),)),
    Kind("find_drift", (NAMES,)),
)
KINDS: Final = (*OWN, *TERMINALS)
INJECTED: Final = frozenset(kind.name for kind in KINDS if kind.is_injected)
_WEIGHTS: Final = list(accumulate(kind.weight for kind in KINDS))


def drawn(seed: int) -> list[Event]:
    """Return the interleaving of a seed: a fleet with the old driver that is as declared, and what happens to it."""
    random = Random(f"beside {seed}")
    first = random.choice((OLD, OLD, NEW))
    events: list[Event] = [("declare_stack", first, random.randrange(len(POLICIES))), ("install",)]
    events.append(("turns", CONTROLLER, random.choice((6, 6, 12))))
    events.append(("declare", random.choice((NEW, NEWER, OLD)), random.randrange(len(POLICIES))))
    events += [("end_thoroughly",)] if random.random() < THOROUGH else []
    kinds = random.choices(KINDS, cum_weights=_WEIGHTS, k=LENGTH)
    return events + [(kind.name, *(random.choice(choices) for choices in kind.choices)) for kind in kinds]


def play(events: Sequence[Event]) -> None:
    """Play an interleaving to its end; raises what it violates."""
    fleet = Beside()
    for event in events:
        happen(fleet, event)
        fleet.witness.hold_cordons()
    fleet.finish()


def violated(events: Sequence[Event]) -> str:
    """Return what an interleaving violates, empty where it violates nothing."""
    return violated_by(play, events)
