"""Lines of a run's record: written and read again, also by the release before."""

from __future__ import annotations

import pytest

from provision.report.runs.events import decode, encode
from tests.provision.runs.story import night


def test_every_event_is_read_as_it_was_written() -> None:
    for event in night():
        line = encode(event)
        assert line.count(b"\n") == 1
        assert decode(line) == event


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(encode(night()[1])[:-9], id="cut off"),
        pytest.param(b'{"event": "of-the-future", "time": "2026-05-04T02:40:00Z"}\n', id="of a later release"),
        pytest.param(b"\xff\xfe\n", id="no text"),
        pytest.param(b"[" * 100_000, id="deeply nested"),
        pytest.param(b"", id="empty"),
    ],
)
def test_a_line_that_is_not_understood_is_skipped(line: bytes) -> None:
    assert decode(line) is None


def test_keys_of_a_later_release_are_skipped() -> None:
    line = encode(night()[-1])
    assert decode(line.replace(b'"exit_code":1', b'"exit_code":1,"weather":"fine"')) == night()[-1]
