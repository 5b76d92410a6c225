"""The page of what suites of others test: each of its rows names tests that there are."""

from __future__ import annotations

from typing import Final

import pytest

from tests.house.named_tests import ROOT, TEST, missing_tests

PAGE: Final = ROOT / "docs" / "dra" / "suites.md"
ROWS: Final = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")][1:]


@pytest.mark.parametrize("row", [pytest.param(row, id=row[2:40]) for row in ROWS])
def test_each_row_names_tests_that_there_are(row: str) -> None:
    assert TEST.findall(row)
    assert missing_tests(row) == []
