"""Files take their places together or not at all, and nobody is shown what not everybody may read."""

from __future__ import annotations

import errno
import hashlib
import os
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.files.configuration import (
    ConfigurationError,
    Service,
    apply_changes,
)
from ansible_collections.grapnel.node.plugins.module_utils.files.file_set import (
    FileSetError,
    FileText,
    describe,
    find_changes,
    parse_files,
    remove_leftovers,
    swap_back,
    swap_in,
    with_preconditions_met,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import is_restart_due, mark_restart

from tests.playbooks.fakes import Systemd

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.grapnel.node.plugins.module_utils.files.file_set import FileDifference

    from tests.playbooks.fakes import Machine

SPEC, MAIN, DROP_IN = "/etc/grapnel/spec.json", "/etc/engine/config.toml", "/etc/engine/conf.d/99.toml"
PATHS = (SPEC, MAIN, DROP_IN)
UNIT = "engine.service"


class FailingRename:
    """Renames until it is the turn of the failing one; afterwards everything fails if ``forever``."""

    def __init__(self, turn: int, code: int) -> None:
        self.left, self.code = turn, code

    def __call__(self, new: Path, place: Path) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError(self.code, os.strerror(self.code))
        new.replace(place)


@pytest.fixture
def changes(machine: Machine) -> list[FileDifference]:
    """Three files of one set: the first is new, the others replace existing files."""
    machine.write(MAIN, "old main", mode=0o640)
    machine.write(DROP_IN, "old drop-in")
    return find_changes(machine.host, [FileText(path, "new", 0o644) for path in PATHS])


def snapshot(machine: Machine) -> dict[str, tuple[str, int]]:
    """Return every file with its text and mode."""
    files = (place for place in machine.root.rglob("*") if place.is_file())
    return {str(place.relative_to(machine.root)): (place.read_text(), place.stat().st_mode) for place in files}


@pytest.mark.parametrize("turn", [1, 2, 3])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EPERM], ids=errno.errorcode.get)
def test_a_rename_that_fails_leaves_every_file_as_it_was(
    turn: int, code: int, machine: Machine, changes: list[FileDifference]
) -> None:
    before = snapshot(machine)

    with pytest.raises(FileSetError) as raised:
        swap_in(machine.host, changes, FailingRename(turn, code))

    assert f"{PATHS[turn - 1]} could not be written: {os.strerror(code)}" in str(raised.value)
    assert str(raised.value).endswith("; all files are as they were")
    assert raised.value.is_undone
    assert snapshot(machine) == before
    assert not (machine.root / "etc/grapnel").exists()


def test_a_text_that_cannot_be_written_leaves_every_file_as_it_was(machine: Machine) -> None:
    machine.write(MAIN, "old")
    machine.write("/etc/engine/conf.d", "a file where a folder should be")
    before = snapshot(machine)
    changes = find_changes(machine.host, [FileText(path, "new", 0o644) for path in PATHS])

    with pytest.raises(FileSetError, match=r"99\.toml could not be written: .*; all files are as they were"):
        swap_in(machine.host, changes)

    assert snapshot(machine) == before


def test_a_file_that_cannot_be_put_back_is_named(machine: Machine, changes: list[FileDifference]) -> None:
    def rename(new: Path, place: Path) -> None:
        if place.name == "99.toml":
            (machine.root / "etc/engine/.config.toml.grapnel-old").unlink()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        new.replace(place)

    with pytest.raises(FileSetError, match=r"could not be put back: .*/etc/engine/config\.toml") as raised:
        swap_in(machine.host, changes, rename)

    assert not raised.value.is_undone


def test_what_is_swapped_in_leaves_nothing_beside(machine: Machine, changes: list[FileDifference]) -> None:
    swap_in(machine.host, changes)

    assert {text for text, _ in snapshot(machine).values()} == {"new"}
    assert len(snapshot(machine)) == len(PATHS)


def test_what_is_swapped_back_has_its_mode_and_owner_again(machine: Machine, changes: list[FileDifference]) -> None:
    before = {path: state for path, state in snapshot(machine).items() if "grapnel" not in path}
    swap_in(machine.host, changes)

    swap_back(machine.host, changes)

    assert snapshot(machine) == before


def test_a_killed_run_leaves_whole_files_in_order_and_the_next_one_cleans_up(
    machine: Machine, changes: list[FileDifference]
) -> None:
    class Killed(BaseException):
        """The process is gone: nothing that it would do for an error is done."""

    def rename(new: Path, place: Path) -> None:
        if place.name == "99.toml":
            raise Killed
        new.replace(place)

    with pytest.raises(Killed):
        swap_in(machine.host, changes, rename)
    assert [machine.read(path) for path in PATHS] == ["new", "new", "old drop-in"]

    again = find_changes(machine.host, [FileText(path, "new", 0o644) for path in PATHS])
    assert [change.after.path for change in again] == [DROP_IN]
    remove_leftovers(machine.host, "/etc")
    swap_in(machine.host, again)

    assert {text for text, _ in snapshot(machine).values()} == {"new"}
    assert len(snapshot(machine)) == len(PATHS)


