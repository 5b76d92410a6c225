"""Signals that ask a process to stop."""

from __future__ import annotations

import signal
import threading

import pytest

from provision.apply.interrupt import SIGNALS, cancel_on_signals


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_sets_the_event_and_the_former_handler_comes_back(number: signal.Signals) -> None:
    former = signal.getsignal(number)
    with cancel_on_signals() as cancel:
        assert not cancel.is_set()
        signal.raise_signal(number)
        assert cancel.is_set()
    assert signal.getsignal(number) is former


def test_whoever_interrupts_is_told_at_once_and_only_once(capfd: pytest.CaptureFixture[str]) -> None:
    with cancel_on_signals():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert capfd.readouterr().err == "\ngrapnel: stopping as soon as what runs allows it; nothing further begins\n"


@pytest.mark.timeout(30)
def test_a_second_signal_in_the_midst_of_the_first_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """As systemd sends SIGTERM and SIGHUP at once: the second comes while the first holds the lock of the event."""
    notify_all = threading.Condition.notify_all

    def interrupted(condition: threading.Condition) -> None:
        monkeypatch.setattr(threading.Condition, "notify_all", notify_all)
        signal.raise_signal(signal.SIGHUP)
        notify_all(condition)

    with cancel_on_signals() as cancel:
        monkeypatch.setattr(threading.Condition, "notify_all", interrupted)
        signal.raise_signal(signal.SIGTERM)
        assert cancel.is_set()
