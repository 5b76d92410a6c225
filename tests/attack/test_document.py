"""The tables of attacks name tests that are there, and know how many answers there are."""

from __future__ import annotations

import re
from pathlib import Path

from tests.attack.conftest import ALL
from tests.journey.conftest import ROOT

FOLDER = ROOT / "docs/security"
DOCUMENT = "\n".join(page.read_text() for page in (FOLDER / "attacks.md", *sorted(FOLDER.glob("attacks/*.md"))))


def test_every_test_that_is_named_is_there() -> None:
    source = "".join(path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py"))

    named = set(re.findall(r"`(test_\w+)`", DOCUMENT))

    assert named
    assert {name for name in named if f"def {name}(" not in source} == set()


def test_the_number_of_answers_is_told() -> None:
    assert f"{len(ALL) // 10 * 10} of them" in DOCUMENT
