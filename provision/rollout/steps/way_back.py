"""Brings back the driver that a node had before its upgrade: the step of the phase ROLLBACK."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.apply.follow import follow
from provision.apply.model import Failure, Status
from provision.rollout.step import StepOutcome
from provision.rollout.steps.node_program import (
    GONE_BACK,
    TRIES,
    is_same,
    last_word,
    settled_facts,
    verdict,
)

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from provision.apply.context import ApplyContext
    from provision.apply.model import Observer
    from provision.declaration.fleet.facts.driver import DriverRun
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.rollout.model import Origin

_MOST: Final = 2  # a node keeps the set of its driver change, and of the one before
_HALF_WAY: Final = ("running", "needs-reboot", "quarantined")


@dataclass(frozen=True, slots=True)
class WayBack:
    """Returns a node to ``origin``; ``release`` takes its GPUs out of service again, as far as they are not.

    Each round looks at the node first, so that it may be begun again wherever it was cut short, and never leads
    further back than to the origin. It contacts no package source: everything lies on the node.
    """

    context: ApplyContext
    origin: Origin
    release: Callable[[], StepOutcome]

    def go(self, node: str, observe: Observer, cancel: threading.Event) -> StepOutcome:
        """Go back as many driver changes as were swapped in since; what keeps a GPU is in the outcome.

        Who carries that out may be ended in the middle of it. So a way back has failed where the node's own program
        says so; whatever else fails, the node is looked at, and it counts where it fails again.
        """
        before, said = None, None
        changes, tries = 0, 0
        while True:
            facts = settled_facts(self.context, node, observe, cancel)
            if isinstance(facts, Failure) or is_back(facts, self.origin):
                return StepOutcome(failure=facts if isinstance(facts, Failure) else None)
            run = facts.driver.run
            if said is not None and (failed := verdict(before, run, said, good=GONE_BACK)):
                return StepOutcome(failure=failed)
            changes += bool(tries) and (said is None or _has_ended(before, run))
            if said is not None and tries - changes >= TRIES:
                return StepOutcome(failure=last_word(facts, said))
            if facts.driver.back is None or changes == _MOST:
                return StepOutcome(failure=_no_way(facts) if facts.driver.back is None else _elsewhere(facts))
            released = self.release()
            if released.failure is not None or released.holders:
                return released
            before, tries = run, tries + 1
            request = self.context.playbooks.driver("back", node, facts.driver.to_undo)
            said = follow(self.context.runner, request, observe, cancel).failure
            if said is not None and said.status is not Status.FAILED:
                return StepOutcome(failure=said)


def is_back(facts: NodeFacts, origin: Origin) -> bool:
    """Tell whether a node runs the driver change that it ran before its upgrade; `verify` judges whether it works.

    By the change and not by the version, which a change of settings or flavour keeps.
    """
    run = facts.driver.run
    if run is not None and run.state in _HALF_WAY:
        return False
    if origin.change is None:
        return loaded_version(facts) == origin.version
    return (facts.driver.current or "") == origin.change


def loaded_version(facts: NodeFacts) -> str:
    """Return the version of the driver whose module is loaded, empty where none is."""
    return (facts.module.version or "") if facts.module.loaded else ""


def _has_ended(before: DriverRun | None, run: DriverRun | None) -> bool:
    """Tell whether the driver program has come to an end since."""
    return run is not None and not run.is_open and not is_same(before, run)


def _no_way(facts: NodeFacts) -> Failure:
    run = facts.driver.run
    reason = f"; its last {run.verb} ended {run.state}: {run.reason}" if run is not None and run.reason else ""
    return Failure(Status.FAILED, f"there is no way back: what leads to the former driver is not on the node{reason}")


def _elsewhere(facts: NodeFacts) -> Failure:
    found = loaded_version(facts) or "no driver"
    return Failure(Status.FAILED, f"after {_MOST} driver changes back, the node has {found}, not its former driver")
