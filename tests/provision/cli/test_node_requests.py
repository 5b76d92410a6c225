"""`skip`, `retry` and `abandon`: which nodes, what a person reads, and when a node is put back into service."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from provision.apply.runner import Event, RunFinished, RunStatus, TaskDone, TaskOutcome
from provision.cli import main
from provision.cli.answers import Answers
from provision.cli.incident.abandon import foresee_put_back, put_back
from provision.cli.incident.node_request import Asking
from provision.cluster import LocalCluster, state_file_path
from provision.declaration.fleet.sources import inventory_key
from provision.rollout.model import Phase
from provision.rollout.requests import Found, RecordChange, Step
from provision.rollout.status.model import Seen, Tenant
from tests.provision.apply.fakes import FakeFleet, FakeNode, context, raw_facts
from tests.provision.rollout.fakes import NOON, record, view
from tests.provision.rollout.status.test_derive import ADA, standing

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator
    from pathlib import Path

    from provision.apply.runner import RunRequest
    from provision.rollout.model import NodeView
    from provision.rollout.requests import Decide, RequestResult

RELEASED = {"uid": 0, "gid": 0, "mode": "0600", "sha256": "0" * 64}
FAILED = record(Phase.FAILED, failed_in=Phase.VERIFY, reason="3 of 4 GPUs answer")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalCluster:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_STATE_HOME", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text("all: {children: {rack1: {hosts: {gpu-1: {}, gpu-2: {}}}, rack2: {hosts: {gpu-3: {}}}}}\n")
    key = inventory_key([str(inventory)], tmp_path)
    return LocalCluster(state_file_path(key, {"HOME": str(tmp_path)}))


def seen(cluster: LocalCluster) -> dict[str, NodeView]:
    return cluster.observe(["gpu-1", "gpu-2", "gpu-3"])


def test_nodes_and_groups_are_skipped_without_a_declaration(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["skip", "rack1"]) == 0
    assert [name for name, each in seen(cluster).items() if each.is_skipped] == ["gpu-1", "gpu-2"]
    assert "gpu-2: is skipped: no upgrade begins on it until `grapnel skip --undo gpu-2`" in capsys.readouterr().out

    assert main(["skip", "--undo", "gpu-2", "gpu-3"]) == 0
    assert [name for name, each in seen(cluster).items() if each.is_skipped] == ["gpu-1"]
    assert "gpu-3: was not skipped" in capsys.readouterr().out


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("verb", ["skip", "retry", "abandon"])
def test_nodes_are_named_as_with_other_verbs(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for words in (["gpu-1", "gpu-2"], ["gpu-1", "gpu-2"], ["gpu-1,gpu-2"]):
        main([verb, *words])
        said.append(capsys.readouterr())

    assert said[2] == said[1]  # once more changes nothing
    assert all(f"{node}: " in said[2].out + said[2].err for node in ("gpu-1", "gpu-2"))
    assert main([verb]) == 2
    assert f"hint: grapnel {verb} NODE..." in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["skip", "retry", "abandon"])
def test_a_misspelt_name_comes_with_the_nearest(
    verb: str, cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, "gpu-1", "gpu-x3"]) == 1
    assert "gpu-3" in capsys.readouterr().err
    assert not any(each.is_skipped for each in seen(cluster).values())


def test_a_retry_says_who_makes_it(cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
    seen(cluster)
    cluster.write("gpu-1", FAILED, cordoned=True)

    assert main(["retry", "gpu-1"]) == 0
    assert "gpu-1: is tried again by the next `grapnel apply`" in capsys.readouterr().out
    with cluster.lease("ada@laptop/1"):
        assert main(["retry", "gpu-1", "gpu-2"]) == 1
    output = capsys.readouterr().out
    assert "gpu-1: is tried again by ada@laptop/1" in output
    assert "gpu-2: has not failed: no upgrade of it is recorded" in output
    assert seen(cluster)["gpu-1"].record == replace(FAILED, retry=True)


def test_an_abandoned_node_is_left_as_it_stands(cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
    seen(cluster)
    cluster.write("gpu-1", FAILED, cordoned=True)

    assert main(["abandon", "gpu-1"]) == 0

    node = seen(cluster)["gpu-1"]
    assert (node.record, node.is_cordoned, node.is_skipped) == (None, True, True)
    output = capsys.readouterr().out
    assert "gpu-1: is yours" in output
    assert "gpu-1: its GPUs may be out of service" in output


def test_a_plan_of_abandon_shows_what_changes_in_the_state_file_and_changes_nothing(
    cluster: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen(cluster)
    cluster.write("gpu-1", FAILED, cordoned=True)
    (path,) = (each for each in tmp_path.rglob("node-state-*.json") if "progress" not in each.name)
    before = path.read_bytes()

    assert main(["abandon", "rack1", "--plan", "--json"]) == 1, "gpu-2 is in no upgrade"
    told = {each["node"]: each for each in json.loads(capsys.readouterr().out)["nodes"]}

    assert path.read_bytes() == before
    assert [told[name]["refused"] for name in ("gpu-1", "gpu-2")] == [False, True]
    assert told["gpu-2"]["steps"] == []
    assert main(["abandon", "gpu-1", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)["nodes"][0]
    assert done == {**told["gpu-1"], "steps": None}, "what is said is what was said"
    old, new = (json.loads(each)["nodes"]["gpu-1"] for each in (before, path.read_bytes()))
    changed = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    assert {(step["action"], step["target"]) for step in told["gpu-1"]["steps"]} == {
        ("write" if new.get(key) else "remove", f"{key} of {path}") for key in changed
    }
    assert changed == {"record", "skipped"}


def test_nothing_is_put_back_into_service_without_a_word(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    assert main(["abandon", "gpu-1", "--uncordon"]) == 2

    assert "hint: add --yes" in capsys.readouterr().err
    assert not seen(cluster)["gpu-1"].is_skipped


@dataclass(eq=False)
class Desk:
    """Keeps what is asked of nodes, and tells one look after the other; the last one stays."""

    nodes: dict[str, NodeView]
    looks: list[Seen] = field(default_factory=lambda: [look()])

    def change(self, node: str, decide: Decide) -> RequestResult:
        answer = decide(Found(view=self.nodes[node]))
        if answer.change is not None:
            self.nodes[node] = changed(self.nodes[node], answer.change)
        return answer

    def foresee(self, node: str, decide: Decide) -> RequestResult:
        answer = decide(Found(view=self.nodes[node]))
        if answer.change is None:
            return answer
        before, after = self.nodes[node], changed(self.nodes[node], answer.change)
        steps = [
            Step("write" if getattr(after, key) else "remove", key)
            for key in ("record", "is_cordoned", "is_skipped")
            if getattr(after, key) != getattr(before, key)
        ]
        return replace(answer, steps=tuple(steps))

    def reader(self) -> Desk:
        return self

    def look(self) -> Seen:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def follow(self, timeout_s: float) -> Seen:
        assert timeout_s > 0
        return self.look()


def changed(before: NodeView, change: RecordChange) -> NodeView:
    return replace(
        before,
        record=change.record if change.writes_record else before.record,
        is_cordoned=before.is_cordoned if change.cordoned is None else change.cordoned,
        is_skipped=before.is_skipped if change.skipped is None else change.skipped,
    )


def look(after_s: float = 0, *out: str, tenant: Tenant | None = None) -> Seen:
    """Return what is seen so long after the first look; ``out`` are the nodes that the engine is at."""
    heard = None if tenant is None else replace(tenant, heard=NOON + timedelta(seconds=after_s))
    return Seen(place="cluster test", time=NOON, nodes={}, tenant=heard, standing=standing(out=out))


@dataclass
class Machines:
    """Answers what is asked of machines; ``running`` is where a driver change runs, ``broken`` where the daemon is."""

    fleet: FakeFleet
    running: str = ""
    broken: str = ""
    released: bool = True

    def run(self, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        if request.playbook.stem != "facts":
            (name,) = request.nodes
            if name == self.broken:
                yield TaskDone(name, "Resume", TaskOutcome.FAILED, message="the daemon does not answer")
                yield RunFinished(RunStatus.FAILED)
                return
            yield from self.fleet.run(request, cancel)
            return
        for name in request.nodes:
            run = {"verb": "swap", "state": "running" if name == self.running else "done", "change": "0123456789ab"}
            facts = {**raw_facts(name, [], []), "driver": {"run": run}}
            if self.released:
                facts["files"] = {"/var/lib/grapnel/node/released.json": RELEASED}
            yield TaskDone(name, "Gather facts", TaskOutcome.OK, values={"facts": json.dumps(facts).encode()})
        yield RunFinished(RunStatus.SUCCESSFUL)


def put(desk: Desk, **machines: str) -> tuple[Machines, int]:
    found = Machines(FakeFleet({name: FakeNode() for name in desk.nodes}), **machines)
    return found, put_back(context(found), Asking(dict.fromkeys(desk.nodes, desk)), Answers("abandon"))  # type: ignore[arg-type] # a runner too


def test_a_node_is_put_back_into_service(capsys: pytest.CaptureFixture[str]) -> None:
    desk = Desk({"n1": view("n1", FAILED)})

    machines, code = put(desk)

    assert code == 0
    assert machines.fleet.nodes["n1"].verbs == ["resume"]
    assert desk.nodes["n1"] == view("n1", is_skipped=True)
    assert "n1: takes pods again; upgrades leave it alone" in capsys.readouterr().out


def foreseen(desk: Desk, capsys: pytest.CaptureFixture[str], **machines: Any) -> tuple[dict[str, set[str]], int]:
    """Return what a plan shows to be done on each node, having made sure that nothing is, and its exit code."""
    before = dict(desk.nodes)
    found = Machines(FakeFleet({name: FakeNode() for name in desk.nodes}), **machines)
    capsys.readouterr()
    answers = Answers("abandon", as_json=True)
    code = answers.end(foresee_put_back(context(found), Asking(dict.fromkeys(desk.nodes, desk)), answers))  # type: ignore[arg-type] # a runner too
    assert desk.nodes == before
    assert [node.verbs for node in found.fleet.nodes.values()] == [[]] * len(before)
    nodes = json.loads(capsys.readouterr().out)["nodes"]
    return {each["node"]: {f"{step['action']} {step['target']}" for step in each["steps"]} for each in nodes}, code


@pytest.mark.parametrize(
    ("before", "machines"),
    [
        pytest.param(view("n1", FAILED), {}, id="as it should be"),
        pytest.param(view("n1", record(Phase.DRAIN, was_cordoned=True)), {}, id="cordoned by somebody before"),
        pytest.param(view("n1", FAILED), {"running": "n1"}, id="a driver change still runs"),
        pytest.param(view("n1", FAILED), {"released": False}, id="offers its GPUs already"),
        pytest.param(view("n1", is_skipped=True, is_cordoned=True), {}, id="abandoned already"),
        pytest.param(view("n1"), {}, id="in no upgrade"),
    ],
)
def test_what_a_plan_shows_is_what_putting_a_node_back_changes(
    before: NodeView, machines: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing changes that was not shown, and nothing shown stays undone."""
    desk = Desk({"n1": before})
    shown, code = foreseen(desk, capsys, **machines)

    worked, ended = put(desk, **machines)

    keys = ("record", "is_cordoned", "is_skipped")
    after = desk.nodes["n1"]
    done = {
        f"{'write' if getattr(after, key) else 'remove'} {key}"
        for key in keys
        if getattr(before, key) != getattr(after, key)
    }
    resumed = worked.fleet.nodes["n1"].verbs == ["resume"] and machines.get("released", True)
    assert (shown["n1"], code) == (done | ({"resume GPUs"} if resumed else set()), ended)


