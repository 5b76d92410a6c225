"""Brings back the driver that a node had before its upgrade: the step of the phase ROLLBACK."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from provision.apply.failure import failure_of
from provision.apply.follow import follow
from provision.apply.gather import gather_facts
from provision.apply.model import Failure, Status
from provision.rollout.step import StepOutcome

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from provision.apply.context import ApplyContext
    from provision.apply.model import Observer
    from provision.fleet.facts import NodeFacts
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
        """Go back as many driver changes as were swapped in since; what keeps a GPU is in the outcome."""
        for _ in range(_MOST):
            facts = self._facts(node, observe, cancel)
            if isinstance(facts, Failure):
                return StepOutcome(failure=facts)
            if is_back(facts, self.origin):
                return StepOutcome()
            if facts.driver.back is None:
                return StepOutcome(failure=_no_way(facts))
            released = self.release()
            if released.failure is not None or released.holders:
                return released
            followed = follow(self.context.runner, self.context.playbooks.driver("back", node), observe, cancel)
            if followed.failure is not None:
                return StepOutcome(failure=followed.failure)
        facts = self._facts(node, observe, cancel)
        if isinstance(facts, Failure):
            return StepOutcome(failure=facts)
        return StepOutcome() if is_back(facts, self.origin) else StepOutcome(failure=_elsewhere(facts))

    def _facts(self, node: str, observe: Observer, cancel: threading.Event) -> NodeFacts | Failure:
        request = replace(self.context.playbooks, offline=True).facts([node])
        try:
            return gather_facts(self.context.runner, request, observe, cancel)[node]
        except Exception as error:  # noqa: BLE001 - whatever it is, it is about this node
            return failure_of(error, f"gathering facts of {node}")


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


def _no_way(facts: NodeFacts) -> Failure:
    run = facts.driver.run
    reason = f"; its last {run.verb} ended {run.state}: {run.reason}" if run is not None and run.reason else ""
    return Failure(Status.FAILED, f"there is no way back: what leads to the former driver is not on the node{reason}")


def _elsewhere(facts: NodeFacts) -> Failure:
    found = loaded_version(facts) or "no driver"
    return Failure(Status.FAILED, f"after {_MOST} driver changes back, the node has {found}, not its former driver")
