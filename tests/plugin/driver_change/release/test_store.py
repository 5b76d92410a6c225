"""The file of a release: whole or not at all, and released in doubt."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from plugin.base.errors import ReleaseError
from plugin.changes.driver_change.release.record import Release
from plugin.changes.driver_change.release.store import (
    FILE_NAME,
    forget_release,
    read_release,
    sole_change,
    write_release,
)
from tests.plugin.small_disk import small_disk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RELEASE = Release("2026-09-01T10:00:00Z", "b0071d", "535.261.03")
LATER = Release("2026-09-02T10:00:00Z")


def test_no_folder_and_no_file_is_no_release(tmp_path: Path) -> None:
    assert read_release(tmp_path / "absent") is None
    assert read_release(tmp_path) is None
    assert forget_release(tmp_path) is False


def test_a_release_is_written_replaced_and_forgotten(tmp_path: Path) -> None:
    write_release(tmp_path, RELEASE)
    assert read_release(tmp_path) == RELEASE
    write_release(tmp_path, LATER)
    assert read_release(tmp_path) == LATER
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600
    assert forget_release(tmp_path) is True
    assert read_release(tmp_path) is None


def test_what_a_killed_writer_left_disturbs_nobody(tmp_path: Path) -> None:
    (tmp_path / f".{FILE_NAME}.new").write_text('{"schema": "gra')
    assert read_release(tmp_path) is None
    write_release(tmp_path, RELEASE)
    assert read_release(tmp_path) == RELEASE


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"null", b"{}"], ids=repr)
def test_a_damaged_file_is_a_release_with_a_problem(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    release = read_release(tmp_path)
    assert release is not None
    assert f"{tmp_path / FILE_NAME} cannot be understood" in release.problem
    assert release.gpus == ()
    assert forget_release(tmp_path) is True


def test_a_folder_in_place_of_the_file_is_a_release_with_a_problem(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()
    release = read_release(tmp_path)
    assert release is not None
    assert "is a directory" in release.problem
    with pytest.raises(ReleaseError, match="cannot be removed"):
        forget_release(tmp_path)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one page."""
    with small_disk(tmp_path / "disk", "4k") as folder:
        yield folder


@pytest.mark.functional
def test_a_full_disk_leaves_the_node_as_it_was(disk: Path) -> None:
    (disk / "other").write_bytes(b"x" * 4096)
    with pytest.raises(ReleaseError, match="no space left on device") as raised:
        write_release(disk, RELEASE)
    assert "nothing was released" in raised.value.hint
    assert [path.name for path in disk.iterdir()] == ["other"]


@pytest.mark.functional
def test_a_read_only_disk_leaves_the_node_as_it_was(disk: Path) -> None:
    remount = ["mount", "-o", "remount,{}", str(disk)]
    subprocess.run([word.format("ro") for word in remount], check=True)
    with pytest.raises(ReleaseError, match="read-only file system"):
        write_release(disk, RELEASE)
    with sole_change(disk, 1):
        assert read_release(disk) is None
    subprocess.run([word.format("rw") for word in remount], check=True)
    write_release(disk, RELEASE)
    subprocess.run([word.format("ro") for word in remount], check=True)
    with pytest.raises(ReleaseError, match="cannot be removed: read-only file system"):
        forget_release(disk)
    assert read_release(disk) == RELEASE


@pytest.mark.slow
def test_one_change_at_a_time_and_root_alone(tmp_path: Path) -> None:
    folder = tmp_path / "grapnel/node"
    with sole_change(folder, 1):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        with (
            pytest.raises(ReleaseError, match="another release, resume or change of mig"),
            sole_change(folder, 0.1),
        ):
            raise AssertionError
    entered = threading.Event()
    with sole_change(folder, 1):
        waiting = threading.Thread(target=lambda: _enter(folder, entered))
        waiting.start()
        assert not entered.wait(0.2)
    assert entered.wait(10)
    waiting.join()


def _enter(folder: Path, entered: threading.Event) -> None:
    with sole_change(folder, 10):
        entered.set()


@pytest.mark.slow
def test_a_killed_process_keeps_no_lock(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from plugin.changes.driver_change.release.store import sole_change\n"
        "with sole_change(Path(sys.argv[1]), 5): print(flush=True); input()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(ReleaseError), sole_change(tmp_path, 0.1):
            raise AssertionError
        process.send_signal(signal.SIGKILL)
    with sole_change(tmp_path, 5):
        pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ReleaseError, match="file/node cannot be used: not a directory"),
        sole_change(tmp_path / "file/node", 1),
    ):
        raise AssertionError
