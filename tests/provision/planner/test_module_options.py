"""Parameters of the kernel module: a change of them alone drains the node and loads the module again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.declaration.fleet.facts.driver import Initramfs
from provision.declaration.fleet.facts.node import DeviceHolder
from provision.planning.node_plan import Action, Disruption
from provision.planning.planner.drivers.kernel_module import TARGET
from provision.planning.render.modprobe import OPTIONS_PATH
from tests.provision.samples import (
    GPU,
    edit_file,
    make_facts,
    make_stack,
    plan,
    replace,
    simulate_apply,
    staged,
    steps,
    text_of,
)

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec
    from provision.planning.node_plan import Item

DAEMON = ("restart", "grapnel-node.service")


def declared(**parameters: int | str) -> StackSpec:
    return make_stack(driver={"kernelModule": "proprietary", "companions": [], "moduleParameters": parameters})


def node(stack: StackSpec, facts: NodeFacts | None = None) -> NodeFacts:
    """Return a node with a GPU that is as declared, with the module that comes with the packages."""
    facts = facts or make_facts(gpus=(GPU,))
    for _ in range(3):
        facts = simulate_apply(facts, plan(facts, stack))
    assert facts.module.loaded
    assert plan(facts, stack).is_empty
    return facts


def reload_of(facts: NodeFacts, stack: StackSpec) -> Item | None:
    return next((item for item in plan(facts, stack).items if item.target == TARGET), None)


CHANGES = [
    pytest.param(declared(NVreg_EnableGpuFirmware=0), declared(NVreg_EnableGpuFirmware=1), id="another value"),
    pytest.param(declared(), declared(NVreg_EnableGpuFirmware=1), id="a new parameter"),
    pytest.param(declared(NVreg_EnableGpuFirmware=1), declared(), id="a parameter that is declared no more"),
]


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_other_parameters_are_staged_and_take_a_drained_node_and_the_module_loaded_again(
    before: StackSpec, after: StackSpec
) -> None:
    """One file was written, nothing was disrupted, and the loaded module kept what it had."""
    facts = node(before)

    first = plan(facts, after)
    ready = plan(staged(facts, after), after)

    assert first.disruption is Disruption.DRAIN
    assert first.roles.driver is not None
    assert not first.roles.driver.driver_swap, "it is staged while the GPUs are in use"
    assert steps(ready.items) == [("write", OPTIONS_PATH), ("reload", TARGET), DAEMON]
    assert plan(simulate_apply(staged(facts, after), ready), after).is_empty


def test_who_holds_a_gpu_is_named() -> None:
    facts = replace(
        node(declared()), device_holders=(DeviceHolder(pid=77, command="train", devices=("/dev/nvidia0",)),)
    )

    item = reload_of(facts, declared(NVreg_EnableGpuFirmware=1))

    assert item is not None
    assert "train (pid 77)" in item.reason


def test_a_value_that_somebody_wrote_into_the_file_is_not_told_and_is_put_right_by_a_reload() -> None:
    stack = declared(NVreg_EnableGpuFirmware=1)
    edited = text_of(node(stack), OPTIONS_PATH).replace("Firmware=1", "Firmware=18")

    item = reload_of(edit_file(node(stack), OPTIONS_PATH, edited), stack)

    assert item is not None
    assert (item.action, item.disruption) == (Action.RELOAD, Disruption.DRAIN)
    assert "18" not in item.reason


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(lambda text: f"# a word\n{text}", id="a comment"),
        pytest.param(lambda text: text.replace("options nouveau modeset=0\n", ""), id="a line about nouveau"),
    ],
)
def test_what_is_no_parameter_of_the_module_is_written_while_everything_runs(edit: object) -> None:
    assert callable(edit)
    stack = declared(NVreg_EnableGpuFirmware=1)
    facts = node(stack)

    found = plan(edit_file(facts, OPTIONS_PATH, edit(text_of(facts, OPTIONS_PATH))), stack)

    assert ("write", OPTIONS_PATH) in steps(found.items)
    assert found.disruption is Disruption.NONE


def test_a_node_without_a_gpu_loads_nothing_again() -> None:
    facts = simulate_apply(make_facts(), plan(make_facts(), declared()))

    assert reload_of(facts, declared(NVreg_EnableGpuFirmware=1)) is None


IN_FORCE = [
    pytest.param(1, {"NVreg_EnableGpuFirmware": 1}, "", id="the value that is declared"),
    pytest.param("0x12", {"NVreg_EnableGpuFirmware": 18}, "", id="the same number"),
    pytest.param("022", {"NVreg_EnableGpuFirmware": 18}, "", id="the same number, in octal as the kernel reads it"),
    pytest.param("18a", {"NVreg_EnableGpuFirmware": 1}, "", id="a text"),
    pytest.param(1, {}, "", id="a parameter that the driver does not list"),
    pytest.param(
        1, {"NVreg_EnableGpuFirmware": 18}, "NVreg_EnableGpuFirmware is 18, and is declared as 1", id="another value"
    ),
]


@pytest.mark.parametrize(("value", "known", "said"), IN_FORCE)
def test_a_parameter_that_is_written_and_not_in_force_is_warned_about(
    value: int | str, known: dict[str, int], said: str
) -> None:
    """Whether another load would help is not known, so that nothing is drained for it again and again."""
    stack = declared(NVreg_EnableGpuFirmware=value)
    facts = node(stack)

    found = plan(replace(facts, module=replace(facts.module, parameters=known)), stack)

    assert found.is_empty
    assert [warning.code for warning in found.warnings] == (["module-parameters-not-in-force"] if said else [])
    assert all(said in warning.message for warning in found.warnings)


@pytest.mark.parametrize(("tool", "remedy"), [("dracut", "dracut --force"), ("initramfs-tools", "update-initramfs -u")])
def test_a_disk_with_former_parameters_is_warned_about_and_nothing_is_drained_for_it(tool: str, remedy: str) -> None:
    stack = declared(NVreg_EnableGpuFirmware=1)
    before = replace(make_facts(gpus=(GPU,)), initramfs=Initramfs(tool=tool))
    facts = node(stack, before)

    assert plan(facts, stack).warnings == ()
    found = plan(replace(facts, initramfs=Initramfs(tool=tool, outdated=("6.12.118+deb13-amd64",))), stack)

    assert found.is_empty
    (warning,) = found.warnings
    assert warning.code == "initramfs-outdated"
    assert "6.12.118+deb13-amd64" in warning.message
    assert remedy in warning.hint


def test_a_module_that_is_loaded_again_anyway_is_not_warned_about() -> None:
    facts, stack = node(declared(NVreg_EnableGpuFirmware=0)), declared(NVreg_EnableGpuFirmware=1)
    facts = replace(facts, module=replace(facts.module, parameters={"NVreg_EnableGpuFirmware": 0}))

    assert plan(facts, stack).warnings == ()
