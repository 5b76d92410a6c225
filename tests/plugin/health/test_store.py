"""The files of health: whole or as they were, whatever happens to who writes them."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plugin.base.errors import HealthError
from plugin.base.log import Logger
from plugin.devices.health.keeper import Clock, HealthKeeper
from plugin.devices.health.model import Class as Kind
from plugin.devices.health.model import Finding, GpuHealth, NodeHealth, Verdict
from plugin.devices.health.store import HEALTH_FILE, read_health, read_verdicts, write_health, write_verdicts
from plugin.devices.inventory import Inventory, next_inventory
from plugin.driver.reading import XidEvent
from plugin.driver.snapshot import Snapshot
from tests.plugin.fakes import VERSION, DictTree, gpu, gpus
from tests.plugin.small_disk import small_disk

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parents[3]
A = "GPU-7d00e010-ec78-5e6f-8228-fa5ab15a3109"
STATE = NodeHealth({A: GpuHealth((Finding("xid 48", Kind.RESET, "bad", "today", "boot", "load", 5.0),))})
VERDICTS = {A: Verdict(is_healthy=False, reason="smoke", since="today")}


def test_nothing_written_is_nothing_known(tmp_path: Path) -> None:
    assert (read_health(tmp_path / "absent"), read_verdicts(tmp_path)) == (NodeHealth(), {})


def test_what_is_written_is_read_and_each_file_has_its_own(tmp_path: Path) -> None:
    write_health(tmp_path, STATE)
    write_verdicts(tmp_path, VERDICTS)
    write_health(tmp_path, NodeHealth())
    assert (read_health(tmp_path), read_verdicts(tmp_path)) == (NodeHealth(), VERDICTS)
    write_verdicts(tmp_path, {})
    write_health(tmp_path, STATE)
    assert (read_health(tmp_path), read_verdicts(tmp_path)) == (STATE, {})


def test_what_a_killed_writer_left_disturbs_nobody(tmp_path: Path) -> None:
    (tmp_path / f".{HEALTH_FILE}.new").write_text('{"schema": "gra')
    assert read_health(tmp_path) == NodeHealth()
    write_health(tmp_path, STATE)
    assert read_health(tmp_path) == STATE


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / HEALTH_FILE).mkdir()
    with pytest.raises(HealthError, match=r"health\.json cannot be read: is a directory"):
        read_health(tmp_path)


WRITE = """
import sys
from itertools import count
from pathlib import Path
from plugin.devices.health.model import (GpuHealth, NodeHealth)
from plugin.devices.health.store import write_health
gpus = [f"GPU-00000000-0000-0000-0000-{index:012d}" for index in range(8)]
for number in count(1):
    write_health(Path(sys.argv[1]), NodeHealth({uuid: GpuHealth(resets=number) for uuid in gpus}))
    print(number, flush=True)
"""


@pytest.mark.functional
def test_a_writer_killed_at_any_moment_leaves_the_last_state_or_the_next(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITE, str(tmp_path)]
    for delay_ms in range(0, 20, 2):
        with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(delay_ms / 1000)
            writer.kill()
            told = int(("1\n" + writer.stdout.read()).split()[-1])
        numbers = {health.resets for health in read_health(tmp_path).gpus.values()}
        assert len(numbers) == 1
        assert numbers <= {told, told + 1}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system."""
    with small_disk(tmp_path / "disk", "256k") as folder:
        yield folder


def fill(path: Path) -> None:
    """Write until nothing more fits on the disk."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


@pytest.mark.functional
def test_a_full_disk_loses_neither_what_is_written_nor_what_is_seen(disk: Path, tmp_path: Path) -> None:
    def look(keeper: HealthKeeper, *xids: int) -> list[bool]:
        inventory = next_inventory(Inventory(), Snapshot(VERSION, gpus(2)), DictTree())
        keeper.hear(tuple(XidEvent(gpu(index).uuid, xid) for index, xid in enumerate(xids)))
        judged, _ = keeper.judge(inventory, {})
        return [device.is_healthy for device in judged.devices]

    def keeper() -> HealthKeeper:
        return HealthKeeper(disk, Clock(tmp_path), Logger())

    running = keeper()
    assert look(running, 48) == [False, True]
    fill(disk / "other")
    assert look(running, 48, 79) == [False, False]
    assert look(keeper()) == [False, False]
    written = (disk / HEALTH_FILE).read_bytes()
    fill(disk / "more")
    assert look(running, 46) == [False, False]
    assert (disk / HEALTH_FILE).read_bytes() == written
    with pytest.raises(HealthError, match="no space left on device"):
        write_verdicts(disk, VERDICTS)
    assert read_verdicts(disk) == {}
    (disk / "other").unlink()
    look(running)
    assert "xid 46" in {finding.cause for finding in read_health(disk).gpus[gpu(0).uuid].findings}
