"""The page of situations: each one that is known has its tests, and each test that is named is there."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.house.named_tests import REPORT, ROOT, TEST, missing_tests, names_in, reports_of, rows

PAGE: Final = ROOT / "docs" / "upgrade" / "situations.md"
FOLDER: Final = ROOT / "tests" / "provision" / "rollout" / "situations"
# What people had reported when this was written, by repository.
REPORTS: Final = {
    "NVIDIA/gpu-operator": """
        2509 626 688 1567 2166 83 180 367 416 2570 901 316 705 831 2527 910 682 933 1203 2884 155 1215 594 712 991 432
        91 337 411 703 1501 476 666 2363 126 2549 544 898 393
    """,
    "NVIDIA/gpu-driver-container": "869",
    "NVIDIA/k8s-driver-manager": "166",
    "NVIDIA/deepops": "1308 1016 1017",
    "ROCm/gpu-operator": "605 110",
}


@pytest.mark.parametrize("row", rows(PAGE), ids=lambda row: row[2:60])
def test_every_situation_has_a_test_that_is_there(row: str) -> None:
    assert TEST.findall(row), "nothing holds grapnel to this"
    assert missing_tests(row) == []


def test_every_report_is_on_the_page() -> None:
    assert reports_of(REPORTS) - set(REPORT.findall("\n".join(rows(PAGE)))) == set()


def test_every_test_of_a_situation_is_on_the_page() -> None:
    named = set(TEST.findall(PAGE.read_text()))
    files = [str(path.relative_to(ROOT)) for path in FOLDER.glob("test_*.py")]
    found = {(path, name) for path in files for name in names_in(path)}

    assert files
    assert found - named == set()


def test_a_test_that_is_not_there_is_noticed() -> None:
    here = str(Path(__file__).relative_to(ROOT))

    assert "test_a_test_that_is_not_there_is_noticed" in names_in(here)
    assert "test_nobody_has_written_this" not in names_in(here)
    assert not names_in("tests/house/nowhere.py")
    assert missing_tests(f"| `{here}::test_nobody_has_written_this` |") == [f"{here}::test_nobody_has_written_this"]
