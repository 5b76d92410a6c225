"""Health over looks, sessions and restarts, with real files."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from plugin.base.log import Logger
from plugin.devices.health.keeper import Clock, HealthKeeper
from plugin.devices.health.model import NodeHealth, Policy, Verdict
from plugin.devices.health.store import read_health, write_verdicts
from plugin.devices.inventory import Inventory, next_inventory
from plugin.driver.reading import Counters, Reading, XidEvent
from plugin.driver.snapshot import LostGpu, MigFacts, Snapshot
from tests.plugin.fakes import VERSION, DictTree, gpu, gpus

if TYPE_CHECKING:
    from pathlib import Path

IDLE = Reading(processes=0)
XID_48 = XidEvent(gpu(0).uuid, 48)
XID_79 = XidEvent(gpu(1).uuid, 79)
STATE = "state/node"


class Machine:
    """A boot, a driver load and a clock, as files and numbers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.uptime_s = 1000.0
        (folder / "module").mkdir()
        self.boot(1)

    def boot(self, number: int) -> None:
        (self.folder / "boot_id").write_text(f"boot-{number}\n")

    def keeper(self, quiet_s: float = 300) -> HealthKeeper:
        """Return what a daemon that starts now has."""
        clock = Clock(self.folder / "module", self.folder / "boot_id", lambda: self.uptime_s, lambda: "some day")
        keeper = HealthKeeper(self.folder / STATE, clock, Logger(), Policy(quiet_s=quiet_s))
        keeper.watch_begins()
        return keeper


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def inventory(snapshot: Snapshot | None = None, before: Inventory | None = None) -> Inventory:
    return next_inventory(before or Inventory(), snapshot or Snapshot(VERSION, gpus(2)), DictTree())


def look(keeper: HealthKeeper, *events: XidEvent, reading: Reading = IDLE) -> list[str]:
    """Look once, with two GPUs that answer; return why each is unhealthy."""
    readings = {gpu(index).uuid: reading for index in range(2)}
    keeper.hear(events)
    judged, _ = keeper.judge(inventory(), readings)
    return [device.unhealthy for device in judged.devices]


def test_an_error_marks_its_device_alone(machine: Machine) -> None:
    assert look(machine.keeper(), XID_79) == ["", "xid 79: the gpu has fallen off the bus; needs a reboot of the node"]


def test_an_error_outlives_the_daemon_and_ends_with_the_boot(machine: Machine) -> None:
    look(machine.keeper(), XID_79)
    again = machine.keeper()
    assert look(again)[1].startswith("xid 79")
    assert not look(again)[0]
    machine.boot(2)
    assert look(machine.keeper()) == ["", ""]
    assert look(machine.keeper()) == ["", ""]


def test_readings_are_pressing_when_something_happened_and_while_evidence_is_awaited(machine: Machine) -> None:
    keeper = machine.keeper()
    look(keeper)
    assert not keeper.is_pressing
    keeper.hear((XID_48,))
    assert keeper.is_pressing
    look(keeper)
    assert keeper.is_pressing
    machine.boot(2)
    look(keeper)
    assert not keeper.is_pressing


def test_another_load_of_the_module_is_told_by_its_folder(machine: Machine) -> None:
    keeper = machine.keeper()
    assert look(keeper, XID_48)[0] != ""
    (machine.folder / "module").rename(machine.folder / "old")
    (machine.folder / "module").mkdir()
    assert look(keeper)[0] == ""


def test_a_reset_that_happened_while_no_daemon_ran_is_noticed(machine: Machine) -> None:
    before = Reading(Counters(energy_mj=5_000_000), processes=0)
    keeper = machine.keeper()
    look(keeper, reading=before)
    assert look(keeper, XID_48, reading=before)[0] != ""
    after = before._replace(counters=Counters(energy_mj=700))
    assert look(machine.keeper(), reading=after)[0] == ""


