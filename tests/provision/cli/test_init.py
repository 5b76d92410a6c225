"""`grapnel init` writes a whole file, and never over another one by accident."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from provision.cli import main
from provision.declaration.spec.template import FIRST_KEYS, render_first_keys, render_template

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_writes_the_file_and_says_what_comes_next(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init"]) == 0
    assert (folder / "grapnel.yaml").read_text() == render_first_keys()
    assert [each.name for each in folder.iterdir()] == ["grapnel.yaml"]
    assert "grapnel check" in capsys.readouterr().out


def test_every_key_is_written_to_who_asks_for_it(folder: Path) -> None:
    assert main(["init", "--every-key"]) == 0
    assert (folder / "grapnel.yaml").read_text() == render_template()


def test_every_key_and_what_is_there_are_two_things(folder: Path) -> None:
    assert main(["init", "--every-key", "n1"]) == 2
    assert list(folder.iterdir()) == []


def test_plain_looks_at_no_machine(folder: Path) -> None:
    (folder / "inventory.yaml").write_text("all: {hosts: {n1: {ansible_host: 192.0.2.1}}}\n")
    assert main(["init", "--plain"]) == 0
    assert (folder / "grapnel.yaml").read_text() == render_first_keys()


def test_its_keys_are_those_that_matter_first(folder: Path) -> None:
    assert main(["init"]) == 0
    spec = yaml.safe_load((folder / "grapnel.yaml").read_text())["spec"]
    assert {f"{section}.{key}" for section, keys in spec.items() for key in keys} == set(FIRST_KEYS)


@pytest.mark.parametrize("words", [[], ["--every-key"]])
def test_its_file_is_complete_but_for_the_version(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(["init", "-f", "new.yaml", *words])
    assert main(["check", "-f", "new.yaml"]) == 1
    assert capsys.readouterr().err.count("error: ") == 2  # the version, and the sum


def test_a_file_that_is_there_stays(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "grapnel.yaml").write_text("mine")
    assert main(["init"]) == 1
    assert (folder / "grapnel.yaml").read_text() == "mine"
    assert [each.name for each in folder.iterdir()] == ["grapnel.yaml"]
    assert "--force" in capsys.readouterr().err


def test_force_writes_over_it(folder: Path) -> None:
    (folder / "grapnel.yaml").write_text("mine")
    assert main(["init", "--force"]) == 0
    assert (folder / "grapnel.yaml").read_text() == render_first_keys()


def test_a_link_that_leads_nowhere_is_there_too(folder: Path) -> None:
    (folder / "grapnel.yaml").symlink_to("elsewhere")
    assert main(["init"]) == 1
    assert not (folder / "elsewhere").exists()


@pytest.mark.parametrize(("path", "words"), [(".", "is a folder"), ("missing/x.yaml", "no such file or directory")])
def test_places_where_no_file_can_be_are_told(path: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--force", "-f", path]) == 1
    assert words in capsys.readouterr().err
