"""What is told of a bug is in the status of a node, where many read it: no value of a file is."""

from __future__ import annotations

import json

import pytest

from provision.base.bug import describe_bug, name_bug
from provision.base.printable import printable

PASSWORD = "hunter2hunter2"  # noqa: S105 - what must not be seen


@pytest.mark.parametrize(
    "error",
    [
        KeyError(PASSWORD),
        KeyError(f"{PASSWORD}'s"),
        KeyError(f"'{PASSWORD}\""),
        ValueError(f"could not convert string to float: {PASSWORD!r}"),
        ValueError(f"{'x' * 5000!r} and {PASSWORD!r}"),
        ValueError(f"can't read {json.dumps(PASSWORD)}"),
        ValueError(f"no end of 'this: {PASSWORD}"),
    ],
    ids=lambda error: str(error)[:40],
)
def test_what_an_exception_quotes_is_not_told(error: Exception) -> None:
    for told in (describe_bug(error, "planning n1"), name_bug(error, "a run")):
        assert PASSWORD not in told
        assert type(error).__name__ in told


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TypeError("'int' object is not subscriptable"), "TypeError: 'int' object is not subscriptable"),
        (ValueError("can't go back"), "ValueError: can't go back"),
        (AttributeError("'str' object has no attribute 'x'"), "AttributeError: 'str' object has no attribute …"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_what_it_says_itself_is(error: Exception, reason: str) -> None:
    assert describe_bug(error, "planning n1").startswith(f"a bug while planning n1: {reason}: run it again")


def test_a_bug_that_is_only_named_says_where_it_is() -> None:
    with pytest.raises(TypeError) as caught:
        printable(PASSWORD, limit=PASSWORD)  # type: ignore[arg-type]
    assert name_bug(caught.value, "a run").startswith("a bug in a run: TypeError (provision/base/printable.py, line ")
