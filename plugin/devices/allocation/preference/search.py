"""Which search answers a question, and what is done when it is cut off. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.devices.allocation.preference.branches import divide_by_branches
from plugin.devices.allocation.preference.division import CutOff, Effort, never
from plugin.devices.allocation.preference.masks import MOST_GPUS, divide_by_masks, fewest_steps
from plugin.devices.allocation.preference.rough import divide_roughly

if TYPE_CHECKING:
    from collections.abc import Callable

    from plugin.devices.allocation.preference.division import Division, Question
    from plugin.driver.topology.hierarchy import Hierarchy


@dataclass(frozen=True)
class Limits:
    """How much a preference may cost. A step takes one to five microseconds."""

    exact_steps: int = 4000
    rough_steps: int = 8000
    is_late: Callable[[], bool] = never


@dataclass(frozen=True)
class Found:
    """A division, the steps that it took, and why it may not be the best one (empty: it is)."""

    division: Division
    steps: int
    cut_off: str = ""


def divide(question: Question, hierarchy: Hierarchy | None, limits: Limits) -> Found:
    """Return the best division, or a good one where the limits do not allow to find the best.

    Eight GPUs are far below the usual limits, whatever connects them; so are sixteen whose scores form a tree.
    """
    effort = Effort(limits.exact_steps, limits.is_late)
    try:
        if hierarchy is not None:
            division = divide_by_branches(question, hierarchy, effort)
        else:
            if question.count > MOST_GPUS or fewest_steps(question) > limits.exact_steps:
                effort.spend(limits.exact_steps + 1)  # as if it had begun
            division = divide_by_masks(question, effort)
    except CutOff as error:
        rough = Effort(limits.rough_steps, limits.is_late)
        return Found(divide_roughly(question, rough), effort.used + rough.used, str(error))
    return Found(division, effort.used)
