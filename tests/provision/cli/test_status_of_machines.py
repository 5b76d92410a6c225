"""What status says of nodes that are at rest: their machines, their last runs, and what a watch tells of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import jsonschema
import pytest

from provision.cli.look.status import show_status, watch_status
from provision.declaration.spec.model import Driver, Plugin
from provision.report.runs.history import History, LastResult
from provision.rollout.status.reported import Drift, User
from tests.provision.cli.test_status import DONE, SCHEMA, FakeReader, read, seen, show, without_width
from tests.provision.rollout.fakes import MINUTE, view
from tests.provision.rollout.status.test_derive import ADA, NOW
from tests.provision.rollout.status.test_reported import GOOD, MUTE

if TYPE_CHECKING:
    from provision.rollout.status.model import Seen

__all__ = ["without_width"]  # a fixture

MACHINES = """\
cluster test
nobody is at work
5 nodes: 1 GPUs not offered, 4 no upgrade

GPUs not offered  1 node: it is in service and pods cannot be given all of its GPUs
  n5
    it has 4 GPUs and offers 3
  next: nothing by itself; pods are given the GPUs that are offered
  do: `grapnel apply n5`, if it was not applied yet; else what the reason names, and on the node: \
`journalctl -u grapnel-node`

nodes     driver      module     engine             daemon           GPUs            in use  drift      last run
n5        550.163.01  open       containerd 1.7.27  reports          3 of 4 offered  none    none       \
apply: converged, 1h00m ago
n1 to n3  550.163.01  open       containerd 1.7.27  reports          4 of 4 offered  0 to 4  none       \
apply: converged, 1h00m ago
n4        not known   not known  containerd 1.7.27  does not report  4 offered       2       not known  \
none that is kept
not known: driver, module, drift of n4: the node daemon does not report to its Node: \
plugin.kubernetesApi lets it, such as /etc/kubernetes/kubelet.conf
"""
FREE = replace(GOOD, users=())
REPORTED = {
    **dict.fromkeys(("n1", "n3"), FREE),
    "n2": replace(GOOD, users=(User("ml/train", {"nvidia.com/gpu": 4}),)),
    "n4": replace(MUTE, users=(User("ml/a", {"nvidia.com/gpu": 1}), User("ml/b", {"nvidia.com/gpu": 1}))),
    "n5": replace(FREE, offered={"nvidia.com/gpu": 3}),
}
APPLIED = seen(
    *map(view, REPORTED),
    tenant=None,
    reported=REPORTED,
    daemons=dict.fromkeys(REPORTED, Plugin()),
    declared={"n1": Driver(version="550.163.01")},
)
LAST = LastResult("20260504T024000Z-apply-3f2a", "apply", "converged", is_good=True, time=NOW - 60 * MINUTE)
HISTORY = History(None, dict.fromkeys(("n1", "n2", "n3", "n5"), LAST))


def test_after_a_first_apply_there_is_a_row_for_each_node_and_equal_ones_are_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It said that no upgrade of any is recorded, and nothing of the nodes."""
    assert show_status(FakeReader([APPLIED]), as_json=False, history=HISTORY) == 1
    assert read(capsys) == MACHINES


def test_nodes_that_are_all_well_are_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    well = replace(APPLIED, nodes={name: APPLIED.nodes[name] for name in ("n1", "n2")})

    assert show(well) == 0
    assert read(capsys).splitlines()[2] == "2 nodes: all ready, no upgrade of any is recorded"


def test_one_node_has_its_machine_with_when_that_was_said(capsys: pytest.CaptureFixture[str]) -> None:
    drifted = replace(
        GOOD, drift=Drift.DRIFTED, drift_words="1 difference, to be mended by `grapnel apply`: file /etc/x"
    )
    drifted = replace(drifted, users=(User("shop/web", {"nvidia.com/gpu": 3}),))
    look = replace(APPLIED, reported={**REPORTED, "n1": drifted})

    assert show_status(FakeReader([look]), ["n1"], as_json=False, history=HISTORY) == 0
    assert (
        read(capsys).partition("is declared\n")[2]
        == """\
  kubelet    v1.31.2, ready, heard of 1m00s ago
  driver     550.163.01
  module     open
  engine     containerd 1.7.27
  daemon     reports, heard of 4m00s ago
  GPUs       4 of 4 offered
  in use     3 gpu by shop/web
  drift      drifted: 1 difference, to be mended by `grapnel apply`: file /etc/x
  declared   driver 550.163.01, GPUs as nvidia.com/gpu
  last run   apply: converged, 1h00m ago (`grapnel report 20260504T024000Z-apply-3f2a`)
"""
    )


