"""`grapnel status`: exit codes, JSON, one node, watching; and the words that a person reads."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

import jsonschema
import pytest

from provision.base.errors import UsageError
from provision.cli import main
from provision.cli.look.status import show_status, watch_status
from provision.cluster import LocalCluster, state_file_path
from provision.declaration.fleet.sources import inventory_key
from provision.declaration.spec.model import Driver, Plugin
from provision.report.runs.history import History, LastResult
from provision.rollout.errors import UnreachableError
from provision.rollout.interface.standing import Members
from provision.rollout.model import Phase
from provision.rollout.status.model import Seen, StackSeen, StackTrouble, Tenant
from provision.rollout.status.reported import Drift, User
from tests.provision.contracts.schemas import CONTRACTS
from tests.provision.rollout.fakes import MINUTE, NOON, record, view
from tests.provision.rollout.status.test_derive import ADA, KILLED, NOW, TOOK, standing
from tests.provision.rollout.status.test_reported import GOOD, MUTE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from provision.rollout.interface.cluster import NodeProblem
    from provision.rollout.model import NodeView

SCHEMA = json.loads(CONTRACTS.joinpath("status", "schema.json").read_text())
DONE = record(Phase.DONE, since=NOON + MINUTE, took=TOOK)
FAILED = record(Phase.FAILED, failed_in=Phase.ROLLBACK, since=NOW - MINUTE, reason="3 of 4 GPUs answer")


@pytest.fixture(autouse=True)
def without_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print as into a pipe; the workers of xdist have a width of their own."""
    monkeypatch.delenv("COLUMNS", raising=False)


def seen(*views: NodeView | NodeProblem, tenant: Tenant | None = ADA, **more: object) -> Seen:
    fields = {"place": "cluster test", "time": NOW, "nodes": {each.name: each for each in views}, **more}
    return Seen(tenant=tenant, **fields)  # type: ignore[arg-type]  # fields by name


@dataclass
class FakeReader:
    """Tells one look after the other; an error in the list is raised."""

    looks: list[Seen | Exception] = field(default_factory=list)
    on_look: Callable[[], None] = lambda: None

    def look(self) -> Seen:
        self.on_look()
        following = self.looks.pop(0)
        if isinstance(following, Exception):
            raise following
        return following

    def follow(self, timeout_s: float) -> Seen:
        assert timeout_s > 0
        return self.look()


def show(*looks: Seen | Exception, node: str | None = None, as_json: bool = False, watching: bool = False) -> int:
    reader, named = FakeReader(list(looks)), [] if node is None else [node]
    return watch_status(reader, named) if watching else show_status(reader, named, as_json=as_json)


DRAINING = seen(
    view("n1", DONE),
    view("n2", record(Phase.DRAIN, began=NOW - MINUTE, since=NOW - timedelta(seconds=10))),
    *(view(f"n{number}") for number in range(3, 41)),
    standing=standing(
        out=("n2",),
        n2="pod shop/web-7f9c still on the node",
        **{f"n{number}": "waits for n2: drain" for number in range(3, 41)},
    ),
)
PICTURE = """\
cluster test
ada@laptop/1 is at work, since 2026-05-04 12:00:00 UTC (10m00s)
40 nodes: 1 drain, 38 waiting, 1 done; about 1h11m left, measured on 1 node

drain  1 node: pods that have a GPU are evicted, within their disruption budgets
  n2  for 10s, out of service for 1m00s, about 1m39s left
    pod shop/web-7f9c still on the node
  next: release, when they are gone; failed, after drainTimeoutMinutes

waiting  38 nodes: it is in service and has yet to be upgraded
  n3 to n40
    waits for n2: drain
  next: its turn comes when the reason no longer holds

done  1 node: it is in service with the driver that was declared
  n1  for 9m00s, was out of service for 1m00s

nodes      driver
n1         535.309.01, by its record
n2 to n40  not known
not known: what is so of the machine now: no Node tells it \
(`--kubeconfig` names a cluster); `grapnel plan` and `grapnel drift` ask the machines themselves
"""


def read(capsys: pytest.CaptureFixture[str]) -> str:
    return "".join(f"{line.rstrip()}\n" for line in capsys.readouterr().out.splitlines())


