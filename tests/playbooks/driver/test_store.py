"""What is staged is used only as it was sealed, and only from a folder that nobody but root has made."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.before import way_back
from ansible_collections.grapnel.node.plugins.module_utils.driver.record import seal, store
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.journal import Journal, read_journal
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.seal import SealError
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.playbooks.driver.conftest import Staged
    from tests.playbooks.fakes import Machine

FOLDER = "/srv/set"


def add(folder: Path) -> None:
    (folder / "packages" / "more.deb").write_text("more")


def change(folder: Path) -> None:
    (folder / "packages" / "a.deb").write_text("other")


def remove(folder: Path) -> None:
    (folder / "packages" / "a.deb").unlink()


def link(folder: Path) -> None:
    (folder / "packages" / "a.deb").unlink()
    (folder / "packages" / "a.deb").symlink_to("/etc/passwd")


def cut_short(folder: Path) -> None:
    (folder / "complete").write_text('{"packages/a.deb": "')


def unseal(folder: Path) -> None:
    (folder / "complete").unlink()


TAMPERED: dict[str, tuple[Callable[[Path], None], str]] = {
    "a file more": (add, r"packages/more\.deb was added"),
    "another content": (change, r"packages/a\.deb was changed"),
    "a file less": (remove, r"packages/a\.deb is missing"),
    "a link in its place": (link, r"a\.deb is neither a file nor a folder"),
    "a seal cut short": (cut_short, "complete cannot be read"),
    "no seal": (unseal, "complete cannot be read"),
}


@pytest.mark.parametrize(("tamper", "reason"), TAMPERED.values(), ids=TAMPERED)
def test_a_set_that_is_not_as_it_was_sealed_is_refused(
    tamper: Callable[[Path], None], reason: str, machine: Machine
) -> None:
    machine.write(f"{FOLDER}/packages/a.deb", "a")
    machine.write(f"{FOLDER}/change.json", "{}")
    seal.seal(machine.host, FOLDER)
    seal.require_sealed(machine.host, FOLDER)

    tamper(machine.root / FOLDER[1:])

    with pytest.raises(SealError, match=reason):
        seal.require_sealed(machine.host, FOLDER)


def test_the_store_is_for_root_alone(machine: Machine) -> None:
    store.open_store(machine.host)

    assert [(machine.root / each[1:]).stat().st_mode & 0o777 for each in (store.HOME, store.STAGED)] == [0o700, 0o700]


@pytest.mark.parametrize("place", [store.HOME, store.STAGED, "/var/lib/grapnel"])
def test_a_link_in_the_store_s_place_is_refused(
    place: str, machine: Machine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    link = machine.root / place[1:]
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path_factory.mktemp("elsewhere"))

    with pytest.raises(StoreError, match=f"{place} is a link or no folder"):
        store.open_store(machine.host)


def test_a_folder_that_others_can_write_is_refused(machine: Machine) -> None:
    store.open_store(machine.host)
    (machine.root / "var/lib/grapnel").chmod(0o777)

    with pytest.raises(StoreError, match="can be written by users other than root"):
        store.open_store(machine.host)


@pytest.mark.parametrize("name", ["", "../../../etc", "9AE02AF1BE31", "9ae02af1be3", "9ae02af1be311", "9ae02af1be31\n"])
def test_what_is_no_change_s_name_becomes_no_path(name: str) -> None:
    with pytest.raises(StoreError, match="is not the name of a driver change"):
        store.staged_folder(name)


def test_a_set_under_another_name_is_refused(upgrade: Staged) -> None:
    host, other = upgrade.machine.host(), "0" * 12
    place = upgrade.machine.root / store.STAGED[1:]
    (place / upgrade.id).rename(place / other)

    with pytest.raises(StoreError, match=f"holds driver change {upgrade.id}: stage {other} again"):
        store.require_staged(host, other)


def test_the_last_two_sets_are_kept(machine: Machine) -> None:
    store.open_store(machine.host)
    names = ["a" * 12, "b" * 12, "c" * 12]
    for name in names:
        machine.write(f"{store.STAGED}/{name}/complete", "{}")
        store.advance(machine.host, name)

    assert (store.current_change(machine.host), store.previous_change(machine.host)) == (names[2], names[1])
    assert store.staged_changes(machine.host) == names[1:]

    store.retreat(machine.host, names[2])
    assert (store.current_change(machine.host), store.previous_change(machine.host)) == (names[1], None)


def test_files_are_put_back_as_they_were_to_the_byte(machine: Machine) -> None:
    place = machine.write("/etc/modprobe.d/a.conf", "")
    place.write_bytes(b"options \xff\n")
    place.chmod(0o640)
    before = way_back.find_files(machine.host, ["/etc/modprobe.d/a.conf", "/etc/modprobe.d/new.conf"])
    way_back.write_files(machine.host, "/srv/before", before)
    place.write_text("ours\n")
    machine.write("/etc/modprobe.d/new.conf", "ours\n")

    changed = way_back.put_back(machine.host, way_back.read_files(machine.host, "/srv/before"))
    again = way_back.put_back(machine.host, way_back.read_files(machine.host, "/srv/before"))

    assert (place.read_bytes(), place.stat().st_mode & 0o777) == (b"options \xff\n", 0o640)
    assert not (machine.root / "etc/modprobe.d/new.conf").exists()
    assert (changed, again) == (["/etc/modprobe.d/a.conf", "/etc/modprobe.d/new.conf"], [])


def test_a_link_among_the_files_is_refused_while_it_can_be(machine: Machine) -> None:
    (machine.root / "etc").mkdir()
    (machine.root / "etc/a").symlink_to("/etc/b")

    with pytest.raises(StoreError, match="/etc/a is not a plain file"):
        way_back.find_files(machine.host, ["/etc/a"])


def test_half_a_line_of_the_journal_is_left_out_and_not_continued(upgrade: Staged) -> None:
    host = upgrade.machine.host()
    journal = Journal(host, "run", upgrade.machine.clock())
    journal.write("check", "begin")
    place = upgrade.machine.root / store.JOURNALS[1:] / "run.jsonl"
    with place.open("a") as stream:
        stream.write('{"time": "2026')
    os.sync()

    Journal(host, "run", upgrade.machine.clock()).write("mark", "begin")

    assert [event["step"] for event in read_journal(host, "run")] == ["check", "mark"]
