from __future__ import annotations

import pytest

from plugin.devices.health.model import Class
from plugin.devices.health.xid import ROWS, XIDS, find_xid

# What Google's plugin makes a condition of the node, but for 63: a row or page that was retired as it should be.
CRITICAL_ELSEWHERE = (48, 64, 79, 119, 120, 123, 140)
IGNORED_BY_NVIDIAS_PLUGIN = (13, 31, 43, 45, 68, 109)


@pytest.mark.parametrize("number", CRITICAL_ELSEWHERE)
def test_what_others_call_critical_condemns_and_does_not_just_pass(number: int) -> None:
    assert find_xid(number).kind >= Class.RESET


@pytest.mark.parametrize("number", IGNORED_BY_NVIDIAS_PLUGIN)
def test_what_nvidias_plugin_ignores_is_an_applications_error(number: int) -> None:
    assert (find_xid(number).kind, find_xid(number).source) == (Class.APPLICATION, "device plugin")


def test_a_number_in_no_list_may_pass() -> None:
    assert 4711 not in XIDS
    assert find_xid(4711).kind is Class.PASSING


def test_every_number_has_a_meaning_and_a_source() -> None:
    assert all(row.number == number and row.meaning and row.source for number, row in XIDS.items())


def test_no_number_stands_in_two_rows() -> None:
    assert len({row.number for row in ROWS}) == len(ROWS)