def test_equal_nodes_read_like_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert show(DRAINING) == 0
    assert read(capsys) == PICTURE


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


OF_STACKS = """\
cluster test
ada@terminal is at work, since 2026-05-04 12:00:00 UTC (10m00s); it prepares, or has published nothing yet
no controller leads: stacks are as the last one has left them

2 stacks
  serving  Degraded  37/40  550.163.01  37 of 40 nodes as declared
    gpu07: 3 of 4 GPUs answer
    gpu08, gpu09: cannot be reached
  training  not looked at  no controller has looked at it yet
"""


def test_a_stack_whose_node_the_controller_runs_on_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    show(seen(stacks=(StackSeen(name="serving", state="AsDeclared", exposure="the controller runs on gpu07"),)))
    assert "\n  serving  AsDeclared" in (said := capsys.readouterr().out)
    assert "\n    the controller runs on gpu07\n" in said


def test_stacks_are_shown_with_what_is_said_of_their_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    serving = StackSeen(
        name="serving",
        state="Degraded",
        message="37 of 40 nodes as declared",
        driver="550.163.01",
        nodes={"total": 40, "asDeclared": 37},
        troubles=(
            StackTrouble("gpu07", "3 of 4 GPUs answer"),
            StackTrouble("gpu08", "cannot be reached"),
            StackTrouble("gpu09", "cannot be reached"),
        ),
    )
    looked = seen(tenant=replace(ADA, holder="ada@terminal"), stacks=(serving, StackSeen(name="training")))
    assert show(looked) == 1, "one of them needs somebody"
    assert read(capsys) == OF_STACKS
    assert show(looked, as_json=True) == 1
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    assert [stack["name"] for stack in document["stacks"]] == ["serving", "training"]


@pytest.mark.parametrize(
    ("look", "code"),
    [
        (seen(view("n1", DONE)), 0),
        (seen(), 0),
        (seen(view("n1", FAILED)), 1),
        (seen(view("n1", record(Phase.SWAP)), tenant=KILLED), 1),
        (seen(view("n1"), tenant=None, standing=standing(n1="stopped: n0 failed in drain")), 1),
        (seen(view("n1"), view("n2", is_ready=False)), 1),
    ],
    ids=["done", "no nodes", "failed", "left", "not begun", "not ready"],
)
def test_the_exit_code_says_whether_somebody_is_needed(look: Seen, code: int) -> None:
    assert show(look) == code
    assert show(look, as_json=True) == code


def test_waves_under_way_tell_how_far_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    published = DRAINING.standing
    assert published is not None
    waves = (
        Members("wave 1 of 3 (canary)", ("n1",)),
        Members("wave 2 of 3", ("n2", "n3", "n4", "n50")),
        Members("wave 3 of 3", tuple(f"n{number}" for number in range(5, 41))),
    )
    racks = (Members("rack-7", ("n2",)),)
    look = replace(
        DRAINING,
        nodes={**DRAINING.nodes, "n50": view("n50", FAILED)},
        standing=replace(published, waves=waves, domains=racks),
    )

    show(look)
    assert [line for line in read(capsys).splitlines() if line.startswith("wave")] == [
        "wave 2 of 3: 0 of 4 done, 1 out of service, 1 failed"
    ]
    show(look, node="n2")
    assert "  wave       wave 2 of 3\n  domain     rack-7\n" in read(capsys)


def test_who_is_needed_comes_first_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    show(replace(DRAINING, nodes={**DRAINING.nodes, "n50": view("n50", FAILED)}))

    blocks = read(capsys).split("\n\n")
    assert blocks[1] == (
        "failed in rollback  1 node: quarantined: its upgrade failed, and so did the way back, "
        "or the former driver is not as it was; it stays cordoned. The reason has both\n"
        "  n50  for 1m00s, out of service for 10m00s\n"
        "    3 of 4 GPUs answer\n"
        "  next: the next run begins with it: drain again, or verify if it is as declared by then\n"
        "  do: `grapnel-driver status` on the node shows each step; repair or reboot it, "
        "then `grapnel apply n50`, or `grapnel rollback n50`"
    )


