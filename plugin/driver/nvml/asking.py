"""Asks NVML one question; an error counts as no answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from plugin.driver.nvml.loading.trust import FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable

_Answer = TypeVar("_Answer")


def ask(question: Callable[[], _Answer]) -> _Answer | None:
    """Return the answer, None where NVML has none."""
    try:
        return question()
    except FAULTS:
        return None
