from __future__ import annotations

import asyncio

from plugin.devices.allocation.table import EMPTY_TABLE, AllocationTable
from plugin.devices.resources import Offer
from plugin.kubelet.device_plugin.publisher import Publication, Publisher

HEALTHY = (Offer("GPU-0", is_healthy=True, numa_node=0),)
UNHEALTHY = (Offer("GPU-0", is_healthy=False, numa_node=0),)


def test_a_list_that_differs_wakes_those_who_show_the_old_one() -> None:
    async def scenario() -> None:
        publisher = Publisher(Publication(HEALTHY, EMPTY_TABLE), clock=lambda: 0.0)
        shown = publisher.current
        publisher.publish(Publication(UNHEALTHY, EMPTY_TABLE))
        assert shown.superseded.is_set()
        assert publisher.current.offers == UNHEALTHY

    asyncio.run(scenario())


def test_the_same_list_wakes_nobody_but_its_table_counts() -> None:
    async def scenario() -> None:
        publisher = Publisher(Publication(HEALTHY, EMPTY_TABLE), clock=lambda: 0.0)
        shown = publisher.current
        table = AllocationTable((), {"GPU-0": object()})  # type: ignore[dict-item] # never looked into here
        publisher.publish(Publication(HEALTHY, table))
        assert not shown.superseded.is_set()
        assert publisher.current.table is table
        publisher.publish(Publication(UNHEALTHY, table))
        assert shown.superseded.is_set()

    asyncio.run(scenario())


def test_an_empty_list_that_is_the_last_ends_streams_of_an_empty_one() -> None:
    async def scenario() -> None:
        publisher = Publisher(Publication((), EMPTY_TABLE), clock=lambda: 0.0)
        shown = publisher.current
        publisher.publish(Publication((), EMPTY_TABLE, is_last=True))
        assert shown.superseded.is_set()

    asyncio.run(scenario())


def test_streams_are_counted_while_they_are_open() -> None:
    async def scenario() -> None:
        moments = iter([1.0, 2.0, 3.0])
        publisher = Publisher(Publication((), EMPTY_TABLE), clock=lambda: next(moments))
        with publisher.stream():
            assert (publisher.open_streams, publisher.last_stream_change) == (1, 2.0)
        assert (publisher.open_streams, publisher.last_stream_change) == (0, 3.0)
        assert publisher.stream_ended.is_set()

    asyncio.run(scenario())


def test_a_list_is_shown_when_every_open_stream_has_it() -> None:
    async def scenario() -> None:
        publisher = Publisher(Publication(HEALTHY, EMPTY_TABLE), clock=lambda: 0.0)
        await publisher.shown(to_at_least=0)
        with publisher.stream() as quick, publisher.stream() as slow:
            quick.sent(publisher.current)
            slow.sent(publisher.current)
            await publisher.shown(to_at_least=2)
            publisher.publish(Publication(UNHEALTHY, EMPTY_TABLE))
            waiting = asyncio.ensure_future(publisher.shown(to_at_least=0))
            quick.sent(publisher.current)
            await asyncio.sleep(0.01)
            assert not waiting.done()
            slow.sent(publisher.current)
            await asyncio.wait_for(waiting, 10)

    asyncio.run(scenario())


def test_a_stream_that_ends_keeps_nobody_waiting() -> None:
    async def scenario() -> None:
        publisher = Publisher(Publication(HEALTHY, EMPTY_TABLE), clock=lambda: 0.0)
        with publisher.stream():
            waiting = asyncio.ensure_future(publisher.shown(to_at_least=0))
            await asyncio.sleep(0.01)
            assert not waiting.done()
        await asyncio.wait_for(waiting, 10)

    asyncio.run(scenario())


def test_a_first_stream_is_waited_for_where_one_is_wanted() -> None:
    async def scenario() -> None:
        publisher = Publisher(Publication(HEALTHY, EMPTY_TABLE), clock=lambda: 0.0)
        waiting = asyncio.ensure_future(publisher.shown(to_at_least=1))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        with publisher.stream() as stream:
            stream.sent(publisher.current)
            await asyncio.wait_for(waiting, 10)

    asyncio.run(scenario())