def service() -> Service:
    return Service(unit=UNIT, engine="", enabled=True, restart=True, timeout_s=2)


@pytest.mark.parametrize("was_due", [False, True])
def test_files_that_were_not_swapped_in_are_nothing_to_restart_for(machine: Machine, *, was_due: bool) -> None:
    Systemd(machine, UNIT, active="active", enabled="enabled")
    machine.write("/etc/engine/conf.d", "a file where a folder should be")
    changes = find_changes(machine.host, [FileText(DROP_IN, "new", 0o644)])
    if was_due:
        mark_restart(machine.host, UNIT)

    with pytest.raises(FileSetError):
        apply_changes(machine.host, service(), changes, lambda _: None)

    assert is_restart_due(machine.host, UNIT) is was_due
    assert not [call for call in machine.calls if " show " not in call]


@pytest.mark.parametrize("target", ["/srv/site/engine.toml", "../../srv/site/engine.toml"])
def test_a_link_stays_and_its_target_is_replaced(target: str, machine: Machine) -> None:
    machine.write("/srv/site/engine.toml", "old", mode=0o640)
    link = machine.root / MAIN.lstrip("/")
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    changes = find_changes(machine.host, [FileText(MAIN, "new", 0o640)])

    swap_in(machine.host, changes)
    assert link.is_symlink()
    assert machine.read("/srv/site/engine.toml") == "new"
    assert find_changes(machine.host, [FileText(MAIN, "new", 0o640)]) == []

    swap_back(machine.host, changes)
    assert link.is_symlink()
    assert machine.read("/srv/site/engine.toml") == "old"


def test_a_linked_folder_is_followed(machine: Machine) -> None:
    machine.write("/srv/conf.d/99.toml", "old")
    (machine.root / "etc/engine").mkdir(parents=True)
    (machine.root / "etc/engine/conf.d").symlink_to("/srv/conf.d")

    swap_in(machine.host, find_changes(machine.host, [FileText(DROP_IN, "new", 0o644)]))

    assert machine.read("/srv/conf.d/99.toml") == "new"
    assert (machine.root / "etc/engine/conf.d").is_symlink()


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_a_link_through_a_folder_that_others_can_write_is_refused(mode: int, machine: Machine) -> None:
    machine.write("/srv/site/engine.toml", "old")
    (machine.root / "srv/site").chmod(mode)
    (machine.root / "etc/engine").mkdir(parents=True)
    (machine.root / MAIN.lstrip("/")).symlink_to("/srv/site/engine.toml")

    with pytest.raises(FileSetError, match=r"nothing was changed: .*/srv/site can be written by users other than root"):
        find_changes(machine.host, [FileText(MAIN, "new", 0o644)])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("given_away", ["srv/site", "etc/engine/config.toml"])
def test_a_link_of_somebody_else_is_refused(given_away: str, machine: Machine) -> None:
    machine.write("/srv/site/engine.toml", "old")
    (machine.root / "etc/engine").mkdir(parents=True)
    (machine.root / MAIN.lstrip("/")).symlink_to("/srv/site/engine.toml")
    os.chown(machine.root / given_away, 1000, 1000, follow_symlinks=False)

    with pytest.raises(FileSetError, match=f"/{given_away} belongs to uid 1000"):
        find_changes(machine.host, [FileText(MAIN, "new", 0o644)])


def test_links_in_a_circle_are_refused(machine: Machine) -> None:
    (machine.root / "etc/engine").mkdir(parents=True)
    (machine.root / MAIN.lstrip("/")).symlink_to("config.toml")

    with pytest.raises(FileSetError, match="more than 40 links"):
        find_changes(machine.host, [FileText(MAIN, "new", 0o644)])


def test_what_is_no_plain_file_is_left_alone(machine: Machine) -> None:
    (machine.root / MAIN.lstrip("/")).mkdir(parents=True)

    with pytest.raises(FileSetError, match=f"{MAIN} is not a plain file"):
        find_changes(machine.host, [FileText(MAIN, "new", 0o644)])


def test_a_unit_that_is_masked_stays_so(machine: Machine) -> None:
    os.mkfifo(machine.write("/dev/x").with_name("null"))
    (machine.root / "etc/engine").mkdir(parents=True)
    (machine.root / MAIN.lstrip("/")).symlink_to("/dev/null")

    with pytest.raises(FileSetError, match=f"{MAIN} leads to /dev/null, which is not a plain file"):
        find_changes(machine.host, [FileText(MAIN, "new", 0o644)])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_group_is_a_change(machine: Machine) -> None:
    os.chown(machine.write(MAIN, "new"), 0, 4)

    (change,) = find_changes(machine.host, [FileText(MAIN, "new", 0o644)])
    swap_in(machine.host, [change])

    assert find_changes(machine.host, [FileText(MAIN, "new", 0o644)]) == []