def test_whoever_is_at_work_has_left_it_alone_before(capsys: pytest.CaptureFixture[str]) -> None:
    said_before = [look(0, "n2", tenant=ADA), look(0, "n2", tenant=ADA)]  # published before it could have noticed
    at_the_step = [look(10, "n1", tenant=ADA), look(20, "n1", tenant=ADA), look(30, "n1", tenant=ADA)]
    left = look(40, "n2", tenant=ADA)
    desk = Desk({"n1": view("n1", record(Phase.SWAP))}, [*said_before, *at_the_step, left])

    machines, code = put(desk)

    assert code == 0
    assert desk.looks == [left], "every look before was waited for"
    assert machines.fleet.nodes["n1"].verbs == ["resume"]
    assert capsys.readouterr().out.count("waits until ada@laptop/1 has left n1 alone") == 1


def test_an_engine_that_is_gone_is_not_waited_for() -> None:
    gone = replace(ADA, is_at_work=False)
    desk = Desk({"n1": view("n1", record(Phase.SWAP))}, [look(0, "n1", tenant=ADA), look(0, "n1", tenant=gone)])

    assert put(desk)[1] == 0


@pytest.mark.parametrize(
    ("machines", "words"),
    [
        ({"running": "n2"}, "a driver change still runs on it"),
        ({"broken": "n2"}, "the daemon does not answer"),
    ],
)
def test_a_node_that_offers_no_gpus_stays_cordoned(
    machines: dict[str, str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Desk({"n1": view("n1", FAILED), "n2": view("n2", FAILED)})

    _, code = put(desk, **machines)

    assert code == 1
    assert [each.is_cordoned for each in desk.nodes.values()] == [False, True]
    assert f"n2: its GPUs are not offered, and it stays cordoned: {words}" in capsys.readouterr().out
    desk.looks = [look()]
    assert put(desk)[1] == 0, "the same command goes on with it"
    assert [each.is_cordoned for each in desk.nodes.values()] == [False, False]


def test_the_cordon_of_somebody_else_stays(capsys: pytest.CaptureFixture[str]) -> None:
    desk = Desk({"n1": view("n1", record(Phase.DRAIN, was_cordoned=True))})

    assert put(desk)[1] == 0

    assert desk.nodes["n1"].is_cordoned
    assert "n1: offers its GPUs, and stays cordoned as it was before the upgrade" in capsys.readouterr().out
