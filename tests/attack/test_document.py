"""The table of attacks names tests that are there, and knows how many answers there are."""

from __future__ import annotations

import re
from pathlib import Path

from tests.attack.conftest import ALL
from tests.journey.conftest import ROOT

DOCUMENT = (ROOT / "docs/security/attacks.md").read_text()


def test_every_test_that_is_named_is_there() -> None:
    source = "".join(path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py"))

    named = set(re.findall(r"`(test_\w+)`", DOCUMENT))

    assert named
    assert {name for name in named if f"def {name}(" not in source} == set()


def test_the_number_of_answers_is_told() -> None:
    assert f"{len(ALL) // 10 * 10} of them" in DOCUMENT
