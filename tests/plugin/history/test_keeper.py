"""The history over restarts, crashes and bad disks, and what the kubelet's calls leave in it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plugin.base.errors import HistoryError
from plugin.base.log import Logger
from plugin.devices.inventory import Inventory, next_inventory
from plugin.devices.observer import Observation
from plugin.driver.snapshot import Snapshot
from plugin.holdings.history.keeper import LONG_BYTES, HistoryKeeper
from plugin.holdings.history.ledger import Ledger
from plugin.holdings.history.model import Allocation, Place
from plugin.holdings.history.store import HISTORY_FILE, append_history, read_history, write_history
from plugin.kubelet.device_plugin import api
from plugin.kubelet.device_plugin.observers import NoCallCounter
from plugin.kubelet.device_plugin.publisher import Publication, Publisher
from plugin.kubelet.device_plugin.service import DevicePluginService
from plugin.kubelet.pod_resources.attribution import DeviceAssignment, PodContainer
from tests.plugin.fakes import VERSION, DictTree, gpu, gpus, whole_table
from tests.plugin.small_disk import small_disk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

REPOSITORY = Path(__file__).parents[3]
GPU = "nvidia.com/gpu"
A, B = gpu(0).uuid, gpu(1).uuid
SEEN = Observation(next_inventory(Inventory(), Snapshot(VERSION, gpus(2)), DictTree()))


class Listing:
    """A kubelet that lists what it is told to."""

    assignments: tuple[DeviceAssignment, ...] = ()

    async def ask(self, _deadline_s: float) -> tuple[DeviceAssignment, ...]:
        return self.assignments


def living(
    folder: Path,
    life: Callable[[HistoryKeeper], Awaitable[None]],
    kubelet: Listing | None = None,
    long_bytes: int = LONG_BYTES,
) -> HistoryKeeper:
    """Let one daemon's history be, from its start to its orderly end."""

    async def run() -> HistoryKeeper:
        keeper = HistoryKeeper(folder, (kubelet or Listing()).ask, Logger(), long_bytes)
        keeper.start()
        await life(keeper)
        await keeper.stop()
        return keeper

    return asyncio.run(run())


def remembered(folder: Path) -> list[Allocation]:
    """Return what a tool reads."""
    ledger = Ledger(0)
    ledger.begin_with(read_history(folder))
    return list(ledger.allocations.values())


def given_away(*devices: str) -> Callable[[HistoryKeeper], Awaitable[None]]:
    async def life(keeper: HistoryKeeper) -> None:
        for device in devices:
            keeper.allocated(GPU, [device])

    return life


def devices(keeper: HistoryKeeper) -> list[tuple[str, ...]]:
    return [one.devices for one in keeper.ledger.allocations.values()]


def test_what_happened_outlives_the_daemon(tmp_path: Path) -> None:
    folder = tmp_path / "not/there/yet"
    living(folder, given_away(A))
    assert devices(living(folder, given_away(B))) == [(A,), (B,)]
    assert devices(living(folder, given_away())) == [(A,), (B,)]


async def when_longer(keeper: HistoryKeeper, folder: Path, size: int = -1) -> os.stat_result:
    """Return the file's state once it is longer: a disk that is busy makes `written` return before it is."""
    path = folder / HISTORY_FILE
    while not path.exists() or path.stat().st_size <= size:
        await keeper.written()
        await asyncio.sleep(0)
    return path.stat()


def test_further_writes_are_appended(tmp_path: Path) -> None:
    async def life(keeper: HistoryKeeper) -> None:
        keeper.allocated(GPU, [A])
        before = await when_longer(keeper, tmp_path)
        keeper.allocated(GPU, [B])
        after = await when_longer(keeper, tmp_path, before.st_size)
        assert (before.st_ino, before.st_size < after.st_size) == (after.st_ino, True)

    living(tmp_path, life)
    assert devices(living(tmp_path, given_away())) == [(A,), (B,)]


def test_what_was_looked_at_before_the_file_was_read_is_not_told_twice(tmp_path: Path) -> None:
    async def life(keeper: HistoryKeeper) -> None:
        keeper.observed(SEEN)
        keeper.observed(SEEN)

    first, second = living(tmp_path, life), living(tmp_path, life)
    assert [one.what for one in first.ledger.changes[A]] == ["seen"]
    assert second.ledger.changes == first.ledger.changes


