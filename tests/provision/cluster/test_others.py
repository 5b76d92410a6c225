"""What a Node says of other tools that are at it, and of what people want done with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from provision.cluster.kubernetes.nodes.node_view import view_of
from provision.cluster.kubernetes.nodes.others import (
    MARKS,
    MCO_PAIRS,
    MCO_STATE,
    OPT_OUT,
    OWN_REASON,
    PLANNED,
    Asked,
    MarkPlace,
    is_skipped,
    opt_out_of,
    pool_of,
    priority_of,
    remarks_of,
    render_table,
    told_of,
    why_held,
)
from provision.cluster.kubernetes.objects.nodes import Node
from provision.cluster.kubernetes.pods.gpu_pods import NodePods
from provision.declaration.spec.model import RESPECTED, Tool
from provision.rollout.model import NodeView

ALL = frozenset(RESPECTED)
CONFIG = "machineconfiguration.openshift.io/{}Config"


def node(
    *,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    taints: tuple[str, ...] = (),
    conditions: tuple[tuple[str, str, str], ...] = (),
    is_cordoned: bool = True,
    **metadata: str,
) -> Node:
    whole: dict[str, Any] = {
        "metadata": {"name": "n1", "annotations": annotations or {}, "labels": labels or {}, **metadata},
        "spec": {"unschedulable": is_cordoned, "taints": [{"key": key, "effect": "NoSchedule"} for key in taints]},
        "status": {
            "conditions": [{"type": kind, "status": status, "reason": reason} for kind, status, reason in conditions]
        },
    }
    return msgspec.convert(whole, Node)


def marked(kind: MarkPlace, key: str) -> Node:
    if kind is MarkPlace.TAINT:
        return node(taints=(key,))
    if kind is MarkPlace.CONDITION:
        return node(conditions=((key, "True", "AdminRequested"),))
    return node(annotations={key: "anything"})


@pytest.mark.parametrize("mark", MARKS, ids=lambda mark: f"{mark.tool.value}: {mark.key}")
def test_each_mark_holds_a_node_while_its_tool_is_respected(mark: Any) -> None:
    seen = marked(mark.kind, mark.key)
    assert mark.means in why_held(seen, ALL)
    assert mark.key in why_held(seen, ALL)
    assert "waits until " in why_held(seen, ALL)
    assert why_held(seen, ALL - {mark.tool}) == ""
    assert why_held(node(), ALL) == ""


def test_every_tool_that_can_be_respected_has_a_mark() -> None:
    assert {mark.tool for mark in MARKS} | {Tool.MACHINE_CONFIG_OPERATOR} == set(RESPECTED)
    assert all(mark.source for mark in MARKS)


def test_a_node_that_is_being_deleted_does_not_begin_whatever_is_respected() -> None:
    assert "being deleted" in why_held(node(deletionTimestamp="2026-11-21T09:30:00Z"), frozenset())


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param({}, "", id="no OpenShift"),
        pytest.param({MCO_STATE: "Done"}, "", id="done"),
        pytest.param({MCO_STATE: "Working"}, "is updating it", id="at work"),
        pytest.param({MCO_STATE: "Rebooting"}, "is updating it", id="rebooting"),
        pytest.param({MCO_STATE: "Degraded"}, "could not update it", id="degraded"),
        pytest.param(
            {MCO_STATE: "Done", CONFIG.format("current"): "a", CONFIG.format("desired"): "b"},
            "is updating it",
            id="told to update, and not at it yet",
        ),
        pytest.param(
            {MCO_STATE: "Done", CONFIG.format("current"): "a", CONFIG.format("desired"): "a"}, "", id="up to date"
        ),
        pytest.param(
            {MCO_STATE: "Done", "machineconfiguration.openshift.io/desiredDrain": "drain-x"},
            "is updating it",
            id="drain",
        ),
    ],
)
def test_the_machine_config_operator_is_waited_for(annotations: dict[str, str], expected: str) -> None:
    found = why_held(node(annotations=annotations), ALL)
    assert (expected in found) if expected else not found
    assert why_held(node(annotations=annotations), frozenset()) == ""


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(node(conditions=(("Drained", "False", "X"),)), id="a condition that is false"),
        pytest.param(node(conditions=(("MaintenanceInProgress", "Unknown", "X"),)), id="one that is not known"),
        pytest.param(node(conditions=(("Drained", "True", f"{OWN_REASON}Upgrade"),)), id="one that grapnel wrote"),
        pytest.param(
            node(conditions=(("DrainInProgress", "True", "X"),), is_cordoned=False),
            id="a drain of a node that takes pods again: it was forgotten",
        ),
        pytest.param(node(conditions=((PLANNED, "True", "MaintenanceWindow"),)), id="what is only planned"),
        pytest.param(
            node(annotations={"quarantineHealthEvent": "[]", "quarantineHealthEventDryRun": "true"}),
            id="a quarantine that NVSentinel only tries out",
        ),
        pytest.param(node(taints=("DeletionCandidateOfClusterAutoscaler",)), id="a candidate of the autoscaler"),
    ],
)
def test_what_is_no_hold(seen: Node) -> None:
    assert why_held(seen, ALL) == ""


def test_the_reason_of_a_condition_is_repeated_only_where_it_is_a_word() -> None:
    assert "MaintenanceInProgress, DiskSwap)" in why_held(
        node(conditions=(("MaintenanceInProgress", "True", "DiskSwap"),)), ALL
    )
    hostile = why_held(node(conditions=(("MaintenanceInProgress", "True", "x\n\x1b[2J" + "y" * 9999),)), ALL)
    assert hostile.isprintable()
    assert len(hostile) < 200


@pytest.mark.parametrize(
    ("text", "priority"),
    [
        ("5", 5),
        ("-5", 0),
        ("0", 0),
        ("1000", 1000),
        ("1001", 0),
        ("-1001", 0),
        ("9" * 5000, 0),
        ("high", 0),
        ("", 0),
        ("٣", 0),
        ("+5", 0),
    ],
)
def test_a_priority_is_a_small_number_and_anything_else_is_none(text: str, priority: int) -> None:
    assert priority_of(node(labels={"grapnel.dev/upgrade-priority": text})) == priority


@pytest.mark.parametrize(("value", "expected"), [("true", True), ("false", False), ("True", False), ("", False)])
def test_a_node_is_skipped_by_nvidias_label(value: str, expected: bool) -> None:  # noqa: FBT001 - a case of a table
    assert is_skipped(node(labels={"nvidia.com/gpu-driver-upgrade.skip": value})) is expected
    assert is_skipped(node()) is False


def test_a_view_has_what_was_asked_for_and_no_more() -> None:
    seen = node(
        labels={"zone": "a", "other": "b", "nvidia.com/gpu-driver-upgrade.skip": "true"}, taints=("medik8s.io/drain",)
    )
    view = view_of(
        "n1", seen, "cluster test", NodePods(), Asked(labels=frozenset({"zone", "rack"}), respect=frozenset())
    )
    assert isinstance(view, NodeView)
    assert (view.labels, view.held_by, view.is_skipped, view.priority) == ({"zone": "a"}, "", True, 0)


def test_the_page_has_the_table() -> None:
    """When this fails: write what ``render_table`` of ``provision.cluster.kubernetes.nodes.others`` returns."""
    page = Path(__file__).parents[3] / "docs/upgrade/other-tools.md"
    assert render_table() in page.read_text()


def test_a_planned_maintenance_is_told_of_and_holds_nothing() -> None:
    planned = node(conditions=((PLANNED, "True", "FirmwareUpdate"),))
    assert remarks_of(planned) == ("somebody plans a maintenance of it (condition MaintenancePlanned, FirmwareUpdate)",)
    assert why_held(planned, ALL) == ""
    assert remarks_of(node(conditions=((PLANNED, "False", "FirmwareUpdate"),))) == ()
    assert remarks_of(node(conditions=((PLANNED, "True", f"{OWN_REASON}Cordon"),))) == (), "that is grapnel's own"
    (hostile,) = remarks_of(node(conditions=((PLANNED, "True", "x\n\x1b[2J" + "y" * 9999),)))
    assert hostile == "somebody plans a maintenance of it (condition MaintenancePlanned)"


@pytest.mark.parametrize(
    ("config", "pool"),
    [
        (f"rendered-worker-{'0a' * 16}", "worker"),
        (f"rendered-gpu-a100-{'0a' * 16}", "gpu-a100"),
        ("rendered-worker-0a0a", ""),
        ("00-worker", ""),
        (f"rendered-x\x1b[2J-{'0a' * 16}", ""),
    ],
)
def test_the_pool_of_a_node_is_that_of_its_rendered_config(config: str, pool: str) -> None:
    assert pool_of(node(annotations={MCO_PAIRS[0][1]: config})) == pool
    assert pool_of(node()) == ""


def test_labels_that_are_there_already_are_not_set_whatever_they_say() -> None:
    assert opt_out_of(node()) == OPT_OUT
    assert opt_out_of(node(labels={OPT_OUT[0]: "true"})) == OPT_OUT[1:]
    assert opt_out_of(node(labels=dict.fromkeys(OPT_OUT, "false"))) == ()


def test_only_conditions_of_grapnel_tell_of_its_upgrades() -> None:
    own = node(conditions=(("GrapnelDriverUpgrade", "True", "GrapnelSwap"), ("Drained", "True", "GrapnelSwap")))
    assert told_of(own) == ("GrapnelDriverUpgrade", "Drained")
    others = (
        ("Drained", "True", "Admin"),
        ("GrapnelDriverUpgrade", "False", "GrapnelDone"),
        ("\x1b", "True", "GrapnelX"),
    )
    assert told_of(node(conditions=others)) == ()
