from __future__ import annotations

import asyncio
import subprocess

from plugin.sharing.mps.programs import ExitWatch


def start(*command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command)


def is_watching(watch: ExitWatch) -> bool:
    return watch.is_watching


def test_an_end_is_told_once_and_at_once() -> None:
    async def run() -> None:
        ended = asyncio.Event()
        watch = ExitWatch(ended.set)
        process = start("sleep", "600")
        watch.watch(process.pid)
        watch.watch(process.pid)
        assert is_watching(watch)
        process.kill()
        await asyncio.wait_for(ended.wait(), 60)
        assert not is_watching(watch)
        ended.clear()
        watch.watch(process.pid)  # as systemd may name it a moment longer
        assert not is_watching(watch)
        await asyncio.sleep(0)
        assert not ended.is_set()
        process.wait()
        watch.close()

    asyncio.run(run())


def test_one_that_has_gone_or_was_never_there_is_not_watched() -> None:
    async def run() -> None:
        watch = ExitWatch(lambda: None)
        process = start("true")
        process.wait()
        for pid in (process.pid, 0):
            watch.watch(pid)
            assert not is_watching(watch)
        watch.close()

    asyncio.run(run())


def test_another_process_takes_the_place_of_the_first() -> None:
    async def run() -> None:
        ended = asyncio.Event()
        watch = ExitWatch(ended.set)
        first, second = (start("sleep", "600") for _ in range(2))
        watch.watch(first.pid)
        watch.watch(second.pid)
        first.kill()
        first.wait()
        await asyncio.sleep(0.05)
        assert not ended.is_set()
        second.kill()
        await asyncio.wait_for(ended.wait(), 60)
        second.wait()

    asyncio.run(run())