@pytest.mark.parametrize(("before", "after"), [(0o600, 0o600), (0o644, 0o600), (0o600, 0o644)])
def test_a_file_that_not_everybody_may_read_is_not_shown(before: int, after: int, machine: Machine) -> None:
    machine.write(MAIN, "password = old", mode=before)

    (shown,) = describe(find_changes(machine.host, [FileText(MAIN, "password = new", after)]))

    assert shown.keys() == {"before_header", "after_header", "prepared"}
    assert MAIN in shown["prepared"]
    assert "password" not in shown["prepared"]


GOOD = {"path": "/etc/x", "content": "x", "mode": "0640"}


def test_files_are_read_as_they_are_given() -> None:
    assert parse_files([GOOD]) == [FileText("/etc/x", "x", 0o640)]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"mode": "rw-r--r--"}, "mode 'rw-r--r--' is not four octal digits"),
        ({"mode": "420"}, "mode '420' is not"),
        ({"mode": "4755"}, "mode '4755' is not"),
        ({"mode": "0999"}, "mode '0999' is not"),
        ({"path": "etc/x"}, "'etc/x' is not an absolute path"),
        ({"path": "/etc/../root/x"}, "is not an absolute path in normal form"),
        ({"path": "/etc/x\nMODE"}, "is not an absolute path"),
        ({"withheld": True, "content": ""}, "the text of /etc/x is left out of this plan"),
    ],
)
def test_what_is_given_is_checked(given: dict[str, Any], words: str) -> None:
    with pytest.raises(FileSetError, match=words):
        parse_files([{**GOOD, **given}])


def test_a_path_that_is_given_twice_is_refused() -> None:
    with pytest.raises(FileSetError, match="twice"):
        parse_files([GOOD, GOOD])


@pytest.mark.parametrize("unit", ["../../etc/x.service", "--now.service", "a b.service", "x", "x.service\n"])
def test_a_unit_is_the_name_of_a_service(unit: str) -> None:
    with pytest.raises(ConfigurationError, match="is not the name of a service"):
        Service(unit=unit, engine="", enabled=True, restart=True, timeout_s=2)


def absent(machine: Machine) -> list[FileDifference]:
    """One file goes, another one changes."""
    machine.write(DROP_IN, "old drop-in", mode=0o640)
    return find_changes(machine.host, parse_files([{"path": MAIN, "content": "new", "mode": "0644"}], [DROP_IN, SPEC]))


def test_a_file_is_taken_away_with_the_change_of_the_others(machine: Machine) -> None:
    changes = absent(machine)

    swap_in(machine.host, changes)

    assert [change.after.path for change in changes] == [DROP_IN, MAIN]  # one that is not there is no change
    assert not (machine.root / DROP_IN.lstrip("/")).exists()
    assert find_changes(machine.host, [change.after for change in changes]) == []


def test_a_file_that_was_taken_away_is_put_back_with_the_others(machine: Machine) -> None:
    changes = absent(machine)
    swap_in(machine.host, changes)

    swap_back(machine.host, changes)

    assert machine.read(DROP_IN) == "old drop-in"
    assert (machine.root / DROP_IN.lstrip("/")).stat().st_mode & 0o777 == 0o640
    assert not (machine.root / MAIN.lstrip("/")).exists()


def test_nothing_is_taken_away_where_another_file_cannot_be_written(machine: Machine) -> None:
    with pytest.raises(FileSetError, match="all files are as they were"):
        swap_in(machine.host, absent(machine), FailingRename(1, errno.ENOSPC))

    assert machine.read(DROP_IN) == "old drop-in"


def test_a_path_to_take_away_is_checked_like_one_to_write() -> None:
    with pytest.raises(FileSetError, match="is not an absolute path"):
        parse_files([], ["/etc/../passwd"])


@pytest.mark.parametrize(
    ("there", "expected", "is_written"),
    [
        pytest.param("brought\n", hashlib.sha256(b"brought\n").hexdigest(), True, id="as expected"),
        pytest.param("another\n", hashlib.sha256(b"brought\n").hexdigest(), False, id="another text"),
        pytest.param(None, hashlib.sha256(b"brought\n").hexdigest(), False, id="the package brings none"),
        pytest.param(None, "", True, id="none, as expected"),
        pytest.param("brought\n", "", False, id="one where none was expected"),
    ],
)
def test_a_file_whose_precondition_is_not_met_is_left_out(
    there: str | None, expected: str, machine: Machine, *, is_written: bool
) -> None:
    if there is not None:
        machine.write("/etc/containerd/config.toml", there)
    files = [{"path": "/etc/grapnel/hook.json"}, {"path": "/etc/containerd/conf.d/99-nvidia.toml"}]
    preconditions = {"/etc/containerd/conf.d/99-nvidia.toml": {"/etc/containerd/config.toml": expected}}

    left = with_preconditions_met(machine.host, files, preconditions)

    assert left == (files if is_written else files[:1])
