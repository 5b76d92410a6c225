"""A change of the module's parameters alone loads the module again: the kernel takes them at no other time."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.change import ChangedFile
from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.foresee import foresee
from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.module_options import (
    OPTIONS_PATH,
    parse_options,
)

from provision.planning.render import modprobe
from tests.playbooks.driver.conftest import NEW, Staged, hold_a_gpu, make_change, put_driver, stage
from tests.playbooks.driver.killing import KilledError, Killer
from tests.playbooks.driver.machines import FakeMachine

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished

EVERY = 1 if os.environ.get("CRASHES") == "all" else 17
OFF = "# managed\nblacklist nouveau\noptions nouveau modeset=0\noptions nvidia NVreg_EnableGpuFirmware=0\n"
ON = OFF.replace("Firmware=0", "Firmware=1")
NONE = "# managed\nblacklist nouveau\noptions nouveau modeset=0\n"


@dataclass
class RememberingMachine(FakeMachine):
    """A machine whose module knows the parameters that it was loaded with."""

    loaded_with: frozenset[str] = frozenset()

    def _load(self, name: str, file: tuple[str, str] | None = None) -> Finished:
        is_new = "nvidia" not in self.loaded
        done = super()._load(name, file)
        if is_new and "nvidia" in self.loaded:
            self.loaded_with = self.on_file()
        return done

    def on_file(self) -> frozenset[str]:
        place = self.root / OPTIONS_PATH.lstrip("/")
        return parse_options(place.read_text() if place.exists() else "")


def a_node(root: Path, before: str, after: str) -> tuple[RememberingMachine, Staged]:
    """Return a node with a driver, and a set for the same driver with another file of parameters; "" for no file."""
    machine = RememberingMachine(root)
    put_driver(machine, NEW)
    for package in machine.packages.values():
        package.held = True
    if before:
        machine.write(OPTIONS_PATH, before)
    machine.loaded_with = machine.on_file()
    change = make_change(NEW, files=(ChangedFile(OPTIONS_PATH, after, "0644"),))
    return machine, stage(machine, change, make_change(NEW, files=(), services=()))


def unloaded(machine: FakeMachine) -> bool:
    return any(call.startswith("rmmod nvidia") for call in machine.calls)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(OFF, ON, id="another value"),
        pytest.param(NONE, ON, id="a new parameter"),
        pytest.param("", ON, id="the first file"),
        pytest.param(ON, NONE, id="a parameter that is declared no more"),
    ],
)
def test_the_module_is_loaded_with_the_parameters_of_the_change(tmp_path: Path, before: str, after: str) -> None:
    machine, staged = a_node(tmp_path, before, after)

    assert staged.run("swap").state == "done"

    assert unloaded(machine)
    assert machine.loaded_with == parse_options(after)
    staged.assert_has(NEW, held=True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(ON, f"# other words\n{ON}", id="another comment"),
        pytest.param("", NONE, id="the first file, without parameters"),
        pytest.param(ON, ON.replace("nvidia ", "nvidia-current "), id="another name of the module"),
    ],
)
def test_the_module_stays_loaded_where_its_parameters_stay(tmp_path: Path, before: str, after: str) -> None:
    machine, staged = a_node(tmp_path, before, after)

    assert staged.run("swap").state == "done"

    assert not unloaded(machine)
    assert (machine.root / OPTIONS_PATH.lstrip("/")).read_text() == after


def test_the_way_back_gives_the_module_its_former_parameters(tmp_path: Path) -> None:
    machine, staged = a_node(tmp_path, OFF, ON)
    staged.run("swap")
    shown = {(one.action, one.target) for one in foresee(machine.host(), "back", staged.node).effects}

    assert staged.run("back").state == "done"

    assert {("unload", "kernel module nvidia"), ("load", "kernel module nvidia")} <= shown
    assert machine.loaded_with == parse_options(OFF)


def test_a_module_in_use_keeps_its_parameters_and_its_file(tmp_path: Path) -> None:
    machine, staged = a_node(tmp_path, OFF, ON)
    hold_a_gpu(machine)

    record = staged.run("swap")

    assert record.state == "failed"
    assert "the driver is in use" in str(record.reason)
    assert machine.loaded_with == machine.on_file() == parse_options(OFF)


@pytest.mark.slow
@pytest.mark.parametrize("reboots", [False, True], ids=["killed", "killed, then rebooted"])
def test_a_swap_that_is_killed_ends_with_the_parameters_of_the_change(tmp_path: Path, *, reboots: bool) -> None:
    for at in count(0, EVERY):
        root = tmp_path / str(at)
        root.mkdir()
        machine, staged = a_node(root, OFF, ON)
        is_over = _is_over(staged, at)
        if reboots:
            machine.reboot()

        assert staged.run("swap").state == "done", f"killed at {at}"
        assert machine.loaded_with == parse_options(ON), f"killed at {at}"
        if is_over:
            return


def _is_over(staged: Staged, at: int) -> bool:
    try:
        staged.run("swap", Killer(at, files=True))
    except KilledError:
        return False
    return True


def test_planner_and_program_read_the_same_parameters() -> None:
    """What is planned as no disruption must not unload a module under those who use it."""
    rendered = modprobe.render_options(
        {"nvidia", "nvidia-current"}, {"NVreg_EnableGpuFirmware": 1, "NVreg_RmMsg": "a:b"}
    )
    texts = [
        rendered,
        "",
        "options nvidia\n",
        "options nvidia_drm modeset=1\n options  nvidia\tA=1 B=2\n# options nvidia C=3",
    ]

    assert parse_options(rendered) == {"NVreg_EnableGpuFirmware=1", "NVreg_RmMsg=a:b"}
    assert modprobe.OPTIONS_PATH == OPTIONS_PATH
    assert [parse_options(text) for text in texts] == [modprobe.parse_options(text) for text in texts]
