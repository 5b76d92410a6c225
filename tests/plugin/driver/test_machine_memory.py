"""The memory of a machine, as its kernel says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugin.driver.machine_memory import read_memory

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("MemTotal:       127600748 kB\nMemFree:        1 kB\n", 127600748 * 1024, id="a DGX Spark"),
        pytest.param("MemFree:        1 kB\n", None, id="no total"),
        pytest.param("MemTotal:\n", None, id="no number"),
        pytest.param("MemTotal: much kB\n", None, id="no digits"),
    ],
)
def test_the_total_is_read(tmp_path: Path, text: str, expected: int | None) -> None:
    (tmp_path / "meminfo").write_text(text)
    assert read_memory(tmp_path) == expected


def test_a_machine_without_the_file_says_nothing(tmp_path: Path) -> None:
    assert read_memory(tmp_path) is None
