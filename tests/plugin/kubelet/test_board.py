from __future__ import annotations

import asyncio

from plugin.allocation import EMPTY_TABLE, AllocationTable
from plugin.kubelet.board import Board, Publication
from plugin.resources import Offer

HEALTHY = (Offer("GPU-0", is_healthy=True, numa_node=0),)
UNHEALTHY = (Offer("GPU-0", is_healthy=False, numa_node=0),)


def test_a_list_that_differs_wakes_those_who_show_the_old_one() -> None:
    async def scenario() -> None:
        board = Board(Publication(HEALTHY, EMPTY_TABLE), clock=lambda: 0.0)
        shown = board.current
        board.publish(Publication(UNHEALTHY, EMPTY_TABLE))
        assert shown.superseded.is_set()
        assert board.current.offers == UNHEALTHY

    asyncio.run(scenario())


def test_the_same_list_wakes_nobody_but_its_table_counts() -> None:
    async def scenario() -> None:
        board = Board(Publication(HEALTHY, EMPTY_TABLE), clock=lambda: 0.0)
        shown = board.current
        table = AllocationTable((), {"GPU-0": object()})  # type: ignore[dict-item] # never looked into here
        board.publish(Publication(HEALTHY, table))
        assert not shown.superseded.is_set()
        assert board.current.table is table
        board.publish(Publication(UNHEALTHY, table))
        assert shown.superseded.is_set()

    asyncio.run(scenario())


def test_an_empty_list_that_is_the_last_ends_streams_of_an_empty_one() -> None:
    async def scenario() -> None:
        board = Board(Publication((), EMPTY_TABLE), clock=lambda: 0.0)
        shown = board.current
        board.publish(Publication((), EMPTY_TABLE, is_last=True))
        assert shown.superseded.is_set()

    asyncio.run(scenario())


def test_streams_are_counted_while_they_are_open() -> None:
    async def scenario() -> None:
        moments = iter([1.0, 2.0, 3.0])
        board = Board(Publication((), EMPTY_TABLE), clock=lambda: next(moments))
        with board.stream():
            assert (board.open_streams, board.last_stream_change) == (1, 2.0)
        assert (board.open_streams, board.last_stream_change) == (0, 3.0)
        assert board.stream_ended.is_set()

    asyncio.run(scenario())