def test_a_damaged_file_is_set_aside_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / HISTORY_FILE).write_text("what is this\n")
    assert devices(living(tmp_path, given_away(A))) == [(A,)]
    assert (tmp_path / f"{HISTORY_FILE}.damaged").read_text() == "what is this\n"
    assert [message for message in caplog.messages if "cannot be understood" in message]
    assert devices(living(tmp_path, given_away())) == [(A,)]


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda path: path.unlink(), id="removed"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-5]), id="cut off"),
        pytest.param(lambda path: path.write_bytes(b"x" * 4096), id="overwritten"),
    ],
)
def test_a_damaged_file_is_rewritten(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    async def life(keeper: HistoryKeeper) -> None:
        keeper.allocated(GPU, [A])
        await keeper.written()
        spoil(tmp_path / HISTORY_FILE)
        keeper.allocated(GPU, [B])
        await keeper.written()

    living(tmp_path, life)
    assert devices(living(tmp_path, given_away())) == [(A,), (B,)]


def test_a_folder_that_cannot_be_written_is_told_once_and_nothing_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "state"
    folder.write_text("a file in the way")

    async def life(keeper: HistoryKeeper) -> None:
        for device in (A, B):
            keeper.allocated(GPU, [device])
            await keeper.written()
        folder.unlink()
        await keeper.written()

    living(folder, life)
    assert sum("cannot be written" in message for message in caplog.messages) == 1
    assert devices(living(folder, given_away())) == [(A,), (B,)]


def test_another_folder_gets_everything(tmp_path: Path) -> None:
    async def life(keeper: HistoryKeeper) -> None:
        keeper.allocated(GPU, [A])
        await keeper.written()
        keeper.move(tmp_path / "new")
        await keeper.written()

    living(tmp_path / "old", life)
    assert devices(living(tmp_path / "new", given_away())) == [(A,)]


@pytest.mark.slow
def test_a_log_that_grows_is_made_short_again(tmp_path: Path) -> None:
    sizes = []

    async def life(keeper: HistoryKeeper) -> None:
        for number in range(1200):
            keeper.refused(GPU, [A], f"no {number}")
            if number % 10 == 0:
                await keeper.written()
                sizes.append((tmp_path / HISTORY_FILE).stat().st_size)

    living(tmp_path, life, long_bytes=2000)
    whole = write_history(tmp_path / "whole", remembered(tmp_path))
    assert max(sizes) < whole + 2000 + 10 * 200


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """Return a folder on a disk of 256 KiB."""
    with small_disk(tmp_path / "small", "256k") as folder:
        yield folder


def test_a_full_disk_costs_nothing_that_was_written(full: Path) -> None:
    async def life(keeper: HistoryKeeper) -> None:
        keeper.allocated(GPU, [A])
        await keeper.written()
        (full / "other").write_bytes(b"x" * 4096)
        with pytest.raises(OSError, match="space"):
            (full / "filler").write_bytes(b"x" * 300_000)
        for _ in range(100):
            keeper.refused(GPU, [B], "no " * 50)
        await keeper.written()
        assert remembered(full)[0].devices == (A,)
        assert len(remembered(full)) < 101
        (full / "filler").unlink()
        await keeper.written()

    living(full, life)
    assert len(remembered(full)) == 101


def test_an_append_that_is_not_where_it_should_be_is_refused(tmp_path: Path) -> None:
    length = write_history(tmp_path, [Place(A, 0)])
    with pytest.raises(OSError, match="somebody else wrote to it"):
        append_history(tmp_path, [Place(B, 1)], length - 1)
    assert append_history(tmp_path, [Place(B, 1)], length) == (tmp_path / HISTORY_FILE).stat().st_size
    assert read_history(tmp_path) == [Place(A, 0), Place(B, 1)]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / HISTORY_FILE).mkdir()
    with pytest.raises(HistoryError, match=r"history\.jsonl cannot be read: is a directory"):
        read_history(tmp_path)


KILLED = """
import asyncio, sys
from pathlib import Path
from tests.plugin.history.test_keeper import A, GPU, HistoryKeeper, Listing, Logger

async def run():
    keeper = HistoryKeeper(Path(sys.argv[1]), Listing().ask, Logger())
    keeper.start()
    await keeper.written()
    print("ready", flush=True)
    number = 0
    while True:
        number += 1
        keeper.refused(GPU, [A], str(number))
        await keeper.written()
        print(number, flush=True)

asyncio.run(run())
"""


@pytest.mark.slow
def test_a_daemon_that_is_killed_while_it_writes_loses_nothing_that_was_written(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    for lines in (2, 30, 77):
        command = [sys.executable, "-c", KILLED, str(tmp_path)]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(lines):
                process.stdout.readline()
            process.kill()
            written = len(process.stdout.read().split())
        found = [int(one.refused) for one in remembered(tmp_path)]
        last = lines - 1 + written  # one more may be written and not be told yet
        assert found[-found[-1] :] == list(range(1, found[-1] + 1))
        assert found[-1] in {last, last + 1}


def test_an_allocation_in_doubt_is_not_joined_with_who_was_listed_before(tmp_path: Path) -> None:
    kubelet = Listing()

    async def life(keeper: HistoryKeeper) -> None:
        kubelet.assignments = (DeviceAssignment(PodContainer("default", "before", "main"), GPU, (A,)),)
        await keeper.view.ask_now(1)
        keeper.allocated(GPU, [A])
        await keeper.view.ask_now(1)

    (one,) = living(tmp_path, life, kubelet).ledger.allocations.values()
    assert (one.claims, one.is_joinable) == ((), False)


def test_an_allocation_is_known_before_anything_else_is_decided(tmp_path: Path) -> None:
    """A claim whose turn in the event loop came right after it was given the same GPU."""

    async def life(keeper: HistoryKeeper) -> None:
        await keeper.view.look_again()
        publisher = Publisher(Publication((), whole_table(SEEN.inventory)), clock=lambda: 0.0)
        service = DevicePluginService(publisher, Logger(), NoCallCounter(), keeper)
        request = api.AllocateRequest(container_requests=(api.ContainerAllocateRequest(devices_ids=(A,)),))
        asked = service.allocate(request)
        with pytest.raises(StopIteration):  # answered without a turn of the loop
            asked.send(None)
        assert keeper.view.holder_of([A])
        assert keeper.view.holder_of([B]) == ""

    living(tmp_path, life)
