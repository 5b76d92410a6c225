"""Commands, locks and files of the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab.machine.command import follow, run
from lab.machine.errors import BusyError, CommandError, HostError
from lab.machine.folders import content_key, write_atomic
from lab.machine.lock import locked

if TYPE_CHECKING:
    from pathlib import Path


def test_a_failed_command_can_be_pasted_and_shows_its_output() -> None:
    with pytest.raises(CommandError) as caught:
        run(["sh", "-c", "echo 'it broke' >&2; exit 3"], timeout_s=10)
    assert "status 3" in str(caught.value)
    assert "sh -c 'echo '\"'\"'it broke'\"'\"' >&2; exit 3'" in caught.value.hint
    assert caught.value.hint.endswith("it broke")


def test_a_command_that_takes_too_long_is_ended() -> None:
    with pytest.raises(CommandError, match=r"longer than 0\.05 s"):
        run(["sleep", "60"], timeout_s=0.05)


def test_a_missing_program_is_named() -> None:
    with pytest.raises(HostError, match="no-such-program is missing"):
        run(["no-such-program"], timeout_s=10)


def test_a_followed_command_hands_on_each_line_of_both_streams() -> None:
    lines: list[str] = []
    follow(["sh", "-c", "echo one; echo two >&2"], lines.append, timeout_s=10)
    assert lines == ["one", "two"]


def test_a_followed_command_that_fails_shows_the_end_of_its_output() -> None:
    with pytest.raises(CommandError, match=r"sh failed with status 3") as caught:
        follow(["sh", "-c", "seq 100; exit 3"], lambda _: None, timeout_s=10)
    assert caught.value.hint.splitlines()[0] == "command: sh -c 'seq 100; exit 3'"
    assert caught.value.hint.splitlines()[1:] == [str(number) for number in range(86, 101)]


def test_a_followed_command_that_takes_too_long_is_ended() -> None:
    with pytest.raises(CommandError, match=r"sleep took longer than 0\.05 s"):
        follow(["sleep", "60"], lambda _: None, timeout_s=0.05)


def test_a_followed_command_ends_when_its_reader_fails() -> None:
    def fail(line: str) -> None:
        raise ValueError(line)

    with pytest.raises(ValueError, match="one"):
        follow(["sh", "-c", "echo one; sleep 60"], fail, timeout_s=10)


def test_a_lock_that_is_held_names_its_holder(tmp_path: Path) -> None:
    place = tmp_path / "a.lock"
    with (
        locked(place, wait_s=0),
        pytest.raises(BusyError, match=r"a\.lock: locked by process \d+"),
        locked(place, wait_s=0),
    ):
        pass
    with locked(place, wait_s=0):
        assert place.exists()


def test_keys_depend_on_where_one_part_ends() -> None:
    assert content_key("ab", "c") != content_key("a", "bc")
    assert content_key("ab", b"c") == content_key(b"ab", "c")


def test_a_file_is_replaced_as_a_whole_with_its_mode(tmp_path: Path) -> None:
    place = tmp_path / "new" / "file"
    write_atomic(place, "one", 0o600)
    write_atomic(place, "two", 0o640)
    assert place.read_text() == "two"
    assert place.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in place.parent.iterdir()] == ["file"]
