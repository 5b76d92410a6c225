"""Reasons of 600 characters were repeated in every table, condition and Event."""

from __future__ import annotations

import pytest

from provision.base.printable import MAX_BRIEF, brief

LONG = "x" * 90


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("", "", id="nothing"),
        pytest.param("n" * MAX_BRIEF, "n" * MAX_BRIEF, id="what is short enough"),
        pytest.param(f"{LONG}; {LONG}; {LONG}", f"{LONG}; {LONG} …", id="parts"),
        pytest.param(f"It broke: {LONG}. {LONG}. And more.", f"It broke: {LONG}. {LONG} …", id="sentences"),
        pytest.param(f"a; {LONG} {LONG} {LONG}", f"a; {LONG} {LONG} …", id="a part that says too little"),
        pytest.param("n" * 900, "n" * MAX_BRIEF + " …", id="one word"),
    ],
)
def test_a_reason_ends_where_a_part_of_it_does(text: str, shown: str) -> None:
    assert brief(text) == shown
