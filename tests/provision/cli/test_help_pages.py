"""`grapnel help` prints the pages that messages name, and the help of verbs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from provision.cli import main

ROOT = Path(__file__).parents[3]


def named_pages() -> set[str]:
    """Return the pages that are named in the sources of what people run."""
    parts = ("provision", "plugin", "playbooks")
    sources = [path.read_text() for part in parts for path in (ROOT / part).rglob("*.py")]
    found = {name for text in sources for name in re.findall(r"(?<![\w/])docs/[a-z0-9/_-]+\.md", text)}
    return {name for name in found if (ROOT / name).exists()}


def test_every_page_that_is_named_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    named = named_pages()
    assert len(named) > 15
    for name in named:
        assert main(["help", name]) == 0
        assert capsys.readouterr().out == (ROOT / name).read_text()


@pytest.mark.parametrize("name", ["upgrade", "upgrade.md", "docs/upgrade.md"])
def test_a_page_has_short_names(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", name]) == 0
    assert capsys.readouterr().out.startswith("# ")


def test_all_pages_are_listed_by_the_names_that_print_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert {"docs/upgrade.md", "docs/drift.md", "docs/migrate/gpu-operator.md"} <= set(listed)
    assert not [name for name in listed if name.startswith(("docs/decisions/", "docs/contracts/"))]


def test_a_page_that_there_is_not_is_told_with_its_neighbour(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "docs/upgrde.md"]) == 1
    assert "`grapnel help docs/upgrade.md`" in capsys.readouterr().err


def test_a_verb_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "drift"]) == 0
    assert "usage: grapnel drift" in capsys.readouterr().out


def test_no_page_outside_of_the_documents_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "../README"]) == 1
    assert "there is no page" in capsys.readouterr().err
