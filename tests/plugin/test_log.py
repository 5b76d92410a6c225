from __future__ import annotations

import io
import logging

import pytest

from plugin.base.log import Logger, configure, format_line


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        pytest.param("plain", "key=plain", id="a word"),
        pytest.param("two words", 'key="two words"', id="words"),
        pytest.param("", 'key=""', id="nothing"),
        pytest.param("a\nlevel=error", 'key="a\\nlevel=error"', id="a forged line"),
        pytest.param("\x1b[2J", 'key="\\u001b[2J"', id="a terminal sequence"),
        pytest.param('say "x"', 'key="say \\"x\\""', id="quotes"),
        pytest.param(7, "key=7", id="a number"),
    ],
)
def test_values_stay_on_their_line(value: object, shown: str) -> None:
    assert format_line("info", "m", [("key", value)]) == f"level=info msg=m {shown}"


def test_a_huge_value_is_clipped() -> None:
    assert len(format_line("info", "m", [("key", "x" * 10_000)])) < 1100


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def test_a_standing_problem_is_said_once_and_its_end_too(stream: io.StringIO) -> None:
    configure(stream, debug=False)
    logger = Logger()
    for message in ("gone", "gone", "", "", "gone"):
        logger.standing("driver", message)
    assert stream.getvalue().splitlines() == [
        "level=warning msg=gone",
        "level=info msg=resolved topic=driver",
        "level=warning msg=gone",
    ]


@pytest.mark.parametrize("debug", [False, True], ids=["without debug", "with debug"])
def test_records_of_libraries_have_the_same_form(stream: io.StringIO, debug: bool) -> None:  # noqa: FBT001 - a table column
    configure(stream, debug=debug)
    try:
        int("x")
    except ValueError:
        logging.getLogger("grpc").exception("failed")
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("level=error msg=failed logger=grpc error=")
    assert "ValueError" in lines[0]
    assert ("Traceback" in stream.getvalue()) is debug


def test_what_is_resolved_is_not_kept() -> None:
    logger = Logger()
    for number in range(100):
        logger.standing(f"claim {number}", "the driver is away")
        logger.standing(f"claim {number}")
    assert logger._standing == {}
