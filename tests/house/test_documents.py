"""Documents are part of the product: their links lead to existing files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SKIPPED = {".venv", "dist", "node_modules", ".git", ".ansible"}
LINK = re.compile(r"\]\(([^)#]+?)(?:#[^)]*)?\)")


def documents() -> list[Path]:
    """Return every Markdown file of the repository."""
    found = (path for path in ROOT.rglob("*.md") if not SKIPPED.intersection(path.relative_to(ROOT).parts))
    return sorted(found)


@pytest.mark.slow
@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_to_files(document: Path) -> None:
    targets = [
        link for link in LINK.findall(document.read_text()) if "://" not in link and not link.startswith("mailto:")
    ]

    missing = [target for target in targets if not (document.parent / target).exists()]

    assert missing == []


def test_every_decision_record_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = folder.joinpath("README.md").read_text()

    records = {path.name for path in folder.glob("0*.md")}

    assert records == set(re.findall(r"\((0\d+-[a-z0-9-]+\.md)\)", listed))


def test_each_role_has_a_path_of_at_most_seven_pages_which_the_front_page_has_too() -> None:
    front = (ROOT / "docs" / "README.md").read_text()
    rows = re.findall(r"^\| \[(I [^]]+)\]\((paths/[^)]+)\) \| (.*) \|$", front, re.MULTILINE)
    assert {row[1] for row in rows} == {f"paths/{path.name}" for path in (ROOT / "docs" / "paths").iterdir()}

    for title, name, listed in rows:
        path = ROOT / "docs" / name
        heading, *lines = path.read_text().splitlines()
        steps = [link for line in lines for link in LINK.findall(line)]
        assert heading == f"# {title}"
        assert len(steps) <= 7
        assert [(path.parent / step).resolve() for step in steps] == [
            (path.parents[1] / link).resolve() for link in LINK.findall(listed)
        ]
