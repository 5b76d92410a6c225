"""Errors, verdicts, releases, allocations, kills and removed files in any order: what was said stays so."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from plugin.base.errors import RequestError
from plugin.base.log import Logger
from plugin.changes.driver_change.release.record import Release, remember_gpus
from plugin.changes.driver_change.release.store import forget_release, read_release, write_release
from plugin.devices.allocation.table import allocate
from plugin.devices.health.keeper import Clock, HealthKeeper
from plugin.devices.health.model import Policy, Verdict
from plugin.devices.health.store import read_verdicts, write_verdicts
from plugin.devices.inventory import Inventory, next_inventory, without_driver
from plugin.driver.reading import Counters, Reading, XidEvent
from plugin.driver.snapshot import LostGpu, Snapshot
from tests.plugin.fakes import VERSION, DictTree, gpu, whole_table

GPUS = (0, 1, 2)
INDEX = st.sampled_from(GPUS)
UUIDS = [gpu(index).uuid for index in GPUS]


class NodeMachine(RuleBasedStateMachine):
    """A node of three GPUs, its files, and a plain account of what must be so.

    `condemned` are GPUs with an error that only a reset, a boot or a person ends.
    """

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        (self.root / "module").mkdir()
        (self.root / "state").mkdir()
        self.uptime_s, self.boots = 1000.0, 0
        self.energy = dict.fromkeys(GPUS, 1000)
        self.lost: set[int] = set()
        self.condemned: set[int] = set()
        self.verdicts: dict[str, Verdict] = {}
        self.is_released = False
        self.inventory = Inventory()
        self.boot()
        self.look()

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    # The daemon

    def start(self) -> None:
        clock = Clock(self.root / "module", self.root / "boot_id", lambda: self.uptime_s, lambda: "some day")
        self.keeper = HealthKeeper(self.root / "state", clock, Logger(), Policy(quiet_s=300))
        self.keeper.watch_begins()

    @rule(pause_s=st.sampled_from([1.0, 299.0, 301.0]), xids=st.lists(st.sampled_from([13, 31, 63]), max_size=2))
    def look(self, pause_s: float = 1.0, xids: list[int] | None = None, of: int = 0) -> None:
        self.uptime_s += pause_s
        here = [index for index in GPUS if index not in self.lost]
        lost = tuple(LostGpu(index, gpu(index).uuid, "gpu is lost") for index in sorted(self.lost))
        snapshot = Snapshot(VERSION, tuple(gpu(index) for index in here), lost)
        self.keeper.hear(tuple(XidEvent(UUIDS[of], xid) for xid in xids or ()))
        known = next_inventory(self.inventory, snapshot, DictTree())
        readings = {UUIDS[index]: Reading(Counters(energy_mj=self.energy[index]), processes=0) for index in here}
        self.inventory = known
        release = read_release(self.root / "state")
        self.shown, _ = self.keeper.judge(known, readings)
        if release is not None:
            self.shown = without_driver(self.shown, release.describe())

    @rule()
    def kill(self) -> None:
        before = {device.gpu.uuid: device.unhealthy for device in self.shown.devices}
        self.start()
        self.inventory = Inventory()
        self.look(0.0)
        after = {device.gpu.uuid: device.unhealthy for device in self.shown.devices}
        assert after == {uuid: why for uuid, why in before.items() if uuid in after}

    # What happens to GPUs

    @rule(index=INDEX, xid=st.sampled_from([48, 62, 95]), is_killed=st.booleans())
    def break_down(self, index: int, xid: int, is_killed: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        self.look(1.0, [xid], index)
        self.condemned.add(index)
        if is_killed:
            self.kill()

    @rule(index=INDEX)
    def fall_off_and_come_back(self, index: int) -> None:
        self.lost.add(index)
        self.look()
        assert any(device.unhealthy for device in self.shown.devices)
        self.lost.discard(index)
        self.look(1.0)
        self.look(301.0)

    @rule(index=INDEX)
    def reset(self, index: int) -> None:
        self.keeper.watch_ends()
        self.uptime_s += 10
        self.energy[index] -= 1
        self.keeper.watch_begins()
        self.look()
        self.condemned.discard(index)

    @rule()
    def boot(self) -> None:
        self.boots += 1
        self.uptime_s = 20.0
        (self.root / "boot_id").write_text(f"boot {self.boots}\n")
        self.start()
        self.inventory = Inventory()
        self.condemned.clear()
        self.look()

    # What people and disks do

    @rule(index=INDEX, is_healthy=st.booleans())
    def decide(self, index: int, is_healthy: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        self.verdicts[UUIDS[index]] = Verdict(is_healthy, f"at {self.uptime_s}", "some day")
        write_verdicts(self.root / "state", self.verdicts)
        self.look()
        if is_healthy:
            self.condemned.discard(index)

    @rule(index=INDEX)
    def clear(self, index: int) -> None:
        self.verdicts.pop(UUIDS[index], None)
        write_verdicts(self.root / "state", self.verdicts)
        self.look()

    @precondition(lambda self: not self.is_released)
    @rule()
    def release(self) -> None:
        write_release(self.root / "state", Release("some day", gpus=remember_gpus(self.shown)))
        self.is_released = True
        self.look()

    @precondition(lambda self: self.is_released)
    @rule()
    def resume(self) -> None:
        forget_release(self.root / "state")
        self.is_released = False
        self.look()

    @rule()
    def remove_what_the_daemon_remembers(self) -> None:
        (self.root / "state/health.json").unlink(missing_ok=True)
        self.look()
        self.kill()

    # What must be so

    @invariant()
    def each_gpu_is_given_away_or_refused_as_it_should_be(self) -> None:
        table = whole_table(self.shown)
        for index, uuid in enumerate(UUIDS):
            verdict = self.verdicts.get(uuid)
            is_fine = index not in self.condemned if verdict is None else verdict.is_healthy
            try:
                allocate(table, [uuid])
                was_given = True
            except RequestError:
                was_given = False
            if is_fine and verdict is None:
                continue  # it may wait for quiet
            assert was_given == (is_fine and not self.is_released), (index, table.entries[uuid].unhealthy)
        assert read_verdicts(self.root / "state") == self.verdicts
        assert not list((self.root / "state").glob("*.damaged"))


NodeMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
TestNothingIsLost = pytest.mark.slow(NodeMachine.TestCase)
