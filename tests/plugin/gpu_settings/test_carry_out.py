"""Settings are set where they differ, remembered, set again after a reload and given back, also after a kill."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from plugin.changes.gpu_settings.carry_out import carry_out
from plugin.changes.gpu_settings.document import SCHEMA, parse_settings
from plugin.changes.gpu_settings.model import watts
from plugin.changes.gpu_settings.plan import missing_indices, plan_settings
from plugin.changes.gpu_settings.store import Record, parse_record, render_record
from plugin.driver.gpu_settings import DEFAULT_MODE, EXCLUSIVE_PROCESS, Setting
from tests.plugin.gpu_settings.gpus import FRESH, Killed, MemoryDriver, gpu

if TYPE_CHECKING:
    from plugin.changes.gpu_settings.carry_out import SettingsResult
    from plugin.changes.gpu_settings.model import Entry, GpuPlan

EVERYTHING = {
    "devices": "all",
    "persistenceMode": True,
    "computeMode": EXCLUSIVE_PROCESS,
    "powerLimitWatts": 300,
    "graphicsClockMHz": {"min": 1200, "max": 1410},
    "memoryClockMHz": {"min": 1215, "max": 1215},
}


def declared(*entries: dict[str, object]) -> tuple[Entry, ...]:
    return parse_settings(json.dumps({"schema": SCHEMA, "settings": entries}).encode())


def plan_of(*entries: dict[str, object], **changes: object) -> GpuPlan:
    (plan,) = plan_settings(declared(*entries), [gpu(**changes)], Record(), "boot-1")
    return plan


class Node:
    """A driver, and what is remembered; every text of the record is one that can be read again."""

    def __init__(self, gpus: int = 1) -> None:
        self.driver = MemoryDriver([gpu(index) for index in range(gpus)])
        self.record = Record()
        self.boot_id = "boot-1"
        self.writes = 0

    def remember(self, record: Record) -> None:
        self.record = parse_record(render_record(record).encode())
        self.writes += 1
        assert self.record == record

    def apply(self, *entries: dict[str, object]) -> SettingsResult:
        return carry_out(declared(*entries), self.driver, self.record, self.boot_id, self.remember)

    def reboot(self) -> None:
        self.driver.reload()
        self.boot_id += "1"


@pytest.fixture
def node() -> Node:
    return Node()


def test_what_differs_is_set_and_persistence_comes_first(node: Node) -> None:
    outcome = node.apply(EVERYTHING)
    assert [str(change) for change in outcome.done] == [
        "persistenceMode: on",
        "computeMode: EXCLUSIVE_PROCESS",
        "powerLimitWatts: 300 W",
        "graphicsClockMHz: 1200 to 1410 MHz",
        "memoryClockMHz: 1215 to 1215 MHz",
    ]


def test_a_second_time_changes_nothing_and_writes_nothing(node: Node) -> None:
    node.apply(EVERYTHING)
    writes = node.writes
    outcome = node.apply(EVERYTHING)
    assert [change for change in outcome.done if not change.is_again] == []
    assert {change.setting for change in outcome.done} == {Setting.GRAPHICS, Setting.MEMORY}, "they cannot be read"
    assert node.writes == writes


@pytest.mark.parametrize("is_reboot", [pytest.param(True, id="a reboot"), pytest.param(False, id="a driver swap")])
def test_what_the_driver_has_forgotten_is_set_again(node: Node, *, is_reboot: bool) -> None:
    node.apply(EVERYTHING)
    if is_reboot:
        node.reboot()
    else:
        node.driver.reload()
    node.apply(EVERYTHING)
    (found,) = node.driver.gpus
    assert found.values == {Setting.PERSISTENCE: True, Setting.COMPUTE: EXCLUSIVE_PROCESS, Setting.POWER: 300_000}
    assert len(node.driver.locked) == 2


def test_what_is_declared_no_more_is_given_back_and_persistence_goes_last(node: Node) -> None:
    node.apply(EVERYTHING)
    node.driver.calls.clear()
    node.apply()
    assert (node.driver.gpus[0].values, node.driver.locked) == (FRESH, {})
    assert node.driver.calls[-1] == ("GPU-0", Setting.PERSISTENCE, False)
    assert node.record.gpus == {}


def test_a_single_key_is_given_back_while_the_others_stay(node: Node) -> None:
    node.apply(EVERYTHING)
    node.apply({key: value for key, value in EVERYTHING.items() if key != "powerLimitWatts"})
    assert node.driver.gpus[0].values[Setting.POWER] == 400_000
    assert node.driver.gpus[0].values[Setting.COMPUTE] == EXCLUSIVE_PROCESS


def test_what_somebody_else_has_set_since_is_theirs(node: Node) -> None:
    node.apply(EVERYTHING)
    node.driver.set("GPU-0", Setting.POWER, 250_000)
    node.apply()
    assert node.driver.gpus[0].values[Setting.POWER] == 250_000


def test_persistence_that_was_on_before_stays_on(node: Node) -> None:
    node.driver.set("GPU-0", Setting.PERSISTENCE, value=True)
    node.apply({"devices": "all", "persistenceMode": True})
    node.apply()
    assert node.driver.gpus[0].values[Setting.PERSISTENCE] is True


def test_a_reboot_leaves_nothing_to_give_back(node: Node) -> None:
    node.apply(EVERYTHING)
    node.reboot()
    assert node.apply().done == []


def test_a_setting_that_fails_keeps_no_other_from_being_set(node: Node) -> None:
    node.driver.refused = {Setting.COMPUTE}
    outcome = node.apply(EVERYTHING)
    assert [change.setting for change, _ in outcome.failed] == [Setting.COMPUTE]
    assert node.driver.gpus[0].values[Setting.POWER] == 300_000


@pytest.mark.parametrize("call", range(1, 6))
def test_a_kill_at_any_call_is_gone_on_with_and_everything_is_given_back(node: Node, call: int) -> None:
    node.driver.die_at = call
    with pytest.raises(Killed):
        node.apply(EVERYTHING)
    node.driver.die_at = 0
    node.apply()
    assert (node.driver.gpus[0].values, node.driver.locked) == (FRESH, {})


@pytest.mark.parametrize("call", range(1, 6))
def test_a_kill_while_things_are_given_back_forgets_none_of_them(node: Node, call: int) -> None:
    node.apply(EVERYTHING)
    node.driver.calls.clear()
    node.driver.die_at = call
    with pytest.raises(Killed):
        node.apply()
    node.driver.die_at = 0
    node.apply()
    assert (node.driver.gpus[0].values, node.driver.locked) == (FRESH, {})


def test_a_gpu_that_is_silent_keeps_its_record_and_the_others_are_set() -> None:
    node = Node(2)
    node.apply(EVERYTHING)
    silent, other = node.driver.gpus
    node.driver.gpus = [gpu(0, uuid="gpu 0", problem="gpu is lost"), other]
    node.apply()
    assert node.record.gpus.keys() == {"GPU-0"}
    node.driver.gpus = [silent, node.driver.gpus[1]]
    node.apply()
    assert [each.values for each in node.driver.gpus] == [FRESH, FRESH]


# What is wanted of which GPU


def test_each_key_counts_from_the_last_entry_that_has_it() -> None:
    entries = declared(
        {"devices": "all", "persistenceMode": True, "powerLimitWatts": 350},
        {"devices": [1], "deviceFilter": "0x20B010DE", "powerLimitWatts": 200},
        {"devices": "all", "deviceFilter": "0x233010DE", "powerLimitWatts": 700},
        {"devices": "all", "deviceFilter": "0x20B010DE:0x00000001", "powerLimitWatts": 100},
    )
    plans = plan_settings(entries, [gpu(0), gpu(1)], Record(), "boot-1")
    assert [watts(int(plan.wanted[Setting.POWER])) for plan in plans] == [350, 200]
    assert all(plan.wanted[Setting.PERSISTENCE] for plan in plans)


def test_an_index_without_a_gpu_is_told_unless_a_filter_may_explain_it() -> None:
    filtered = {"devices": [9], "deviceFilter": "0x20B010DE", "persistenceMode": True}
    entries = declared({"devices": [0, 7], "persistenceMode": True}, filtered)
    assert missing_indices(entries, [gpu(0)]) == (7,)


@pytest.mark.parametrize(
    ("entry", "changes", "why"),
    [
        pytest.param({"powerLimitWatts": 99}, {}, "it can have 100 W to 400 W", id="too little power"),
        pytest.param({"powerLimitWatts": 401}, {}, "it can have 100 W to 400 W", id="too much power"),
        pytest.param(
            {"graphicsClockMHz": {"min": 900, "max": 1500}}, {}, "its highest clock is 1410 MHz", id="a clock too high"
        ),
        pytest.param(
            {"memoryClockMHz": {"min": 2000, "max": 2000}}, {}, "its highest clock is 1215 MHz", id="memory too fast"
        ),
        pytest.param(
            {"computeMode": EXCLUSIVE_PROCESS},
            {"is_cut": True},
            "a gpu in mig mode cannot be EXCLUSIVE_PROCESS",
            id="exclusive in mig mode",
        ),
        pytest.param(
            {"powerLimitWatts": 300},
            {"values": {Setting.COMPUTE: DEFAULT_MODE}},
            "this gpu or its driver does not support it",
            id="no power management",
        ),
    ],
)
def test_what_a_gpu_cannot_have_is_refused_with_its_range(
    entry: dict[str, object], changes: dict[str, object], why: str
) -> None:
    plan = plan_of({"devices": "all", **entry}, **changes)
    assert (list(plan.refusals.values()), plan.changes) == ([why], ())


def test_a_refused_setting_keeps_no_other_from_being_set() -> None:
    plan = plan_of({**EVERYTHING, "powerLimitWatts": 9000})
    assert {change.setting for change in plan.changes} == set(Setting) - {Setting.POWER}
