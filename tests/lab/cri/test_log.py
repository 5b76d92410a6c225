from __future__ import annotations

from typing import TYPE_CHECKING

from lab.cri.log import parse_log, read_log

if TYPE_CHECKING:
    from pathlib import Path

TIME = "2026-01-02T03:04:05.678901234Z"


def test_both_streams_are_read_in_order() -> None:
    assert parse_log(f"{TIME} stdout F one\n{TIME} stderr F two\n") == "one\ntwo\n"


def test_parts_of_a_long_line_are_joined() -> None:
    assert parse_log(f"{TIME} stdout P long \n{TIME} stdout F line\n") == "long line\n"


def test_spaces_and_empty_lines_are_kept() -> None:
    assert parse_log(f"{TIME} stdout F   indented\n{TIME} stdout F \n") == "  indented\n\n"


def test_a_line_that_is_cut_off_is_not_read() -> None:
    assert parse_log(f"{TIME} stdout F whole\n{TIME} std") == "whole\n"


def test_no_log_is_no_output(tmp_path: Path) -> None:
    assert not read_log(tmp_path / "absent.log")