def test_where_a_controller_leads_it_is_said_what_works_there(capsys: pytest.CaptureFixture[str]) -> None:
    """It sent people to `grapnel apply`, which an idle controller refused."""
    leads = Tenant(holder="grapnel-controller-0", since=NOON, heard=NOW)
    look = seen(view("n1", FAILED), tenant=None, controller=leads)

    assert show(look) == 1
    said = " ".join(read(capsys).split())
    assert "nobody is at work grapnel-controller-0 is the leading controller since 2026-05-04 12:00:00 UTC" in said
    assert "next: it is not tried again by itself while its GpuStack declares the same" in said
    assert "repair or reboot it, then `grapnel retry n1`, or `grapnel rollback n1`" in said
    show(look, as_json=True)
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    assert (document["engine"], document["controller"]["holder"]) == (None, "grapnel-controller-0")
    assert "`grapnel apply`" not in document["states"]["failed-in-rollback"]["todo"]
    show(replace(look, controller=replace(leads, is_at_work=False)))
    assert "then `grapnel apply n1`, or `grapnel rollback n1`" in " ".join(read(capsys).split())


def test_reasons_that_differ_in_the_nodes_own_name_are_one(capsys: pytest.CaptureFixture[str]) -> None:
    waiting = {f"n{number}": f"n{number} is not ready: bring its kubelet back first" for number in range(1, 12)}
    show(seen(*(view(name, is_ready=False) for name in waiting), standing=standing(**waiting)))

    assert "  n1 to n11\n    NODE is not ready: bring its kubelet back first\n" in read(capsys)


def test_what_a_node_says_stays_on_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = replace(FAILED, reason="\x1b[2Jn2  done\nn3  done \u202e")
    show(seen(view("n1", hostile)))

    assert r"    \x1b[2Jn2  done\nn3  done \u202e" in read(capsys)


@pytest.mark.parametrize(
    ("tenant", "words"),
    [
        (None, "nobody is at work"),
        (KILLED, "ada@laptop/1 has the lease and was not heard of since 2026-05-04 12:02:00 UTC (8m00s)"),
        (ADA, "ada@laptop/1 is at work, since 2026-05-04 12:00:00 UTC (10m00s); it prepares"),
    ],
    ids=["nobody", "killed", "staging"],
)
def test_who_has_the_lease(tenant: Tenant | None, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    show(seen(view("n1"), tenant=tenant))

    assert words in " ".join(read(capsys).split())


def test_one_node_with_all_that_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    look = seen(view("n1", replace(FAILED, took={Phase.DRAIN: 31.0})), view("n2", is_ready=False))

    assert show(look, node="n1") == 1
    output = read(capsys)
    assert "n1: failed in rollback\n" in output
    assert "  reason     3 of 4 GPUs answer\n" in output
    assert "  took       drain 31s\n" in output
    assert "`grapnel rollback n1`" in " ".join(output.split())
    assert "n2" not in output


def test_one_node_with_what_holds_nothing_and_what_a_killed_engine_left(capsys: pytest.CaptureFixture[str]) -> None:
    planned = "somebody plans a maintenance of it (condition MaintenancePlanned, FirmwareUpdate)"
    look = seen(view("n1", DONE, remarks=(planned,), told=("GrapnelDriverUpgrade",)), tenant=KILLED)

    show(look, node="n1")
    output = " ".join(read(capsys).split())
    assert f"note {planned}" in output
    assert "note left by an engine that is gone: condition GrapnelDriverUpgrade; the next `grapnel apply`" in output
    show(look, as_json=True)
    (node,) = json.loads(read(capsys))["nodes"]
    assert [each.split(":")[0] for each in node["remarks"]] == [planned, "left by an engine that is gone"]


def test_a_returned_node_is_not_said_to_be_out_of_service(capsys: pytest.CaptureFixture[str]) -> None:
    returned = record(Phase.RETURNED, is_returning=True, failed_in=Phase.SWAP, reason="it broke", since=NOON + MINUTE)

    assert show(seen(view("n1", returned))) == 1
    assert "  n1  for 9m00s, was out of service for 1m00s\n" in read(capsys)


def test_why_one_node_waits_is_said_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    look = seen(view("n1"), tenant=ADA, standing=standing(n1="waits for n2: swap"))

    show(look, node="n1")
    assert "  reason     waits for n2: swap\n" in read(capsys), "it said: waits waits for n2"


def test_the_exit_code_is_about_the_one_node() -> None:
    assert show(seen(view("n1", FAILED), view("n2", DONE)), node="n2") == 0


def test_a_node_that_is_not_there_is_a_mistake() -> None:
    with pytest.raises(UsageError) as raised:
        show(seen(view("gpu-01"), view("gpu-02")), node="gpu01")

    assert raised.value.hint == "did you mean gpu-01?"


@pytest.mark.parametrize(
    "look", [DRAINING, seen(), seen(view("n1", FAILED), tenant=KILLED)], ids=["work", "none", "failed"]
)
def test_json_follows_its_schema(look: Seen, capsys: pytest.CaptureFixture[str]) -> None:
    show(look, as_json=True)
    document = json.loads(capsys.readouterr().out)

    jsonschema.validate(document, SCHEMA)
    assert [node["name"] for node in document["nodes"]] == list(look.nodes)
    assert {node["state"] for node in document["nodes"]} == set(document["states"])


def test_of_several_nodes_that_are_named_their_rows_alone_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        show_status(
            FakeReader([seen(view("n1", DONE), view("n2", FAILED), view("n3", DONE))]), ["n3", "n1"], as_json=False
        )
        == 0
    )
    told = read(capsys)
    assert "2 nodes: 2 done" in told
    assert "n2" not in told


