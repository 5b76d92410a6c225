"""Defines the progress events of a rollout: those of an apply, and those of the phases of each node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from provision.apply.model import Progress

if TYPE_CHECKING:
    from provision.rollout.model import Phase


@dataclass(frozen=True, slots=True)
class PhaseEntered:
    """A node's upgrade goes on to a phase; ``reason`` is what went wrong before it, if something did.

    ``takes_pods``: a node that failed is in service all the same. ``remark`` is what else people should know of the
    node; whoever shows progress has it as a `Note` as well. ``is_former``: it is an upgrade to what is not declared
    any more. ``is_in_place``: the node serves all the time.
    """

    node: str
    phase: Phase
    reason: str = ""
    remark: str = ""
    takes_pods: bool = False
    is_former: bool = False
    is_in_place: bool = False


@dataclass(frozen=True, slots=True)
class NodeWaits:
    """A node does not move, and why; an empty ``reason`` says that it moves again.

    ``is_out``: it is out of service already.
    """

    node: str
    reason: str
    is_out: bool = False


RolloutProgress = Progress | PhaseEntered | NodeWaits
RolloutObserver = Callable[[RolloutProgress], None]
