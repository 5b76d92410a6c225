"""The table of what may happen next: one event is a method of the fleet with one choice for each of its arguments."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING, Final

from tests.provision.rollout.model.fleet import HOLDERS, Fleet
from tests.provision.rollout.model.outside import STEPS
from tests.provision.rollout.model.policies import NAMES, NEW, NEWER, OLD, POLICIES

if TYPE_CHECKING:
    from collections.abc import Sequence

Event = tuple[str | int | float, ...]  # the method, and its arguments
LENGTH: Final = 16  # events of one interleaving, after the declaration and the first apply
FIRST: Final = 2

_SHORT_S: Final = (1.0, 15.0, 40.0, 70.0)
_LONG_S: Final = (5.0, 50.0, 130.0, 400.0)
_TURNS: Final = (1, 2, 3, 5, 8, 13, 21, 34)
_EFFECTS: Final = tuple(range(13))
_BETWEEN: Final = ("cordon", "uncordon", "delete", "register_again", "skip", "retry", "abandon", "lose_connections")


@dataclass(frozen=True, slots=True)
class Kind:
    """A method, the choices for each of its arguments, and how often it is drawn beside the others.

    ``is_injected``: it is more than that engines go on.
    """

    name: str
    choices: tuple[Sequence[str | int | float], ...] = ()
    weight: int = 2
    is_injected: bool = True


KINDS: Final = (
    Kind("go_on", (HOLDERS[:1], _TURNS), 26, is_injected=False),
    Kind("turns", (HOLDERS, _TURNS), 8, is_injected=False),
    Kind("apply", (HOLDERS,), 3),
    Kind("rollback", (HOLDERS,), 3),
    Kind("declare", ((NEW, NEW, NEWER, OLD), range(len(POLICIES))), 3),
    Kind("kill", (HOLDERS,), 3),
    Kind("kill_at", (HOLDERS, _EFFECTS), 4),
    Kind("disturb_at", (HOLDERS, _EFFECTS, _BETWEEN, NAMES), 6),
    Kind("freeze", (_LONG_S,)),
    Kind("put_clock", ((-7200.0, -90.0, 90.0, 7200.0),)),
    Kind("lose_api", (_LONG_S,), 3),
    Kind("refuse_evictions", (_LONG_S,)),
    Kind("cordon", (NAMES,)),
    Kind("uncordon", (NAMES,), 3),
    Kind("pause"),
    Kind("resume"),
    Kind("skip", (NAMES,)),
    Kind("unskip", (NAMES,)),
    Kind("retry", (NAMES,), 3),
    Kind("abandon", (NAMES,)),
    Kind("put_back", (NAMES,)),
    Kind("hold_back", (NAMES,)),
    Kind("alert"),
    Kind("schedule", (NAMES,)),
    Kind("begin_job", (NAMES,), 3),
    Kind("end_jobs", (NAMES,)),
    Kind("stick", (NAMES,)),
    Kind("hold_gpu", (NAMES, (1, 2, 3))),
    Kind("reboot", (NAMES, _SHORT_S)),
    Kind("delete", (NAMES,)),
    Kind("join", (NAMES,)),
    Kind("register_again", (NAMES,)),
    Kind("lose_connections", (NAMES,), 3),
    Kind("break_step", (NAMES, STEPS), 5),
    Kind("mend", (NAMES,)),
    Kind("fall_ill", (NAMES,)),
)
INJECTED: Final = frozenset(kind.name for kind in KINDS if kind.is_injected)


_WEIGHTS: Final = list(accumulate(kind.weight for kind in KINDS))


def drawn(seed: int) -> list[Event]:
    """Return the interleaving of a seed."""
    random = Random(seed)
    events: list[Event] = [("declare", NEW, random.randrange(len(POLICIES))), ("apply", HOLDERS[0])]
    kinds = random.choices(KINDS, cum_weights=_WEIGHTS, k=LENGTH)
    return events + [(kind.name, *(random.choice(choices) for choices in kind.choices)) for kind in kinds]


def happen(fleet: Fleet, event: Event) -> None:
    """Have an event happen to a fleet."""
    name, *arguments = event
    getattr(fleet, str(name))(*arguments)


def play(events: Sequence[Event]) -> None:
    """Play an interleaving to its end; raises what it violates."""
    fleet = Fleet()
    for event in events:
        happen(fleet, event)
    fleet.finish()