def test_json_of_one_node_has_that_node(capsys: pytest.CaptureFixture[str]) -> None:
    show(DRAINING, node="n2", as_json=True)
    document = json.loads(capsys.readouterr().out)

    (node,) = document["nodes"]
    assert (node["name"], node["state"], node["phase"], node["leftSeconds"]) == ("n2", "drain", "drain", 99.0)


def test_watching_a_log_tells_what_changes_and_ends_with_the_upgrade(capsys: pytest.CaptureFixture[str]) -> None:
    later = replace(DRAINING, time=NOW + MINUTE)
    ended = seen(view("n1", DONE), view("n2", DONE), tenant=None)

    assert show(DRAINING, later, ended, watching=True) == 0
    output = read(capsys)
    assert output.startswith(PICTURE + "\n")
    assert output.removeprefix(PICTURE + "\n").startswith("cluster test\nnobody is at work\n2 nodes: 2 done\n")


def test_watching_waits_for_an_engine_and_outlives_a_silent_server(capsys: pytest.CaptureFixture[str]) -> None:
    idle = replace(DRAINING, tenant=None)
    silent = UnreachableError("cluster test does not answer")

    assert show(idle, DRAINING, silent, idle, watching=True) == 1
    assert "cluster test does not answer: trying again; this is what was seen last" in " ".join(read(capsys).split())


def test_leaving_the_watch_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    def leave() -> None:
        if len(reader.looks) == 1:
            raise KeyboardInterrupt

    reader = FakeReader([DRAINING, DRAINING], leave)

    assert watch_status(reader) == 0
    assert read(capsys) == PICTURE


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("KUBECONFIG", "XDG_STATE_HOME", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("grapnel.yaml").write_text(
        "apiVersion: grapnel.dev/v1alpha1\nkind: GpuStack\nspec:\n  driver: {version: '550.163.01'}\n"
    )
    tmp_path.joinpath("hosts.yaml").write_text("all: {hosts: {n1: {}, n2: {}}}\n")
    return tmp_path


def test_the_command_reads_the_state_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = inventory_key([str(folder / "hosts.yaml")], folder)
    cluster = LocalCluster(state_file_path(key, {"HOME": str(folder)}))
    cluster.observe(["n1"])
    cluster.write("n1", FAILED)

    assert main(["status"]) == 1
    output = read(capsys)
    assert "nobody is at work\n2 nodes: 1 failed in rollback, 1 no upgrade\n" in output
    assert main(["status", "n2", "--json"]) == 0


def test_json_and_watch_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--json", "--watch"]) == 2
    assert "not allowed with argument" in capsys.readouterr().err
