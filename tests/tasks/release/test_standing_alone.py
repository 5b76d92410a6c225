"""What is downloaded by itself names no file that does not come with it."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.release.chart import pack_chart
from tasks.release.notes import notes_of, standing_alone

ROOT = Path(__file__).parents[3]
COLLECTION, CHART = ROOT / "playbooks", ROOT / "deploy" / "chart" / "grapnel"
LICENCE = ROOT / "LICENSE"
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")
NAMED = re.compile(r"`((?:docs|deploy)/[\w./-]+)`")
GALAXY: dict[str, Any] = yaml.safe_load((COLLECTION / "galaxy.yml").read_text())


def pages(folder: Path) -> list[Path]:
    return [page for page in folder.rglob("*.md") if "collections" not in page.relative_to(folder).parts]


def dead(page: Path, text: str) -> list[str]:
    """Return the links of a page that lead out of the collection, or to nothing in it."""
    targets = ((link, (page.parent / link).resolve()) for link in LINK.findall(text))
    return [link for link, target in targets if not (target.is_relative_to(COLLECTION) and target.exists())]


@pytest.mark.parametrize("page", pages(COLLECTION), ids=lambda page: str(page.relative_to(COLLECTION)))
def test_no_link_of_the_collection_leaves_it(page: Path) -> None:
    text = page.read_text()
    assert dead(page, text) == []
    assert [name for name in NAMED.findall(text) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("link", ["[a](../docs/hook.md)", "[a](roles/none.md)"], ids=["out", "to nothing"])
def test_a_dead_link_would_be_found(link: str) -> None:
    assert dead(COLLECTION / "README.md", link) == [link[4:-1]]


def test_what_the_manifest_of_the_collection_names_is_there() -> None:
    assert (COLLECTION / GALAXY["readme"]).is_file()
    licences = [GALAXY["license_file"]] if "license_file" in GALAXY else []
    assert all((COLLECTION / each).is_file() for each in licences)


def test_the_chart_is_packed_whole_and_always_the_same(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    first, second = (pack_chart(CHART, LICENCE, folder) for folder in (tmp_path, tmp_path / "again"))
    assert first.name == f"grapnel-{GALAXY['version']}.tgz"
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as archive:
        names = set(archive.getnames())
        page, licence = (archive.extractfile(f"grapnel/{name}") for name in ("README.md", "LICENSE"))
        assert page is not None
        assert licence is not None
        text = page.read().decode()
        assert licence.read() == LICENCE.read_bytes()
    expected = {path.relative_to(CHART.parent) for path in CHART.rglob("*") if path.is_file()}
    assert names == {str(path) for path in expected} - {"grapnel/.helmignore"} | {"grapnel/LICENSE"}
    assert [link for link in LINK.findall(text) if link.startswith("..")] == []
    assert "the controller (`docs/controller.md`)" in text
    assert [name for name in NAMED.findall(text) if not (ROOT / name).exists()] == []


def test_what_changed_names_the_pages_that_do_not_come_with_it() -> None:
    told = notes_of((ROOT / "CHANGELOG.md").read_text(), GALAXY["version"])
    assert LINK.findall(told) == []
    assert "(`docs/first-node.md`)" in told
    assert [name for name in NAMED.findall(told) if not (ROOT / name).exists()] == []


def test_a_link_that_stays_in_its_folder_is_kept() -> None:
    page = "[a](values.yaml), [b](#b), [c](../../rbac/README.md#d)"
    told = standing_alone(page, "deploy/chart/grapnel")
    assert told == "[a](values.yaml), [b](#b), c (`deploy/rbac/README.md`)"
