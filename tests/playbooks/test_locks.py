"""A lock that a real process holds is waited for, and its holder named before anything is changed."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock
from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.transaction import Apt
from ansible_collections.grapnel.node.plugins.module_utils.packages.dnf.transaction import Dnf
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError
from ansible_collections.grapnel.node.plugins.module_utils.packages.zypper.transaction import Zypper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.playbooks.fakes import Machine

HOLD = (
    "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); input()"
)
MANAGERS = [
    pytest.param(Apt(), "/var/lib/dpkg/lock-frontend", id="apt"),
    pytest.param(Apt(), "/var/lib/dpkg/lock", id="dpkg alone"),
    pytest.param(Dnf(), "/usr/lib/sysimage/rpm/.rpm.lock", id="dnf"),
    pytest.param(Zypper(), "/var/lib/rpm/.rpm.lock", id="zypper"),
]


@dataclass
class Time:
    """Time that passes only while somebody sleeps; what happens then is the test's."""

    seconds: float = 0.0
    happens: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.happens()

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.seconds, self.sleep, lambda: self.seconds)


@contextmanager
def holder(place: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock of a file."""
    place.parent.mkdir(parents=True)
    command = [sys.executable, "-c", HOLD, str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture(autouse=True)
def processes(machine: Machine) -> None:
    (machine.root / "proc").symlink_to("/proc")


@pytest.mark.parametrize(("manager", "lock"), MANAGERS)
def test_whoever_holds_the_lock_is_named_when_time_is_up(machine: Machine, manager: Apt, lock: str) -> None:
    time = Time()
    with holder(machine.root / lock[1:]) as process, pytest.raises(PackageError) as raised:
        manager.wait(machine.host, time.clock)

    assert re.search(rf"is locked by python\S* \(pid {process.pid}\)", str(raised.value))
    assert raised.value.is_unchanged
    assert "wait for it to end" in str(raised.value)
    assert time.seconds >= 100


@pytest.mark.parametrize(("manager", "lock"), MANAGERS)
def test_a_lock_that_is_let_go_is_waited_for(machine: Machine, manager: Apt, lock: str) -> None:
    with holder(machine.root / lock[1:]) as process:
        manager.wait(machine.host, Time(happens=lambda: end(process)).clock)


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
