from __future__ import annotations

import threading

import pytest

from plugin.base.errors import NoAnswer
from plugin.system.bounded import call_within


def test_a_call_returns_and_raises_as_without_a_limit() -> None:
    assert call_within(10, lambda: None, "nothing") is None
    with pytest.raises(ZeroDivisionError):
        call_within(10, lambda: 1 // 0, "nvml")


def test_a_call_that_hangs_is_named_and_left_behind() -> None:
    forever = threading.Event()
    with pytest.raises(NoAnswer, match=r"nvml: no answer within 0\.1 s"):
        call_within(0.1, forever.wait, "nvml")
    forever.set()
