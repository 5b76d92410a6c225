"""Pages that name tests: their rows, the tests that a row names, and whether those are there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
TEST: Final = re.compile(r"`(tests/[a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`")
REPORT: Final = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull)/(\d+)")


def rows(page: Path) -> list[str]:
    """Return what people met, a line each; tables of a page that are about something else do not count."""
    lines = page.read_text().splitlines()
    heads = [number for number, line in enumerate(lines) if line.startswith("| what people met ")]
    return [line for head in heads for line in _rows_below(lines[head + 2 :])]


def _rows_below(lines: list[str]) -> list[str]:
    end = next((number for number, line in enumerate(lines) if not line.startswith("| ")), len(lines))
    return lines[:end]


def missing_tests(row: str) -> list[str]:
    """Return the tests that a row names and that pytest would not collect, or that somebody has switched off."""
    return [f"{path}::{name}" for path, name in TEST.findall(row) if name not in names_in(path)]


def reports_of(numbers: dict[str, str]) -> set[tuple[str, str]]:
    """Return repository and number of each report of a table of numbers by repository."""
    return {(repository, number) for repository, listed in numbers.items() for number in listed.split()}


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
