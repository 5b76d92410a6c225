"""A change of MIG layouts is carried out, refused, or ended at any call and gone on with: with a driver in memory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from plugin.base.errors import MigError
from plugin.changes.mig_layout.change.store import read_change
from plugin.changes.mig_layout.document import parse_layout
from plugin.changes.mig_layout.plan import plan_layout, plan_return
from plugin.changes.mig_layout.store import Before, cuts_of, read_before, write_before
from plugin.cli.mig.steps import NodeChange
from plugin.settings.node_config import NodeConfig
from tests.plugin.mig_layout.driver import Killed, MemoryDriver

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from plugin.changes.mig_layout.model import GpuLayout
    from plugin.cli.mig.steps import MigResult


class Machine:
    """A node without daemon and kubelet."""

    def __init__(self, folder: Path, gpus: int = 1) -> None:
        self.folder = folder / "state"
        self.folder.mkdir()
        roots = {name: folder / name for name in ("dev_root", "sys_root", "proc_root", "kubelet_root")}
        for root in roots.values():
            root.mkdir()
        self.config = NodeConfig(state_folder=self.folder, admin_socket=folder / "node.sock", **roots)
        self.driver = MemoryDriver(gpus)

    def apply(self, devices: dict[str, int], **entry: object) -> MigResult:
        values = {"devices": "all", "migEnabled": True, "migDevices": devices, **entry}
        layout = parse_layout(json.dumps({"version": 1, "layouts": [values]}).encode())
        change = NodeChange(self.config, self.driver, lambda gpus: plan_layout(layout, gpus), timeout_s=1.0)  # type: ignore[arg-type] # a session in memory
        return change.run(self.remember)

    def remember(self, gpus: Sequence[GpuLayout]) -> None:
        if read_before(self.folder) is None:
            write_before(self.folder, Before("2026-11-23T23:00:00Z", "", cuts_of(gpus)))

    def restore(self) -> MigResult:
        before = read_before(self.folder)
        assert before is not None
        change = NodeChange(self.config, self.driver, lambda gpus: plan_return(before.gpus, gpus), timeout_s=1.0)  # type: ignore[arg-type] # a session in memory
        return change.run(self.remember)

    def die_at(self, call: int) -> None:
        self.driver.calls = 0

        def count() -> None:
            if self.driver.calls == call:
                raise Killed

        self.driver.before_call = count

    def live(self) -> None:
        self.driver.before_call = lambda: None


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_gpu_is_cut_as_declared_and_nothing_is_left_of_the_change(machine: Machine) -> None:
    outcome = machine.apply({"3g.40gb": 1, "1c.2g.20gb": 2})
    assert machine.driver.devices("GPU-0") == [("2g.20gb", (1, 1)), ("3g.40gb", (3,))]
    assert str(outcome.done[0]) == "turn mig mode on"
    assert (outcome.waiting, read_change(machine.folder)) == ({}, None)
    assert not [note for note in outcome.notes if "only processes" in note], "a machine without a kubelet has no pods"


def test_what_is_cut_as_declared_already_is_not_touched(machine: Machine) -> None:
    machine.apply({"3g.40gb": 2})
    machine.driver.calls = 0
    assert machine.apply({"MIG 3g.40gb": 2}).done == []
    assert machine.driver.calls == 0


def test_a_layout_that_is_wrong_for_one_gpu_changes_none(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 2)
    with pytest.raises(MigError, match=r"gpu 0: it has no mig profile 1g\.5gb") as raised:
        machine.apply({"1g.5gb": 1})
    assert "nothing was changed" in raised.value.hint
    assert machine.driver.calls == 0
    assert read_before(machine.folder) is None


def test_a_mode_that_waits_for_a_reset_is_told_and_nothing_is_made(machine: Machine) -> None:
    machine.driver.reset = "in use by another client"
    outcome = machine.apply({"7g.80gb": 1})
    assert outcome.waiting == {"GPU-0": "mig mode waits for a reset of the gpu, or a reboot: in use by another client"}
    assert machine.driver.devices("GPU-0") == []
    machine.driver.reset = ""
    assert machine.apply({"7g.80gb": 1}).waiting == {}


def test_one_gpu_in_use_does_not_keep_the_others_from_their_layout(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 2)
    machine.apply({"7g.80gb": 1})
    machine.driver.use("GPU-1", 1, 4711)
    outcome = machine.apply({"1g.10gb": 7})
    assert len(machine.driver.devices("GPU-0")) == 7
    assert machine.driver.devices("GPU-1") == [("7g.80gb", (7,))]
    assert "process 4711" in outcome.waiting["GPU-1"]
    assert read_change(machine.folder) is None


def test_a_change_that_is_killed_at_any_call_is_gone_on_with_by_the_same_call(tmp_path: Path) -> None:
    for call in range(40):
        (tmp_path / str(call)).mkdir()
        machine = Machine(tmp_path / str(call), 2)
        machine.apply({"3g.40gb": 1, "1c.2g.20gb": 2})
        machine.die_at(call)
        try:
            machine.apply({"2g.20gb": 2, "1c.3g.40gb": 3})
        except Killed:
            assert read_change(machine.folder) is not None, "the daemon gives nobody half a layout"
        else:
            break
        machine.live()
        assert machine.apply({"2g.20gb": 2, "1c.3g.40gb": 3}).waiting == {}
        for uuid in ("GPU-0", "GPU-1"):
            assert machine.driver.devices(uuid) == [("2g.20gb", (2,)), ("2g.20gb", (2,)), ("3g.40gb", (1, 1, 1))]
        assert read_change(machine.folder) is None
    assert call > 5, "calls were killed"


def test_a_way_back_that_is_killed_at_any_call_leads_back_all_the_same(tmp_path: Path) -> None:
    for call in range(40):
        (tmp_path / str(call)).mkdir()
        machine = Machine(tmp_path / str(call))
        machine.apply({"4g.40gb": 1, "1g.10gb": 3})
        (machine.folder / "mig-before.json").unlink()
        before = machine.driver.devices("GPU-0")
        machine.apply({"7g.80gb": 1})
        machine.die_at(call)
        try:
            machine.restore()
        except Killed:
            machine.live()
            assert machine.restore().waiting == {}
            assert machine.driver.devices("GPU-0") == before
        else:
            break
    assert call > 5, "calls were killed"


def test_a_gpu_that_fails_in_the_middle_is_kept_from_everybody(machine: Machine) -> None:
    machine.apply({"7g.80gb": 1})

    def fail() -> None:
        if machine.driver.calls == 2:
            raise MigError("GPU-0: no gpu instance is made", "see dmesg")

    machine.driver.calls = 0
    machine.driver.before_call = fail
    outcome = machine.apply({"3g.40gb": 2})
    assert outcome.failed == {"GPU-0"}
    change = read_change(machine.folder)
    assert change is not None
    assert change.uuids == {"GPU-0"}
    machine.live()
    assert machine.apply({"3g.40gb": 2}).waiting == {}
    assert read_change(machine.folder) is None