def test_json_has_what_a_node_says_and_what_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert show(APPLIED, as_json=True) == 1
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    nodes = {each["name"]: each for each in document["nodes"]}
    assert nodes["n5"]["state"] == "short-of-gpus"
    assert nodes["n5"]["machine"]["gpus"]["offered"] == {"nvidia.com/gpu": 3}
    assert nodes["n1"]["machine"]["driver"] == "550.163.01"
    used = {name: each["machine"]["gpus"]["inUse"] for name, each in nodes.items()}
    assert used == {"n1": {}, "n2": {"nvidia.com/gpu": 4}, "n3": {}, "n4": {"nvidia.com/gpu": 2}, "n5": {}}
    assert nodes["n1"]["declared"] == {"driver": "550.163.01", "resource": "nvidia.com/gpu"}
    assert nodes["n5"]["declared"] is None
    assert nodes["n1"]["unknown"] == []
    assert (nodes["n4"]["machine"]["driver"], nodes["n4"]["machine"]["daemon"]) == (None, "no-report")
    assert [each["what"] for each in nodes["n4"]["unknown"]] == ["driver, module, drift"]
    show(seen(view("n1")), as_json=True)
    assert json.loads(capsys.readouterr().out)["nodes"][0]["machine"] is None


@pytest.mark.parametrize(
    ("look", "state"),
    [
        (seen(view("n1"), tenant=None), "last-run-failed"),
        (seen(view("n1", DONE), tenant=None), "last-run-failed"),
        (seen(view("n1", replace(DONE, since=NOW)), tenant=None), "done"),
        (seen(view("n1"), tenant=None, reported={"n1": GOOD}), "idle"),
        (seen(view("n1"), tenant=ADA), "idle"),
        (seen(view("n1", is_ready=False), tenant=None), "not-ready"),
    ],
    ids=[
        "never upgraded",
        "upgraded before",
        "upgraded since",
        "its Node tells more",
        "somebody is at it",
        "not ready",
    ],
)
def test_a_node_that_a_run_left_failed_needs_somebody_where_nothing_later_is_known(
    look: Seen, state: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a cluster a first apply that failed was no reason for anybody."""
    failed = replace(LAST, result="failed", is_good=False, time=NOW - MINUTE)
    code = show_status(FakeReader([look]), as_json=True, history=History(None, {"n1": failed}))

    document = json.loads(capsys.readouterr().out)
    (node,) = document["nodes"]
    assert node["state"] == state
    assert (code, document["needsSomebody"]) == ((0, False) if state in ("done", "idle") else (1, True))
    if state == "last-run-failed":
        assert node["reason"] == "apply: failed"


def test_a_watch_shows_that_gpus_went(capsys: pytest.CaptureFixture[str]) -> None:
    later = replace(APPLIED, reported={**REPORTED, "n1": replace(GOOD, offered={"nvidia.com/gpu": 0})})

    def leave() -> None:
        if not reader.looks:
            raise KeyboardInterrupt

    reader = FakeReader([APPLIED, APPLIED, later], leave)
    assert watch_status(reader) == 1
    assert read(capsys).count("cluster test\n") == 2


def test_a_watch_shows_last_runs_and_looks_at_them_once_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    """It had no column for them, and a node that its last run left failed was no reason for anybody."""
    failed = History(None, {"n1": replace(LAST, result="failed", is_good=False, time=NOW - MINUTE)})
    kept = [History(), failed]
    looks = [seen(view("n1"), tenant=None), seen(view("n1"), tenant=None)]
    later = replace(looks[0], time=NOW + MINUTE)

    def leave() -> None:
        if not reader.looks:
            raise KeyboardInterrupt

    reader = FakeReader([*looks, later], leave)
    assert watch_status(reader, runs=lambda: kept.pop(0)) == 1
    output = read(capsys)
    assert kept == []
    assert output.count("cluster test\n") == 2
    assert output.count("last run failed  1 node") == 1
    assert "apply: failed, 2m00s ago" in output


def test_a_watch_shows_that_a_pod_has_come(capsys: pytest.CaptureFixture[str]) -> None:
    later = replace(APPLIED, reported={**REPORTED, "n5": replace(REPORTED["n5"], users=REPORTED["n2"].users)})

    def leave() -> None:
        if not reader.looks:
            raise KeyboardInterrupt

    reader = FakeReader([APPLIED, APPLIED, later], leave)
    watch_status(reader)
    assert read(capsys).count("cluster test\n") == 2
