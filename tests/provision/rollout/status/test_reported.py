"""A node that is content as far as upgrades go needs somebody where its daemon is silent, or GPUs are not offered."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from provision.declaration.spec.model import (
    DaemonAs,
    MemoryUnits,
    NamePattern,
    Plugin,
    ResourceNames,
    Share,
    Sharing,
    SharingStrategy,
)
from provision.rollout.model import NodeView, Phase, Record
from provision.rollout.status.derive import fleet_status
from provision.rollout.status.model import NodeStatus, Seen, Tenant
from provision.rollout.status.reported import Daemon, Drift, Reported, User
from provision.rollout.status.situations import DONE, IDLE, NO_REPORT, NOT_READY, SHORT_OF_GPUS, SILENT
from provision.rollout.status.words import HEADS, Last, cells_of, facts_of, rows_of
from tests.provision.rollout.fakes import MINUTE, record, view
from tests.provision.rollout.status.test_derive import ADA, NOW

GOOD = Reported(
    heard=NOW - MINUTE,
    kubelet="v1.31.2",
    engine="containerd 1.7.27",
    daemon=Daemon.REPORTS,
    said=NOW - 4 * MINUTE,
    driver="550.163.01",
    module="open",
    seen=4,
    drift=Drift.NONE,
    offered={"nvidia.com/gpu": 4},
    capacity={"nvidia.com/gpu": 4},
)
QUIET = replace(GOOD, daemon=Daemon.SILENT, driver="", module="", seen=None, drift=Drift.NOT_KNOWN)
MUTE = replace(QUIET, daemon=Daemon.NO_REPORT, said=None)
TOLD_TO = Plugin(kubernetes_api="/etc/kubernetes/kubelet.conf")


def status(
    reported: Reported | None,
    plugin: Plugin | None = None,
    *,
    seen: NodeView | None = None,
    tenant: Tenant | None = None,
) -> NodeStatus:
    looked = Seen(
        place="cluster test",
        time=NOW,
        nodes={"n1": seen or view("n1")},
        tenant=tenant,
        reported={} if reported is None else {"n1": reported},
        daemons={} if plugin is None else {"n1": plugin},
    )
    (node,) = fleet_status(looked).nodes
    return node


def offering(number: int, *, seen: int | None = 4, capacity: int = 4) -> Reported:
    return replace(GOOD, seen=seen, offered={"nvidia.com/gpu": number}, capacity={"nvidia.com/gpu": capacity})


@pytest.mark.parametrize(
    ("reported", "plugin", "reason"),
    [
        (offering(3), None, "it has 4 GPUs and offers 3"),
        (offering(0, capacity=0), None, "it has 4 GPUs and offers none"),
        (offering(0, capacity=4), None, "it has 4 GPUs and offers 0"),
        (offering(0, seen=None, capacity=4), None, "pods cannot be given 4 of 4 nvidia.com/gpu"),
        (replace(MUTE, offered={}, capacity={}), Plugin(), "it offers no GPU"),
        (
            replace(GOOD, driver="", seen=None, driver_trouble="no driver is loaded", offered={}, capacity={}),
            None,
            "it offers no GPU: no driver is loaded",
        ),
        (
            replace(GOOD, unusable=1, gpu_trouble="1 of 4 GPUs cannot be used: xid 79"),
            None,
            "1 of 4 GPUs cannot be used: xid 79",
        ),
        (
            replace(GOOD, offered={"nvidia.com/mig-1g.10gb": 27}, capacity={"nvidia.com/mig-1g.10gb": 28}),
            None,
            "pods cannot be given 1 of 28 nvidia.com/mig-1g.10gb",
        ),
    ],
    ids=[
        "one is missing",
        "the kubelet knows of none",
        "the kubelet lost all",
        "nobody says how many there are",
        "never applied",
        "no driver",
        "a GPU is ill",
        "a MIG device is missing",
    ],
)
def test_a_node_that_offers_fewer_gpus_than_it_has_needs_somebody(
    reported: Reported, plugin: Plugin | None, reason: str
) -> None:
    found = status(reported, plugin)

    assert (found.situation, found.reason) == (SHORT_OF_GPUS, reason)
    assert found.situation.needs_somebody


@pytest.mark.parametrize(
    ("reported", "plugin"),
    [
        (GOOD, None),
        (GOOD, TOLD_TO),
        (MUTE, Plugin()),
        (replace(GOOD, offered={"nvidia.com/gpu": 16}, capacity={"nvidia.com/gpu": 16}), None),
        (replace(GOOD, offered={"aliyun.com/gpu-mem": 320}), Plugin(memory_units=(MemoryUnits(),))),
        (replace(GOOD, offered={"example.com/a": 4}), Plugin(resource="example.com/a")),
        (
            replace(GOOD, offered={"example.com/a": 4}),
            Plugin(resources=ResourceNames(gpus=(NamePattern(pattern="*", name="example.com/a"),))),
        ),
        (
            replace(GOOD, offered={"example.com/b": 8}),
            Plugin(
                sharing=Sharing(
                    time_slicing=SharingStrategy(
                        resources=(Share(name="nvidia.com/gpu", replicas=2, rename="example.com/b"),)
                    )
                )
            ),
        ),
        (replace(MUTE, offered={}, capacity={}), Plugin(enabled=False)),
        (replace(MUTE, offered={}, capacity={}), None),
        (QUIET, Plugin()),
        (replace(GOOD, seen=0, offered={}, capacity={}), None),
        (replace(MUTE, offered=None), Plugin()),
        (None, TOLD_TO),
    ],
    ids=[
        "all of them",
        "and says so",
        "its daemon is not told to report",
        "shares",
        "units of memory",
        "another resource",
        "resources by product",
        "renamed shares",
        "no daemon is declared",
        "nobody knows what is declared",
        "it reports no more, as is declared",
        "without GPUs",
        "the kubelet does not report",
        "no Node",
    ],
)
def test_a_node_that_is_as_it_should_be_is_content(reported: Reported | None, plugin: Plugin | None) -> None:
    assert status(reported, plugin).situation is IDLE


@pytest.mark.parametrize(
    "plugin", [None, TOLD_TO, Plugin(daemon=DaemonAs.DAEMON_SET)], ids=["not known", "a unit", "a pod"]
)
def test_a_daemon_that_fell_silent_needs_somebody(plugin: Plugin | None) -> None:
    found = status(QUIET, plugin)

    assert (found.situation, found.since) == (SILENT, QUIET.said)


def test_a_daemon_that_is_told_to_report_and_never_has_needs_somebody() -> None:
    assert status(MUTE, TOLD_TO).situation is NO_REPORT


def test_it_is_so_of_a_node_whose_upgrade_is_done_but_for_its_first_minutes() -> None:
    done = record(Phase.DONE, since=NOW - 3 * MINUTE)

    assert status(offering(3), seen=view("n1", done)).situation is SHORT_OF_GPUS
    assert status(offering(3), seen=view("n1", replace(done, since=NOW - timedelta(seconds=30)))).situation is DONE


@pytest.mark.parametrize("kept", [record(Phase.DRAIN), record(Phase.SWAP)])
def test_a_node_out_of_service_offers_nothing_and_that_is_right(kept: Record) -> None:
    found = status(offering(0), seen=view("n1", kept), tenant=ADA)

    assert not found.situation.needs_somebody


def test_a_node_that_is_not_ready_says_that_first() -> None:
    assert status(offering(0), seen=view("n1", is_ready=False)).situation is NOT_READY


def test_what_an_apply_is_about_to_bring_about_is_not_missing_yet() -> None:
    bare = replace(MUTE, offered={}, capacity={})

    assert status(bare, TOLD_TO).situation is NO_REPORT
    assert status(bare, TOLD_TO, tenant=ADA).situation is IDLE
    assert status(offering(3), TOLD_TO, tenant=ADA).situation is SHORT_OF_GPUS


def test_what_is_known_is_one_row() -> None:
    cells = cells_of(status(GOOD))

    assert (cells.driver, cells.module, cells.engine) == ("550.163.01", "open", "containerd 1.7.27")
    assert (cells.daemon, cells.gpus, cells.drift) == ("reports", "4 of 4 offered", "none")
    assert rows_of([status(GOOD)], {})[1] == []


@pytest.mark.parametrize(
    ("reported", "words"),
    [
        (replace(GOOD, offered={"nvidia.com/gpu": 16}), "4 seen, offered: 16 gpu"),
        (offering(4, seen=None), "4 offered"),
        (offering(0), "0 of 4 offered"),
        (offering(0, seen=None), "none offered"),
        (replace(GOOD, offered=None), "4 seen"),
        (replace(MUTE, offered=None), "not known"),
    ],
)
def test_how_gpus_are_offered_is_said_in_words(reported: Reported, words: str) -> None:
    assert cells_of(status(reported)).gpus == words


@pytest.mark.parametrize(
    ("reported", "plugin", "what", "how"),
    [
        (None, None, "what is so of the machine now", "`grapnel plan` and `grapnel drift` ask the machines"),
        (MUTE, Plugin(), "driver, module, drift", "plugin.kubernetesApi lets it"),
        (
            MUTE,
            Plugin(daemon=DaemonAs.DAEMON_SET),
            "driver, module, drift",
            "nodeDaemon.kubernetesApi of the chart lets it",
        ),
        (MUTE, TOLD_TO, "driver, module, drift", "the node daemon has never reported"),
        (QUIET, None, "driver, module, drift", "was not heard of for half an hour"),
        (replace(GOOD, drift=Drift.NOT_KNOWN), None, "drift", "grapnel-drift.timer"),
    ],
)
def test_what_is_not_known_is_said_with_what_would_make_it_known(
    reported: Reported | None, plugin: Plugin | None, what: str, how: str
) -> None:
    (unknown,) = rows_of([status(reported, plugin)], {})[1]

    assert (unknown.what, unknown.nodes) == (what, ("n1",))
    assert how in unknown.how


def test_a_node_without_a_node_object_has_one_line_for_all_that_is_not_known() -> None:
    done = record(Phase.DONE, since=NOW - 9 * MINUTE)

    assert [label for label, _, _ in facts_of(status(None, seen=view("n1", done)), None)] == ["driver", "not known"]


def test_a_driver_that_only_a_run_tells_is_told_as_that() -> None:
    last = Last("apply: converged", NOW, "550.163.01, as the run of 2026-05-04 02:41 UTC left it")

    assert cells_of(status(None), last).driver == last.driver
    assert cells_of(status(GOOD), last).driver == "550.163.01", "the node daemon says it now"
    assert cells_of(status(None), replace(last, driver="")).driver == "not known"


def test_a_driver_that_only_its_record_tells_is_told_as_that() -> None:
    done = record(Phase.DONE, since=NOW - 9 * MINUTE)

    assert cells_of(status(None, seen=view("n1", done))).driver == f"{done.target}, by its record"
    assert cells_of(status(MUTE, seen=view("n1", done))).driver == f"{done.target}, by its record"
    assert cells_of(status(replace(GOOD, driver="", driver_trouble="why"), seen=view("n1", done))).driver == (
        "does not answer"
    )


def using(name: str, **gpus: int) -> NodeStatus:
    """Return a node that is well, whose pods hold devices."""
    users = tuple(User(f"shop/{name}-{what}", {f"nvidia.com/{what}": number}) for what, number in gpus.items())
    return replace(status(replace(GOOD, users=users)), name=name)


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        pytest.param([using("n1"), using("n2")], "none", id="none"),
        pytest.param([using("n1", gpu=3), using("n2", gpu=3)], "3", id="the same"),
        pytest.param([using("n1", gpu=3), using("n2"), using("n3", gpu=1)], "0 to 3", id="from the least to the most"),
        pytest.param([using("n1", **{"mig-1g.10gb": 2}), using("n2", gpu=1)], "0 to 1, 0 to 2 mig-1g.10gb", id="parts"),
        pytest.param(
            [using("n1", **{f"x{number}": 1 for number in range(6)})], "1 x0, 1 x1, 1 x2, 1 x3, 2 more", id="any names"
        ),
    ],
)
def test_nodes_that_differ_in_their_use_alone_are_one_row(nodes: list[NodeStatus], words: str) -> None:
    rows, _ = rows_of(nodes, {})
    assert [(row.nodes, row.in_use) for row in rows] == [(tuple(node.name for node in nodes), words)]
    assert dict(zip(HEADS, rows[0].texts, strict=True))["in use"] == words


def test_nodes_of_which_nobody_knows_the_use_are_a_row_of_their_own() -> None:
    rows, _ = rows_of([using("n1", gpu=1), replace(status(GOOD), name="n2")], {})
    assert [(row.nodes, row.in_use) for row in rows] == [(("n1",), "1"), (("n2",), "not known")]
