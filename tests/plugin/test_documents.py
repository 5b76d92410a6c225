"""Documents: every fault is named, with the member that it is in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugin.base.documents import (
    list_of,
    member,
    members,
    optional,
    parse_known,
    read_object,
    read_versioned,
    seconds,
    text,
    truth,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(b'{"a": 1', "not valid json", id="cut off"),
        pytest.param(b"[" * 100_000, "not valid json: nested without end", id="nested without end"),
        pytest.param(b"\xff", "not utf-8 text", id="not text"),
        pytest.param(b'{"a": 1, "a": 2}', "a key is given twice", id="a key twice"),
        pytest.param(b'{"b": {"a": 1, "a": 2}}', "a key is given twice", id="a key twice inside"),
        pytest.param(b"[]", "must be a json object", id="a list"),
        pytest.param(b" " * 101, "larger than 100 bytes", id="too large"),
    ],
)
def test_what_is_no_document_is_refused(content: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_object(content, 100 if len(content) < 1000 else 1_000_000)


@pytest.mark.parametrize("content", [b'{"schema": "b"}', b"{}", b"[]", b"1"])
def test_a_document_of_another_schema_is_refused(content: bytes) -> None:
    assert read_versioned(b'{"schema": "a"}', 100, "a") == {"schema": "a"}
    with pytest.raises(ValueError, match='schema is not "a"'):
        read_versioned(content, 100, "a")


@pytest.mark.parametrize(
    ("parse", "value", "problem"),
    [
        pytest.param(members, [], "must be an object", id="a list is no object"),
        pytest.param(truth, 1, "must be true or false", id="a number is no truth"),
        pytest.param(text(), None, "must be a text", id="null is no text"),
        pytest.param(text(2), "abc", "must be a text of at most 2 characters", id="a text that is too long"),
        pytest.param(whole(), True, "must be a whole number from 0", id="true is no number"),
        pytest.param(whole(), 1.0, "must be a whole number from 0", id="a fraction is no whole number"),
        pytest.param(whole(1, 5), 5, "must be a whole number from 1 to 4", id="a number beyond the end"),
        pytest.param(seconds(10), float("nan"), "must be a number of seconds", id="not a number"),
        pytest.param(seconds(10), True, "must be a number of seconds", id="true is no time"),
        pytest.param(list_of(whole()), {}, "must be a list", id="an object is no list"),
        pytest.param(list_of(whole(), 1), [1, 2], "must be a list of at most 1", id="a list that is too long"),
        pytest.param(list_of(whole()), ["a"], "must be a whole number", id="an item of another kind"),
        pytest.param(optional(truth), 0, "must be true or false", id="zero is not null"),
    ],
)
def test_a_value_of_another_kind_is_refused(parse: Callable[[object], object], value: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse(value)


def test_values_are_returned_as_they_are() -> None:
    assert (truth(value=True), text(3)("abc"), whole(1, 5)(4), seconds(10)(2)) == (True, "abc", 4, 2.0)
    assert (list_of(whole())([1, 2]), optional(text())(None), optional(text())("a")) == ((1, 2), None, "a")


def test_a_member_is_named_in_its_fault_and_may_have_a_default() -> None:
    assert member({"a": 1}, "a", whole()) == 1
    assert member({}, "a", whole(), None) is None
    with pytest.raises(ValueError, match="a is missing"):
        member({}, "a", whole())
    with pytest.raises(ValueError, match="a must be a whole number"):
        member({"a": None}, "a", whole(), 0)
    with pytest.raises(ValueError, match="must be an object"):
        member([], "a", whole())


def test_all_faults_are_found_and_unknown_members_are_left_to_the_caller() -> None:
    parsers = {"a": whole(), "b": truth, "c": text()}
    assert parse_known({"a": -1, "b": 2, "c": "x", "d": 4}, parsers) == (
        {"c": "x"},
        ["a: must be a whole number from 0", "b: must be true or false"],
    )
