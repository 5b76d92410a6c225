"""Each GPU comes to its layout in steps, or it is said who or what is in the way."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from plugin.changes.mig_layout.document import parse_layout
from plugin.changes.mig_layout.model import Act, Instance
from plugin.changes.mig_layout.plan import plan_layout, plan_return
from tests.plugin.mig_layout.gpus import gpu, instance

if TYPE_CHECKING:
    from plugin.changes.mig_layout.model import GpuLayout, GpuPlan, Layout


def layout(*entries: dict[str, object]) -> Layout:
    return parse_layout(json.dumps({"version": 1, "layouts": list(entries)}).encode())


def cut(wanted: dict[str, int], **more: object) -> dict[str, object]:
    return {"devices": "all", "migEnabled": True, "migDevices": wanted, **more}


WHOLE = {"devices": "all", "migEnabled": False}


def plan(declared: Layout, one: GpuLayout) -> GpuPlan:
    (found,) = plan_layout(declared, [one])
    return found


def acts(found: GpuPlan) -> list[str]:
    return [str(step) for step in found.steps]


def test_what_is_as_declared_needs_nothing() -> None:
    one = gpu(instance("3g.40gb", 4), instance("1g.10gb", 0, number=2))
    assert plan(layout(cut({"MIG 1g.10gb": 1, "3g.40gb": 1})), one).steps == ()


def test_what_makes_place_is_destroyed_before_anything_is_made() -> None:
    one = gpu(instance("7g.80gb", 0))
    assert acts(plan(layout(cut({"3g.40gb": 2})), one)) == [
        "destroy 7g.80gb at 0:8",
        "create 3g.40gb at 0:4",
        "create 3g.40gb at 4:4",
    ]


def test_a_gpu_that_is_not_in_mig_mode_is_switched_first() -> None:
    one = gpu(is_cut=False, is_pending=False)
    assert acts(plan(layout(cut({"7g.80gb": 1})), one)) == ["turn mig mode on", "create 7g.80gb at 0:8"]


def test_a_driver_that_tells_no_profiles_with_the_mode_off_is_asked_again_when_it_is_on() -> None:
    found = plan(layout(cut({"7g.80gb": 1})), gpu(is_cut=False, is_pending=False, profiles=()))
    assert acts(found) == ["turn mig mode on"]
    assert found.more


def test_a_gpu_that_is_to_be_whole_loses_its_instances_and_then_its_mode() -> None:
    one = gpu(instance("3g.40gb", 0))
    assert acts(plan(layout(WHOLE), one)) == ["destroy 3g.40gb at 0:4", "turn mig mode off"]


def test_the_mode_alone_may_be_declared() -> None:
    assert acts(plan(layout(cut({})), gpu(instance("1g.10gb", 3)))) == ["destroy 1g.10gb at 3:1"]


def test_a_mode_that_somebody_asked_for_and_that_waits_for_a_reset_is_taken_back() -> None:
    found = plan(layout(cut({"7g.80gb": 1})), gpu(instance("7g.80gb", 0), is_pending=False))
    assert [step.act for step in found.steps] == [Act.MODE_ON]


def test_a_whole_gpu_without_mig_is_as_declared() -> None:
    assert plan(layout(WHOLE), gpu(is_cut=None, is_pending=None, profiles=())).steps == ()


@pytest.mark.parametrize(
    ("devices", "changes", "words"),
    [
        pytest.param({"5g.50gb": 1}, {}, "it has no mig profile 5g.50gb", id="a profile of another gpu"),
        pytest.param({"4g.40gb": 2}, {}, "there is no room for all of 4g.40gb, 4g.40gb", id="no room"),
        pytest.param({"1g.10gb": 1}, {"is_cut": None, "profiles": ()}, "cannot be cut by mig", id="no mig at all"),
    ],
)
def test_a_layout_that_this_gpu_cannot_have_is_wrong(
    devices: dict[str, int], changes: dict[str, object], words: str
) -> None:
    found = plan(layout(cut(devices)), gpu(**changes))  # type: ignore[arg-type] # the fields of GpuLayout
    assert found.is_wrong
    assert words in found.refusal
    assert not found.steps


def test_who_uses_an_instance_that_cannot_stay_is_named() -> None:
    one = gpu(instance("1g.10gb", 3, holders=("pod team/train as nvidia.com/mig-1g.10gb",)))
    found = plan(layout(cut({"7g.80gb": 1})), one)
    assert not found.is_wrong
    assert "1g.10gb at 3:1 by pod team/train" in found.refusal
    assert not found.steps


def test_who_uses_an_instance_that_stays_is_in_nobodys_way() -> None:
    one = gpu(instance("1g.10gb", 0, holders=("pod a",)), instance("3g.40gb", 4, number=2))
    assert acts(plan(layout(cut({"1g.10gb": 2})), one)) == ["destroy 3g.40gb at 4:4", "create 1g.10gb at 1:1"]


def test_the_mode_of_a_gpu_in_use_is_not_changed() -> None:
    found = plan(layout(cut({"7g.80gb": 1})), gpu(is_cut=False, is_pending=False, holders=("process 7 (python)",)))
    assert "process 7 (python)" in found.refusal


def test_the_last_entry_that_is_about_a_gpu_counts_as_with_mig_parted() -> None:
    declared = layout(
        WHOLE,
        cut({"7g.80gb": 1}, devices=[0, 1]),
        cut({"3g.40gb": 2}, deviceFilter=["0x233010DE:0x16C110DE"], devices=[1]),
        cut({"1g.10gb": 7}, deviceFilter=["0x20B010DE"]),
    )
    gpus = [replace(gpu(index=index), is_cut=False, is_pending=False) for index in range(3)]
    made = [[str(step) for step in each.steps if step.act is Act.CREATE] for each in plan_layout(declared, gpus)]
    assert made == [["create 7g.80gb at 0:8"], ["create 3g.40gb at 0:4", "create 3g.40gb at 4:4"], []]


def test_a_gpu_that_no_entry_is_about_stays_as_it_is() -> None:
    found = plan(layout(cut({"1g.10gb": 7}, deviceFilter=["0x20B010DE"])), gpu(instance("3g.40gb", 0)))
    assert (found.steps, found.is_declared) == ((), False)


def test_an_index_without_a_gpu_is_wrong_unless_the_entry_is_about_another_kind() -> None:
    declared = layout(cut({}, devices=[0, 4]), cut({}, devices=[5], deviceFilter=["0x20B010DE"]))
    wrong = [each for each in plan_layout(declared, [gpu()]) if each.is_wrong]
    assert [each.refusal for each in wrong] == ["there is no gpu 4"]


def test_a_gpu_that_does_not_answer_is_refused_and_not_taken_for_absent() -> None:
    found = plan(layout(cut({}, devices=[0])), gpu(problem="gpu is lost"))
    assert (found.is_wrong, found.refusal) == (False, "it does not answer: gpu is lost")


def test_what_was_there_before_is_made_in_its_place_again() -> None:
    was = (Instance(4, 4, "3g.40gb", (1, 1)), Instance(0, 1, "1g.10gb", (1,)))
    one = gpu(instance("3g.40gb", 4, 1), instance("2g.20gb", 0, number=2))
    (found,) = plan_return({"GPU-0": (True, was)}, [one])
    assert acts(found) == [
        "destroy 2g.20gb at 0:2",
        "complete 3g.40gb at 4:4 with compute slices 1",
        "create 1g.10gb at 0:1",
    ]


def test_a_gpu_that_was_whole_before_becomes_whole_again() -> None:
    (found,) = plan_return({"GPU-0": (False, ())}, [gpu()])
    assert acts(found) == ["turn mig mode off"]


def test_a_gpu_that_is_gone_is_told_when_going_back() -> None:
    (found,) = plan_return({"GPU-9": (False, ())}, [])
    assert "gone" in found.refusal
