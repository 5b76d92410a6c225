"""GPUs are divided by MIG as declared: when that is planned, what it costs, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from provision.declaration.fleet.facts.mig import MigGpu, MigState
from provision.declaration.fleet.facts.node import DeviceHolder, Gpu, KernelModule
from provision.planning.node_plan import Action, Disruption
from provision.planning.planner.mig import expected_mig
from provision.planning.render.mig_layout import MIG_LAYOUT_PATH
from tests.provision.samples import configured, edit_service, make_facts, make_stack, plan, replace, simulate_apply

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec
    from provision.planning.node_plan import Item, NodePlan

LAYOUT = [
    {"devices": [0], "mig-enabled": True, "mig-devices": {"MIG 1g.10gb": 2, "3g.40gb": 1}},
    {"devices": [1], "mig-enabled": False},
]
AS_DECLARED = ({"1g.10gb": 2, "3g.40gb": 1}, None)
WHOLE = (None, None)


def declared(entries: list[dict[str, Any]] | None = None) -> StackSpec:
    config = {"version": "v1", "mig-configs": {"mine": entries or LAYOUT}}
    return make_stack(plugin={"migStrategy": "mixed"}, mig={"layout": "mine", "config": config})


def state(*gpus: dict[str, int] | None) -> MigState:
    """Return what the node tells: each GPU's MIG devices, None without MIG mode."""
    return MigState(
        gpus=tuple(
            MigGpu(index=index, uuid=f"GPU-{index}", enabled=devices is not None, devices=devices or {})
            for index, devices in enumerate(gpus)
        )
    )


def node(*gpus: dict[str, int] | None, device: str = "2330", stack: StackSpec | None = None) -> NodeFacts:
    """Return a node that is as declared otherwise."""
    found = tuple(Gpu(address=f"0000:{n}0:00.0", vendor="10de", device=device, class_="030200") for n in (1, 2))
    module = KernelModule(loaded=True, version="550.163.01", on_disk="550.163.01")
    facts = configured(stack or make_stack(plugin={"migStrategy": "mixed"}))
    return replace(facts, gpus=found, module=module, mig=state(*gpus) if gpus else None)


def division(found: NodePlan) -> Item | None:
    return next((item for item in found.items if item.action is Action.DIVIDE), None)


def test_a_new_layout_is_written_and_needs_the_node_drained() -> None:
    found = plan(node(*WHOLE), declared())

    item = division(found)
    assert item is not None
    assert (item.target, item.to, item.disruption) == ("GPUs by MIG", "mine", Disruption.DRAIN)
    assert item.reason == "GPU 0 is not in mig mode"
    variables = found.roles.node_daemon
    assert variables is not None
    assert variables.node_daemon_mig_divide
    (file,) = variables.node_daemon_mig_files
    assert file.path == MIG_LAYOUT_PATH
    assert json.loads(file.content) == {
        "version": 1,
        "layouts": [
            {"devices": [0], "migEnabled": True, "migDevices": {"1g.10gb": 2, "3g.40gb": 1}},
            {"devices": [1], "migEnabled": False, "migDevices": {}},
        ],
    }
    assert not variables.node_daemon_restart


def test_a_node_that_has_the_layout_by_now_is_given_the_file_alone() -> None:
    found = plan(node(*AS_DECLARED), declared())

    assert [(item.action, item.target) for item in found.items] == [(Action.WRITE, MIG_LAYOUT_PATH)]
    assert found.disruption is Disruption.NONE
    assert plan(simulate_apply(node(*AS_DECLARED), found), declared()).is_empty


DIFFERENCES = [
    pytest.param(
        ({"1g.10gb": 7}, None), "GPU 0 has 7 x 1g.10gb, and is to have 2 x 1g.10gb + 1 x 3g.40gb", id="others"
    ),
    pytest.param(({}, None), "GPU 0 has no MIG device, and is to have 2 x 1g.10gb + 1 x 3g.40gb", id="none"),
    pytest.param(({"1g.10gb": 2, "3g.40gb": 1}, {}), "GPU 1 is in mig mode", id="a mode that is not wanted"),
    pytest.param((None, {}), "GPU 0 is not in mig mode, GPU 1 is in mig mode", id="both"),
]


@pytest.mark.parametrize(("gpus", "reason"), DIFFERENCES)
def test_each_difference_is_named(gpus: tuple[dict[str, int] | None, ...], reason: str) -> None:
    item = division(plan(node(*gpus), declared()))

    assert item is not None
    assert item.reason == reason


def test_who_holds_a_gpu_is_named() -> None:
    facts = replace(node(*WHOLE), device_holders=(DeviceHolder(pid=7, command="train", devices=("/dev/nvidia0",)),))

    item = division(plan(facts, declared()))

    assert item is not None
    assert item.reason.endswith("a GPU is held by train (pid 7)")


