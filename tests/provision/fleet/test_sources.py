"""Which inventory is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.declaration.fleet.errors import InventoryError
from provision.declaration.fleet.sources import USUAL_NAMES, choose_inventories

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.ini", "b.ini", "sub/c.ini"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("n1\n")
    return tmp_path


def choose(folder: Path, *given: str, **environ: str) -> list[str]:
    return [str(each).removeprefix(f"{folder}/") for each in choose_inventories(given, folder, environ)]


def test_what_is_given_wins_in_its_order(folder: Path) -> None:
    (folder / "hosts.yml").touch()
    assert choose(folder, "b.ini", "a.ini", ANSIBLE_INVENTORY="a.ini") == ["b.ini", "a.ini"]


def test_a_list_of_hosts_is_no_path(folder: Path) -> None:
    assert choose(folder, "n1,n2") == ["n1,n2"]


@pytest.mark.parametrize("present", [USUAL_NAMES[first:] for first in range(len(USUAL_NAMES))])
def test_usual_names_come_in_this_order(folder: Path, present: tuple[str, ...]) -> None:
    for name in present:
        (folder / name).touch()
    assert choose(folder, ANSIBLE_INVENTORY="a.ini") == [present[0]]


def test_ansibles_settings_come_last(folder: Path) -> None:
    (folder / "ansible.cfg").write_text("[defaults]\ninventory = a.ini, sub/c.ini ; both\n")
    assert choose(folder) == ["a.ini", "sub/c.ini"]
    assert choose(folder, ANSIBLE_INVENTORY="b.ini") == ["b.ini"]


def test_a_configuration_file_elsewhere_names_paths_beside_itself(folder: Path) -> None:
    (folder / "sub/ansible.cfg").write_text("[defaults]\ninventory = c.ini\n")
    (folder / "ansible.cfg").write_text("[defaults]\ninventory = a.ini\n")
    assert choose(folder, ANSIBLE_CONFIG=str(folder / "sub/ansible.cfg")) == ["sub/c.ini"]
    (folder / "ansible.cfg").unlink()
    (folder / "sub/ansible.cfg").rename(folder / "sub/.ansible.cfg")
    assert choose(folder, HOME=str(folder / "sub")) == ["sub/c.ini"]


def test_without_any_there_is_none(folder: Path) -> None:
    (folder / "ansible.cfg").write_text("[defaults]\nforks = 5\n")
    assert choose(folder) == []


def test_a_path_that_is_not_there_is_told(folder: Path) -> None:
    with pytest.raises(InventoryError, match=r"inventory missing\.ini does not exist"):
        choose(folder, "missing.ini")


def test_a_broken_configuration_file_is_told(folder: Path) -> None:
    (folder / "ansible.cfg").write_text("inventory = a.ini\n")
    with pytest.raises(InventoryError, match=r"ansible\.cfg cannot be read: file contains no section headers"):
        choose(folder)