def test_a_session_reopened_at_once_is_no_gap_and_a_longer_interruption_is(machine: Machine) -> None:
    keeper = machine.keeper()
    look(keeper, XidEvent(gpu(0).uuid, 74))
    for pause_s, is_quiet in ((60, False), (1, True)):
        keeper.watch_ends()
        machine.uptime_s += pause_s
        keeper.watch_begins()
        machine.uptime_s += 299 if not is_quiet else 1
        assert (look(keeper)[0] == "") == is_quiet


def test_lost_events_are_a_gap(machine: Machine) -> None:
    keeper = machine.keeper()
    look(keeper, XidEvent(gpu(0).uuid, 74))
    machine.uptime_s += 299
    keeper.watch_ends(lost_events=True)
    keeper.watch_begins()
    machine.uptime_s += 2
    assert look(keeper)[0] != ""


def test_an_event_of_a_mig_device_is_its_gpus(machine: Machine) -> None:
    mig = MigFacts("MIG-of-gpu-0", 0, 1, 0)
    snapshot = Snapshot(VERSION, (replace(gpu(0), mig=(mig,)), gpu(1)))
    keeper = machine.keeper()
    keeper.hear((XidEvent("MIG-of-gpu-0", 95),))
    judged, _ = keeper.judge(inventory(snapshot), {})
    assert [device.is_healthy for device in judged.devices] == [False, True]


def test_a_gpu_that_was_lost_waits_for_a_quiet_time(machine: Machine) -> None:
    keeper = machine.keeper()
    known = inventory()
    gone = inventory(Snapshot(VERSION, (gpu(1),), (LostGpu(0, None, "gpu is lost"),)), known)
    judged, _ = keeper.judge(gone, {gpu(1).uuid: IDLE})
    assert [device.unhealthy for device in judged.devices] == ["gpu is lost", ""]
    machine.uptime_s += 10
    assert look(keeper)[0] == "lost: it does not answer: gpu is lost; needs a quiet time, and nobody using it"
    machine.uptime_s += 300
    assert look(keeper) == ["", ""]


def test_a_device_node_that_is_gone_is_no_fault_of_the_gpu(machine: Machine) -> None:
    keeper = machine.keeper()
    without_node = next_inventory(inventory(), Snapshot(VERSION, gpus(2)), DictTree(missing={"nvidia0"}))
    judged, changes = keeper.judge(without_node, {})
    assert judged.devices[0].unhealthy == "its device node /dev/nvidia0 is gone"
    assert changes == ()
    assert look(keeper) == ["", ""]


def test_a_verdict_is_followed_at_the_next_look_and_makes_no_device_node(machine: Machine) -> None:
    keeper = machine.keeper()
    look(keeper, XID_48)
    write_verdicts(machine.folder / STATE, {gpu(0).uuid: Verdict(is_healthy=True, reason="tested", since="some day")})
    assert look(keeper) == ["", ""]
    without_node = next_inventory(inventory(), Snapshot(VERSION, gpus(2)), DictTree(missing={"nvidia0"}))
    judged, _ = keeper.judge(without_node, {})
    assert judged.devices[0].unhealthy == "its device node /dev/nvidia0 is gone"


