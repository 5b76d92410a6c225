"""Label selectors mean what they mean to kubectl."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from provision.declaration.spec.model.texts import LabelSelector as Text
from provision.declaration.spec.values.label_selector import LabelSelector, parse_selector

PATTERN = re.compile(get_args(Text)[1].pattern)
LABELS = {"app": "train", "tier": "gold", "example.com/empty": ""}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("app=train", True),
        ("app == train", True),
        ("app=web", False),
        ("app!=web", True),
        ("app != train", False),
        ("other!=x", True),
        ("app", True),
        ("other", False),
        ("!other", True),
        ("!app", False),
        ("app in (web, train)", True),
        ("app in (web)", False),
        ("other in (a)", False),
        ("app notin (web)", True),
        ("app notin (web,train)", False),
        ("other notin (a)", True),
        ("app=train,tier in (gold), !other", True),
        ("app=train,tier=silver", False),
        ("example.com/empty=", True),
        ("example.com/empty in (, x)", True),
        ("app=", False),
        ("", True),
    ],
)
def test_a_selector_selects(text: str, expected: bool) -> None:  # noqa: FBT001 - a column of the table
    assert PATTERN.search(text), "the declaration takes it"
    assert parse_selector(text).matches(LABELS) is expected


@pytest.mark.parametrize(
    "text",
    [
        "app=a=b",
        "app in web",
        "app in (web",
        "=a",
        "!",
        "app,",
        ",app",
        "app tier",
        "app in ()x",
        "a!b",
        "app=,,x",
        "in (a)",
    ],
)
def test_what_is_no_selector_is_refused(text: str) -> None:
    assert not PATTERN.search(text)
    with pytest.raises(ValueError, match="is no label selector"):
        parse_selector(text)


def test_without_requirements_everything_is_selected() -> None:
    assert LabelSelector().matches({})
