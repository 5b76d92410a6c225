"""Processes of people are ended where that is declared, and nothing else is."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock
from ansible_collections.grapnel.node.plugins.module_utils.use.end_processes import end_processes, is_of_a_person

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDS, STAYS = "", "signal.signal(signal.SIGTERM, signal.SIG_IGN);"


@contextmanager
def process(prologue: str) -> Iterator[subprocess.Popen[str]]:
    """Run a process that has begun to wait."""
    code = f"import signal; {prologue} print('ready', flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            assert running.stdout.readline() == "ready\n"
            yield running
        finally:
            running.kill()


def holder(pid: int, unit: str = "session-3.scope", **more: object) -> dict[str, Any]:
    return {"pid": pid, "command": "train", "unit": unit, "pod_uid": None, "container_id": None, **more}


@pytest.mark.parametrize(
    ("prologue", "grace_s", "number", "words"),
    [
        pytest.param(ENDS, 60.0, signal.SIGTERM, "was asked to end, and did", id="it ends when asked"),
        pytest.param(STAYS, 0.0, signal.SIGKILL, "was killed, as it did not end when asked", id="it does not"),
    ],
)
def test_a_process_of_a_person_is_ended(prologue: str, grace_s: float, number: int, words: str) -> None:
    with process(prologue) as running:
        seen = [holder(running.pid)]

        told = end_processes(seen, lambda: seen, Clock(), grace_s)

        assert told == [f"train ({running.pid}, session-3.scope) {words}"]
        assert running.wait() == -number


@pytest.mark.parametrize(
    "now",
    [
        pytest.param([], id="nothing any more"),
        pytest.param([{"unit": "session-4.scope"}], id="in another session: another process has its number"),
        pytest.param([{"unit": "train.service"}], id="in a service"),
    ],
)
def test_what_holds_no_gpu_when_it_is_looked_at_again_is_left_alone(now: list[dict[str, str]]) -> None:
    with process(ENDS) as running:
        assert (
            end_processes([holder(running.pid)], lambda: [holder(running.pid, **each) for each in now], Clock(), 0)
            == []
        )
        assert running.poll() is None


def test_a_process_that_has_ended_already_is_no_error() -> None:
    with process(ENDS) as running:
        running.kill()
        running.wait()
        assert end_processes([holder(running.pid)], list, Clock(), 0) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, True, id="a login session"),
        pytest.param({"unit": "user@1000.service"}, True, id="somebody's own systemd"),
        pytest.param({"unit": "nvidia-persistenced.service"}, False, id="a daemon of the driver"),
        pytest.param({"unit": "train.service"}, False, id="a service, which systemd starts again"),
        pytest.param({"unit": "docker-4f.scope", "container_id": "4f"}, False, id="a container"),
        pytest.param({"container_id": "4f"}, False, id="a container of a session"),
        pytest.param({"pod_uid": "u"}, False, id="a pod"),
        pytest.param({"unit": None}, False, id="no unit"),
    ],
)
def test_only_processes_of_people_are_ended(changes: dict[str, Any], expected: bool) -> None:  # noqa: FBT001 - a column
    assert is_of_a_person(holder(1) | changes) is expected


def test_on_a_kernel_that_cannot_hold_a_process_nothing_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """RHEL 8's kernel has no pidfd_open: the module ended with a traceback."""

    def refuse(_: int) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    with process(ENDS) as running:
        monkeypatch.setattr(os, "pidfd_open", refuse)
        assert end_processes([holder(running.pid)], lambda: [holder(running.pid)], Clock(), 1) == []
        assert running.poll() is None