def test_a_gpu_that_no_entry_is_about_stays_as_it_is() -> None:
    entries = [{"device-filter": "0x20B710DE", "devices": "all", "mig-enabled": False}]

    found = plan(node({"1g.10gb": 7}, {"7g.80gb": 1}), declared(entries))

    assert division(found) is None
    assert found.problems == ()


def test_without_a_layout_nothing_of_mig_is_touched() -> None:
    stack = make_stack(plugin={"migStrategy": "mixed"})

    assert plan(node({"1g.10gb": 7}, None), stack).is_empty


def test_where_no_daemon_runs_gpus_are_divided_at_once_before_it_offers_them() -> None:
    facts = replace(make_facts(), gpus=node().gpus, module=node().module)

    found = plan(facts, declared())

    item = division(found)
    assert item is not None
    assert (item.disruption, item.deferred) == (Disruption.NONE, False)
    actions = [each.action for each in found.items if each.role.value == "node_daemon"]
    assert actions[:3] == [Action.DEPLOY, Action.WRITE, Action.DIVIDE]
    assert actions[-1] is Action.ENABLE


def test_without_a_driver_nobody_is_asked_to_divide_gpus() -> None:
    facts = replace(make_facts(), gpus=node().gpus)

    assert division(plan(facts, declared())) is None


def test_a_daemon_that_is_too_old_to_tell_is_replaced_first_and_the_node_drained() -> None:
    facts = replace(node(), installed={**node().installed, "node": None})

    item = division(plan(facts, declared()))

    assert item is not None
    assert (item.deferred, item.disruption) == (True, Disruption.DRAIN)


def test_gpus_that_do_not_answer_stop_a_new_layout_and_are_told_of_otherwise() -> None:
    silent = replace(node(), mig=MigState(error="NVML does not answer"))

    refused = plan(silent, declared())
    told = plan(simulate_apply(silent, plan(node(*AS_DECLARED), declared())), declared())

    assert [problem.code for problem in refused.problems] == ["mig-unknown"]
    assert "NVML does not answer" in refused.problems[0].message
    assert told.problems == ()
    assert [warning.code for warning in told.warnings] == ["mig-unknown"]
    assert told.items == ()


def test_one_gpu_that_is_silent_is_no_reason_to_take_another_for_it() -> None:
    facts = replace(node(), mig=state(None))

    assert [problem.code for problem in plan(facts, declared()).problems] == ["mig-unknown"]


IMPOSSIBLE = [
    pytest.param([{"devices": [2], "mig-enabled": False}], "2330", "is about GPU 2, and n1 has 2", id="no such GPU"),
    pytest.param(
        [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 5}}],
        "20b0",
        "cannot be had by GPU 0 of n1: A100 40GB, A800 40GB has no room for 5 x 1g.10gb",
        id="no room",
    ),
    pytest.param(
        [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.6gb": 4}}],
        "2330",
        "H100 80GB, H800 80GB has no profile 1g.6gb",
        id="no such profile",
    ),
]


@pytest.mark.parametrize(("entries", "device", "message"), IMPOSSIBLE)
def test_what_the_nodes_gpus_cannot_have_is_refused(entries: list[dict[str, Any]], device: str, message: str) -> None:
    found = plan(node(*WHOLE, device=device), declared(entries))

    assert message in found.problems[0].message
    assert found.roles.node_daemon is None


def test_a_gpu_without_mig_mode_is_refused() -> None:
    gpus = (MigGpu(index=0, uuid="GPU-0"), MigGpu(index=1, uuid="GPU-1"))

    found = plan(replace(node(device="1eb8"), mig=MigState(gpus=gpus)), declared())

    assert "GPU 0 of n1: it has no mig mode" in found.problems[0].message


def test_a_filter_by_subsystem_is_for_those_cards_alone() -> None:
    entries = [{"device-filter": "0x233010DE:0x16C110DE", "devices": "all", "mig-enabled": True, "mig-devices": {}}]
    one, other = node().gpus
    facts = node(*WHOLE)
    gpus = (one, replace(other, subsystem_vendor="10de", subsystem_device="16c1"))

    item = division(plan(replace(facts, gpus=gpus), declared(entries)))

    assert item is not None
    assert item.reason == "GPU 1 is not in mig mode"


def test_what_is_expected_afterwards_is_by_uuid() -> None:
    facts, stack = node({"1g.10gb": 7}, None), declared()

    assert expected_mig(facts, stack) == {
        "GPU-0": [{"profile": "1g.10gb"}, {"profile": "1g.10gb"}, {"profile": "3g.40gb"}],
        "GPU-1": None,
    }
    assert expected_mig(facts, stack, as_it_is=True) == {"GPU-1": None}
    assert expected_mig(facts, make_stack()) == {}


def test_a_daemon_that_was_stopped_offers_nothing_so_that_nothing_is_drained() -> None:
    facts = edit_service(node(*WHOLE), "grapnel-node.service", active="inactive")

    item = division(plan(facts, declared()))

    assert item is not None
    assert item.disruption is Disruption.NONE
