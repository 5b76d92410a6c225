"""Defines what the engine asks of whatever does the work on one node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import threading

    from provision.apply.model import Failure, NodeResult, Observer
    from provision.rollout.decision.snapshot import Holder
    from provision.rollout.model import Origin, Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """How a step ended: failed, or held by ``holders`` and to be tried again, or done.

    ``swapped`` is what the swap came to.
    """

    failure: Failure | None = None
    holders: tuple[Holder, ...] = ()
    swapped: NodeResult | None = None


class Steps(Protocol):
    """Runs the phases RELEASE, SWAP, VERIFY, RESUME and ROLLBACK on nodes."""

    def run(
        self, node: str, phase: Phase, observe: Observer, cancel: threading.Event, back: Origin | None = None
    ) -> StepOutcome:
        """Do it, on the caller's thread. Doing it again does no harm; ``cancel`` ends it.

        ``back`` is given on the way back, from ROLLBACK on: what the node has to be again. A failure of the status
        UNREACHABLE says that the node could not be reached, so that it is not known what became of it.
        """
