"""SELinux: containers are let use their GPUs by a module of ours, and its mode is a fact that plans follow."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from provision.declaration.fleet.facts.kernel import ApparmorState, SelinuxState
from provision.planning.node_plan import Action, Disruption
from provision.planning.planner.runtime.selinux import POLICY_TARGET
from provision.planning.render.selinux import GPU_TYPE, MODULE_PATH, render_module
from tests.provision.samples import configured, make_facts, make_stack, plan, replace, simulate_apply, steps

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts

NODES = {"/dev/nvidia0": "xserver_misc_device_t", "/dev/nvidiactl": "xserver_misc_device_t"}
DIGEST = hashlib.sha256(render_module().encode()).hexdigest()


def node(mode: str = "enforcing", **changes: object) -> NodeFacts:
    """Return a node that is as declared, but that nothing was done for SELinux on it."""
    state = SelinuxState(mode=mode, policy="targeted", nodes=NODES)
    return replace(configured(make_stack()), selinux=replace(state, **changes))


@pytest.mark.parametrize("mode", ["enforcing", "permissive"])
def test_where_selinux_is_on_its_policy_is_given_a_module(mode: str) -> None:
    found = plan(node(mode), make_stack())
    assert steps(found.items) == [
        ("write", MODULE_PATH),
        ("load", POLICY_TARGET),
        ("set", "labels of device nodes"),
    ]
    assert found.disruption is Disruption.NONE
    assert found.roles.runtime is not None
    assert found.roles.runtime.runtime_selinux == DIGEST
    assert mode in next(item.reason for item in found.items if item.action is Action.LOAD)


def test_what_was_done_leaves_nothing_to_do() -> None:
    stack = make_stack()
    done = simulate_apply(node(), plan(node(), stack))
    assert plan(done, stack).is_empty
    assert done.selinux is not None
    assert set(done.selinux.nodes.values()) == {GPU_TYPE}


@pytest.mark.parametrize("selinux", [None, SelinuxState(mode="disabled")], ids=["not told", "off"])
def test_where_it_is_off_nothing_is_planned(selinux: SelinuxState | None) -> None:
    found = plan(replace(configured(make_stack()), selinux=selinux), make_stack())
    assert found.is_empty
    assert not found.warnings


def test_what_was_done_in_permissive_mode_is_enough_for_enforcing() -> None:
    stack = make_stack()
    done = simulate_apply(node("permissive"), plan(node("permissive"), stack))
    assert done.selinux is not None
    enforcing = replace(done, selinux=replace(done.selinux, mode="enforcing"))
    assert plan(enforcing, stack).is_empty
    made_since = replace(enforcing.selinux, nodes={**done.selinux.nodes, "/dev/nvidia1": "device_t"})
    found = plan(replace(enforcing, selinux=made_since), stack)
    assert steps(found.items) == [("set", "labels of device nodes")]
    assert "/dev/nvidia1" in found.items[0].reason


@pytest.mark.parametrize("mode", ["enforcing", "permissive"])
def test_mps_is_warned_of_where_containers_could_not_connect(mode: str) -> None:
    stack = make_stack(plugin={"enabled": True, "sharing": {"mps": {"resources": [{"name": "gpu", "replicas": 2}]}}})
    assert "selinux-mps" in [each.code for each in plan(node(mode), stack).warnings]
    assert "selinux-mps" not in [each.code for each in plan(node("disabled"), stack).warnings]
    assert "selinux-mps" not in [each.code for each in plan(node(mode), make_stack()).warnings]


def test_a_module_with_another_text_is_replaced() -> None:
    stack = make_stack()
    done = simulate_apply(node(), plan(node(), stack))
    assert done.selinux is not None
    for digest in ("0" * 64, ""):
        found = plan(replace(done, selinux=replace(done.selinux, module=digest)), stack)
        assert steps(found.items) == [("load", POLICY_TARGET)]


def test_nodes_that_were_made_with_another_label_are_labelled() -> None:
    stack = make_stack()
    done = simulate_apply(node(), plan(node(), stack))
    assert done.selinux is not None
    found = plan(replace(done, selinux=replace(done.selinux, nodes={"/dev/nvidia0": "device_t"})), stack)
    assert steps(found.items) == [("set", "labels of device nodes")]
    assert found.items[0].from_ == "device_t"


def test_nodes_that_the_module_does_not_name_keep_the_label_of_the_policy() -> None:
    """`restorecon` gives them that one again, and the plan would never be empty."""
    stack = make_stack()
    done = simulate_apply(node(), plan(node(), stack))
    assert done.selinux is not None
    others = dict.fromkeys(("/dev/nvidia-nvlink", "/dev/nvidia-fs0", "/dev/nvidia-caps0"), "xserver_misc_device_t")
    assert plan(replace(done, selinux=replace(done.selinux, nodes={**done.selinux.nodes, **others})), stack).is_empty


def test_selinux_that_is_switched_on_is_a_finding() -> None:
    stack = make_stack()
    before = replace(configured(stack), selinux=SelinuxState(mode="disabled"))
    assert plan(before, stack).is_empty
    assert not plan(replace(before, selinux=SelinuxState(mode="enforcing")), stack).is_empty


def test_selinux_that_is_switched_off_is_a_finding() -> None:
    stack = make_stack()
    done = simulate_apply(node(), plan(node(), stack))
    found = plan(replace(done, selinux=SelinuxState(mode="disabled")), stack)
    assert found.is_empty
    assert [each.code for each in found.warnings] == ["selinux-switched-off"]


def test_a_machine_without_the_tools_is_told_before_anything_is_done() -> None:
    found = plan(node(tools=False), make_stack())
    assert [each.code for each in found.problems] == ["selinux-tools"]
    assert "policycoreutils" in found.problems[0].hint
    permissive = plan(node("permissive", tools=False), make_stack())
    assert not permissive.problems
    assert "selinux-tools" in [each.code for each in permissive.warnings]


def test_a_first_apply_brings_module_and_engine_together() -> None:
    found = plan(replace(make_facts(), selinux=SelinuxState(mode="enforcing")), make_stack())
    assert ("load", POLICY_TARGET) in steps(found.items)


@pytest.mark.parametrize(("mode", "words"), [("enforcing", "refused"), ("permissive", "would refuse")])
def test_what_was_refused_is_told(mode: str, words: str) -> None:
    found = plan(node(mode, denials=("container_t open /dev/nvidia0",)), make_stack())
    told = next(each for each in found.warnings if each.code == "selinux-denials")
    assert f"{words} on" in told.message
    assert "container_t open /dev/nvidia0" in told.message


def test_what_apparmor_refused_is_told_and_nothing_is_planned() -> None:
    facts = replace(configured(make_stack()), apparmor=ApparmorState(mode="enabled"))
    assert not plan(facts, make_stack()).warnings
    found = plan(replace(facts, apparmor=ApparmorState(mode="enabled", denials=("p open /dev/nvidia0",))), make_stack())
    assert found.is_empty
    assert [each.code for each in found.warnings] == ["apparmor-denials"]
    assert "p open /dev/nvidia0" in found.warnings[0].message
