"""The page for readers says what the code says."""

from __future__ import annotations

from pathlib import Path

from provision.planning.driver.preflight import CODES, Severity
from provision.planning.driver.preflight.codes import NOUVEAU_LOADED

PAGE = Path(__file__).parents[4] / "docs" / "drivers" / "preflight.md"


def test_the_page_lists_every_code_with_its_text_and_remedy() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]

    assert rows == [
        f"| `{code.name}` | {code.severity.value} | {code.meaning} | {code.remedy} |"
        for severity in Severity
        for code in CODES
        if code.severity is severity
    ]


def test_every_code_has_a_name_of_its_own() -> None:
    assert len({code.name for code in CODES}) == len(CODES)


def test_what_keeps_nouveau_away_is_told_where_dracut_leaves_settings_out() -> None:
    """The remedy was a blacklist and `dracut -f` alone, by which Debian's dracut keeps nouveau in its disks."""
    page = "docs/systems/boot.md"

    assert page in NOUVEAU_LOADED.remedy
    assert 'omit_drivers+=" nouveau "' in (PAGE.parents[2] / page).read_text()
