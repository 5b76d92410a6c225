"""The page on security names tests that exist, and every test of a published hole."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs/hook/security.md"
HOLES = {
    "2024_0132",
    "2024_0133",
    "2024_0134",
    "2024_0135",
    "2024_0136",
    "2024_0137",
    "2025_23359",
    "2025_23266",
    "2025_23267",
    "2026_24260",
}


def test_every_published_hole_has_a_test_that_the_page_names() -> None:
    written = {
        name for path in HERE.glob("test_*.py") for name in re.findall(r"def (test_cve_\w+)\(", path.read_text())
    }
    named = set(re.findall(r"test_cve_\w+", PAGE.read_text(encoding="utf-8")))
    assert named == written
    assert {"_".join(name.split("_")[2:4]) for name in written} == HOLES
    assert len(written) == len(HOLES)
