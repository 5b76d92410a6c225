"""The time limit, striking at every line of an injection, and a file system that never answers."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import runtime_hook
from runtime_hook.base.deadline import Deadline
from runtime_hook.base.errors import DeadlineError, InjectionError
from tests.runtime_hook.container.test_injection import carry
from tests.runtime_hook.containers import run_hook
from tests.runtime_hook.drivertree import uuid
from tests.runtime_hook.recording import RecordingSyscalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from tests.runtime_hook.drivertree import DriverTree

HOOK_FOLDER = str(Path(runtime_hook.__file__).parent)
STRIDE = 3  # of lines, for time
LONG_S = 300


@pytest.fixture(autouse=True)
def no_timer() -> Iterator[None]:
    """Leave neither a timer nor its handler behind."""
    before = signal.getsignal(signal.SIGALRM)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


class Alarm:
    """Strikes once, at one line of the hook's own code, if the timer is still running then."""

    def __init__(self, deadline: Deadline, line: int) -> None:
        self.lines = 0
        self._deadline = deadline
        self._line = line

    def trace(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(HOOK_FOLDER):
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self._line and signal.getitimer(signal.ITIMER_REAL)[0]:
                signal.setitimer(signal.ITIMER_REAL, 0)
                self._deadline._on_alarm(signal.SIGALRM, frame)
        return self.trace


def strike(syscalls: RecordingSyscalls, line: int) -> tuple[int, BaseException | None]:
    """Inject with an alarm at one line; return how many lines there were and what was raised.

    In a generator, which has a stack of handled exceptions of its own: CPython 3.11 leaves one there that a trace
    function interrupts, and errors of later tests would have it as their context.
    """
    return next(_strike(syscalls, line))


def _strike(syscalls: RecordingSyscalls, line: int) -> Iterator[tuple[int, BaseException | None]]:
    deadline = Deadline()
    deadline.start(LONG_S)
    alarm = Alarm(deadline, line)
    before = sys.gettrace()
    sys.settrace(alarm.trace)
    raised: BaseException | None = None
    try:
        carry(syscalls, deadline=deadline)
    except (DeadlineError, InjectionError) as reason:
        raised = reason
    finally:
        sys.settrace(before)
        deadline.stop()
    yield alarm.lines, raised


def all_lines(fail_at: int = -1) -> int:
    return strike(RecordingSyscalls(fail_at), 0)[0]


@pytest.mark.slow
def test_an_alarm_at_any_line_leaves_all_or_nothing() -> None:
    complete = RecordingSyscalls()
    carry(complete)
    struck = 0
    for line in range(1, all_lines(), STRIDE):
        syscalls = RecordingSyscalls()
        before = syscalls.state()
        _, reason = strike(syscalls, line)
        struck += reason is not None
        assert syscalls.state() == (before if reason else complete.state()), f"line {line}"
        assert not syscalls.is_inside
    assert struck > 10, "the alarm struck before the end"


@pytest.mark.slow
@pytest.mark.parametrize("behind", [0, 1, 2, 3])
def test_an_alarm_while_another_failure_is_undone_changes_nothing(behind: int) -> None:
    """The alarm could once strike between a failure and the end of the timer, and nothing was undone then."""
    last = len(_calls()) - 1
    for line in range(all_lines(last) * 3 // 4 + behind, all_lines(last), 4):
        syscalls = RecordingSyscalls(fail_at=last, error=errno.ENOSPC)
        before = syscalls.state()
        _, reason = strike(syscalls, line)
        assert reason is not None
        assert syscalls.state() == before, f"line {line}"
        assert not syscalls.is_inside


@pytest.mark.slow
def test_an_alarm_while_an_optional_step_is_undone_loses_no_step() -> None:
    """The alarm could once strike between taking an entry from the undo_log and undoing it."""
    number = _calls().index("attach nvidia-smi")
    first = all_lines(number) // 2
    for line in range(first, all_lines(number)):
        syscalls = RecordingSyscalls(fail_at=number)
        before = syscalls.state()
        _, reason = strike(syscalls, line)
        if reason:
            assert syscalls.state() == before, f"line {line}"
        assert not syscalls.is_inside


def _calls() -> list[str]:
    syscalls = RecordingSyscalls()
    carry(syscalls)
    return syscalls.calls


FROZEN = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x20000) == 0
assert libc.mount(None, b"/", None, 1 << 18 | 1 << 14, None) == 0
fuse = os.open("/dev/fuse", os.O_RDWR)
options = b"fd=%d,rootmode=40000,user_id=0,group_id=0" % fuse
assert libc.mount(b"frozen", os.fsencode(sys.argv[1]), b"fuse", 0, options) == 0, os.strerror(ctypes.get_errno())
print("ready", flush=True)
time.sleep(100)
"""


@pytest.mark.functional
@pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="there is no /dev/fuse")
def test_a_file_system_that_never_answers_does_not_hold_the_hook_for_ever(
    configure: Callable[..., list[str]], driver: DriverTree, tmp_path: Path
) -> None:
    """A FUSE root whose daemon hangs: no signal but SIGKILL ends the lookup."""
    assert driver.gpus
    (tmp_path / "rootfs").mkdir()
    config = {"root": {"path": "rootfs"}, "annotations": {"grapnel.dev/allocation": uuid(0)}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    argv = [sys.executable, "-c", FROZEN, str(tmp_path / "rootfs")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as container:
        assert container.stdout is not None
        assert container.stdout.readline() == b"ready\n"
        state = {"id": "frozen", "pid": container.pid, "bundle": str(tmp_path)}
        try:
            done = run_hook(["prestart", *configure(timeoutS=1)], json.dumps(state).encode())
        finally:
            container.kill()
    assert done.returncode == -signal.SIGKILL, done.stderr
