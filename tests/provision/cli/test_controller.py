"""How `grapnel controller` ends: by a signal, or by what goes wrong."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest

from provision.base.errors import ExitCode
from provision.cli import main
from provision.cli.in_cluster.controller import run_beside_signals
from provision.rollout.errors import LeaseLostError


class Subject:
    """A controller that waits, and ends with ``error`` if there is one."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.stopped = threading.Event()
        self.threads: list[str] = []

    def run(self) -> None:
        """Wait, on whatever thread this is."""
        self.threads.append(threading.current_thread().name)
        if self.error is not None:
            raise self.error
        assert self.stopped.wait(30)


def test_a_signal_stops_it_on_another_thread_than_the_one_that_waits() -> None:
    """The handler ran in the middle of the wait, and could wait for the lock of that wait for ever."""
    subject: Any = Subject()
    former = signal.signal(signal.SIGTERM, lambda *_: subject.stopped.set())
    try:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        run_beside_signals(subject)
    finally:
        signal.signal(signal.SIGTERM, former)
    assert subject.threads == ["controller"]


def test_hosts_that_are_none_are_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["controller", "--image", "x", "--holder", "y", "--secret-hosts", "gates=https://a.test"]
    assert main(words) == ExitCode.USAGE
    assert "'https://a.test' is not HOST or HOST:PORT" in capsys.readouterr().err


def test_what_it_ends_with_is_raised() -> None:
    subject: Any = Subject(LeaseLostError("the lease is lost"))
    with pytest.raises(LeaseLostError):
        run_beside_signals(subject)