def test_verdicts_that_cannot_be_understood_stay_as_they_were(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    folder = machine.folder / STATE
    smoke = Verdict(is_healthy=False, reason="smoke", since="some day")
    folder.mkdir(parents=True)
    keeper = machine.keeper()
    write_verdicts(folder, {gpu(1).uuid: smoke})
    assert look(keeper) == ["", "set unhealthy by hand: smoke"]
    (folder / "verdicts.json").write_text("{")
    assert look(keeper) == ["", "set unhealthy by hand: smoke"]
    assert look(machine.keeper()) == ["", "set unhealthy by hand: smoke"]
    assert [record.getMessage() for record in caplog.records if "verdicts.json" in record.getMessage()]
    (folder / "verdicts.json").unlink()
    assert look(keeper) == ["", ""]


def test_a_memory_that_cannot_be_understood_is_kept_aside(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    look(machine.keeper(), XID_79)
    path = machine.folder / STATE / "health.json"
    path.write_text("{")
    assert look(machine.keeper()) == ["", ""]
    assert path.with_name("health.json.damaged").read_text() == "{"
    assert read_health(path.parent) == NodeHealth()
    assert "cannot be understood" in caplog.text


def test_what_cannot_be_written_is_kept_in_memory_and_written_when_it_can(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    in_the_way = machine.folder / "state"
    in_the_way.write_text("")
    keeper = machine.keeper()
    for _ in range(3):
        assert look(keeper, XID_48)[0] != ""
    assert caplog.text.count("health cannot be remembered") == 1
    in_the_way.unlink()
    assert look(keeper)[0] != ""
    assert look(machine.keeper())[0] != ""


def test_a_look_that_changes_nothing_writes_nothing(machine: Machine) -> None:
    keeper = machine.keeper()
    look(keeper, XID_48)
    path = machine.folder / STATE / "health.json"
    before = path.stat().st_ino
    for energy in range(5):
        look(keeper, reading=IDLE._replace(counters=Counters(energy_mj=energy), slowdowns=()))
    assert path.stat().st_ino == before


def test_what_is_compared_with_later_is_written_with_the_second_look(machine: Machine) -> None:
    keeper = machine.keeper()
    errors = IDLE._replace(counters=Counters(volatile_uncorrected=3), links_active=12)
    look(keeper, reading=errors)
    assert not (machine.folder / STATE / "health.json").exists()
    look(keeper, reading=errors)
    fewer = errors._replace(links_active=11)
    assert look(machine.keeper(), reading=fewer)[0].startswith("nvlink down: 1 of 12")
    more = errors._replace(counters=Counters(volatile_uncorrected=4))
    assert look(machine.keeper(), reading=more)[0].startswith("ecc: 1 new")


def test_a_transition_is_one_line_in_the_journal(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    keeper = machine.keeper()
    for _ in range(3):
        look(keeper, XID_79, XidEvent("", 13))
    machine.boot(2)
    look(keeper)
    said = [(record.levelname, record.getMessage(), record.fields) for record in caplog.records]  # type: ignore[attr-defined]
    device = gpu(1).uuid
    opened = {"device": device, "cause": "xid 79", "class": "reboot", "reason": "the gpu has fallen off the bus"}
    assert said.count(("WARNING", "health opened", opened)) == 1
    closed = {**opened, "reason": "the node was rebooted"}
    assert said.count(("INFO", "health closed", closed)) == 1
    stray = "xid 13: graphics engine exception, of a device that cannot be told"
    assert [line[:2] for line in said].count(("WARNING", stray)) == 1


def test_the_file_is_roots_alone_and_follows_the_contract(machine: Machine) -> None:
    look(machine.keeper(), XID_48)
    path = machine.folder / STATE / "health.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert json.loads(path.read_text())["gpus"][gpu(0).uuid]["findings"][0]["cause"] == "xid 48"


@pytest.mark.parametrize("loss", ["the file", "the folder", "other content"])
def test_a_memory_that_somebody_removes_is_written_again(machine: Machine, loss: str) -> None:
    """The file was only written when something changed: removed meanwhile, a restart knew of nothing."""
    keeper = machine.keeper()
    look(keeper, XID_48)
    path = machine.folder / STATE / "health.json"
    if loss == "the file":
        path.unlink()
    elif loss == "the folder":
        shutil.rmtree(path.parent)
    else:
        path.write_text("{}")
    look(keeper)
    assert look(machine.keeper())[0].startswith("xid 48")


def test_what_quiet_did_is_remembered(machine: Machine) -> None:
    keeper = machine.keeper(quiet_s=10)
    look(keeper, XidEvent(gpu(0).uuid, 74))
    machine.uptime_s += 11
    assert look(keeper) == ["", ""]
    assert read_health(machine.folder / STATE).gpus[gpu(0).uuid].returns == (1011.0,)
