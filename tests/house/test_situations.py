"""The page of situations: each one that is known has its tests, and each test that is named is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "upgrade" / "situations.md"
FOLDER: Final = ROOT / "tests" / "provision" / "rollout" / "situations"
TEST: Final = re.compile(r"`(tests/[a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`")
REPORT: Final = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull)/(\d+)")
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


def rows() -> list[str]:
    """Return the situations of the page, a line each."""
    lines = PAGE.read_text().splitlines()
    return [line for line in lines if line.startswith("| ") and not line.startswith("| what people met ")]


@cache
def names_in(path: str) -> frozenset[str]:
    """Return the tests that pytest collects from a file and that nobody has switched off."""
    file = ROOT / path
    if not file.name.startswith("test_") or not file.is_file():
        return frozenset()
    return frozenset(
        each.name
        for each in ast.parse(file.read_text()).body
        if isinstance(each, ast.FunctionDef)
        and each.name.startswith("test_")
        and not any(map(_is_skip, each.decorator_list))
    )


def _is_skip(decorator: ast.expr) -> bool:
    words = ast.unparse(decorator)
    return words.startswith(("pytest.mark.skip(", "pytest.mark.xfail")) or words == "pytest.mark.skip"


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[2:60])
def test_every_situation_has_a_test_that_is_there(row: str) -> None:
    named = TEST.findall(row)

    assert named, "nothing holds grapnel to this"
    assert [f"{path}::{name}" for path, name in named if name not in names_in(path)] == []


def test_every_report_is_on_the_page() -> None:
    known = {(repository, number) for repository, numbers in REPORTS.items() for number in numbers.split()}

    assert known - set(REPORT.findall("\n".join(rows()))) == set()


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
