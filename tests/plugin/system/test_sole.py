"""Only one daemon has a node: locks of real processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plugin.system.sole import NodeLock, lock_path, own_name

if TYPE_CHECKING:
    from collections.abc import Iterator

HOLD = """
import sys, time
from pathlib import Path
from plugin.system.sole import NodeLock
lock = NodeLock(Path(sys.argv[1]))
assert lock.take("pod a/b", timeout_s=0, waits=print) == ""
print("held", flush=True)
time.sleep(60)
"""
REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return lock_path(tmp_path / "run/node.sock")


@pytest.fixture
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_the_second_one_hears_who_is_there(holder: subprocess.Popen[str], path: Path) -> None:
    assert holder.poll() is None
    told: list[str] = []
    assert NodeLock(path).take("the service", timeout_s=0, waits=told.append) == "pod a/b"
    assert told == ["pod a/b"]


def test_a_holder_that_is_killed_leaves_the_node_to_the_next(holder: subprocess.Popen[str], path: Path) -> None:
    told: list[str] = []

    def end(name: str) -> None:
        told.append(name)
        holder.kill()

    lock = NodeLock(path)
    assert lock.take("the service", timeout_s=None, waits=end) == ""
    assert told == ["pod a/b"]
    assert path.read_text() == "the service"
    lock.release()
    assert NodeLock(path).take("another", timeout_s=0, waits=told.append) == ""


def test_a_name_that_is_not_written_yet_is_another_process(path: Path) -> None:
    first, told = NodeLock(path), list[str]()
    assert first.take("", timeout_s=0, waits=told.append) == ""
    assert NodeLock(path).take("b", timeout_s=0, waits=told.append) == "another process"
    path.write_bytes(b"\x1b[2J\xff")
    assert NodeLock(path).take("b", timeout_s=0, waits=told.append) == "another process"


def test_a_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        NodeLock(path).take("a", timeout_s=0, waits=print)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("environment", "is_pod", "name"),
    [
        ({"POD_NAMESPACE": "grapnel-system", "POD_NAME": "grapnel-node-x"}, True, "pod grapnel-system/grapnel-node-x"),
        ({}, True, "pod ?/?"),
        ({"NOTIFY_SOCKET": "/run/systemd/notify"}, False, "the service grapnel-node"),
    ],
    ids=["pod", "pod without a name", "service"],
)
def test_a_daemon_is_named_as_people_know_it(environment: dict[str, str], is_pod: bool, name: str) -> None:  # noqa: FBT001 - a case
    assert own_name(environment, is_pod=is_pod) == name
