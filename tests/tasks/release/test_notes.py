"""A release says what changed."""

from __future__ import annotations

from pathlib import Path

import pytest

import provision
from tasks.release.notes import NotesError, notes_of

CHANGELOG = """# Changelog

## 0.2.0 (2026-12-01)

### Added

- One thing.

## 0.1.0 (2026-11-01)

- Another one.

## 0.0.1
"""


def test_the_section_of_a_version_is_taken() -> None:
    assert notes_of(CHANGELOG, "0.2.0") == "# grapnel 0.2.0\n\n### Added\n\n- One thing.\n"
    assert notes_of(CHANGELOG, "0.1.0") == "# grapnel 0.1.0\n\n- Another one.\n"


@pytest.mark.parametrize("version", ["0.3.0", "0.0.1", "0.2"])
def test_a_version_of_which_nothing_is_said_is_refused(version: str) -> None:
    with pytest.raises(NotesError, match=version):
        notes_of(CHANGELOG, version)


def test_the_changelog_has_a_section_for_this_version() -> None:
    text = (Path(__file__).parents[3] / "CHANGELOG.md").read_text()
    assert notes_of(text, provision.__version__).startswith(f"# grapnel {provision.__version__}\n")
