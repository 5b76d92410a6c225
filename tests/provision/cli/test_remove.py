"""`remove` of parts: what is said first, who is taken out of service, what is run on them, and what fails."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from provision.apply.removal import ALL_PARTS, Part
from provision.apply.runner import Event, RunFinished, RunStatus, TaskDone, TaskOutcome
from provision.cli.incident.driver_verb import change_drivers, show_verb
from provision.rollout.changes.removing import Removing
from tests.provision.apply.fakes import FakeFleet, FakeNode, cluster_of, context, raw_facts, scope_of
from tests.provision.rollout.fakes import NEW, OLD

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from provision.apply.runner import RunRequest

STEP = {"part": "runtime", "action": "restore", "target": "/etc/containerd/config.toml", "reason": "as it was"}
NOTE, PROBLEM = "config.toml was deleted since", "containers run on the node"
OTHERS = frozenset({Part.RUNTIME, Part.DAEMON})


@dataclass
class Nodes:
    """Nodes with a driver of grapnel's, and what each answers about a removal; ``failing`` do not get through it."""

    fleet: FakeFleet
    answers: dict[str, Any]
    failing: tuple[str, ...] = ()
    done: list[str] = field(default_factory=list)

    def run(self, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        kind = request.playbook.stem
        if kind not in {"facts", "driver", "remove"}:
            yield from self.fleet.run(request, cancel)
            return
        for name in request.nodes:
            yield getattr(self, f"_{kind}")(name, request)
        is_bad = kind == "remove" and not request.check and set(self.failing) & set(request.nodes)
        yield RunFinished(RunStatus.FAILED if is_bad else RunStatus.SUCCESSFUL)

    def _facts(self, name: str, _: RunRequest) -> TaskDone:
        driver = {"current": "0123456789ab", "back": OLD, "managed": True}
        raw = {**raw_facts(name, [], []), "driver": driver, "module": {"loaded": True, "version": NEW, "on_disk": NEW}}
        return TaskDone(name, "Gather facts", TaskOutcome.OK, values={"facts": json.dumps(raw).encode()})

    def _driver(self, name: str, _: RunRequest) -> TaskDone:
        self.done.append(f"driver {name}")
        return TaskDone(name, "Change the driver", TaskOutcome.CHANGED)

    def _remove(self, name: str, request: RunRequest) -> TaskDone:
        if request.check:
            return TaskDone(name, "Look", TaskOutcome.OK, values={"removal": json.dumps(self.answers[name]).encode()})
        self.done.append(f"{'+'.join(request.extra_vars['grapnel_remove_parts'])} {name}")  # type: ignore[arg-type]
        is_bad = name in self.failing
        return TaskDone(
            name, "Give back", TaskOutcome.FAILED if is_bad else TaskOutcome.CHANGED, message="the disk is full"
        )


def answer(*, steps: int = 1, notes: tuple[str, ...] = (), problems: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"steps": [STEP] * steps, "notes": list(notes), "problems": list(problems)}


def nodes_with(*, failing: tuple[str, ...] = (), **answers: Any) -> Nodes:
    return Nodes(FakeFleet({name: FakeNode() for name in answers}), answers, failing)


def remove(nodes: Nodes, parts: frozenset[Part] = OTHERS) -> int:
    scope = scope_of(cluster_of(nodes.fleet), driver={"version": NEW})
    return change_drivers(context(nodes), scope, Removing(parts=parts), consent=True)  # type: ignore[arg-type] # a runner too


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_the_driver_goes_first_and_then_all_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = nodes_with(n1=answer())

    assert remove(nodes, ALL_PARTS) == 0
    assert nodes.done == ["driver n1", "daemon+hook+node+runtime n1"]
    assert nodes.fleet.nodes["n1"].verbs == ["release"], "without a driver there is nothing to verify or to offer"
    output = said(capsys)
    assert "1 node: 1 removed" in output
    assert "the next `grapnel apply` sets up again what is declared for n1" in output


def test_a_driver_that_stays_is_verified_and_offered_again() -> None:
    nodes = nodes_with(n1=answer())

    assert remove(nodes) == 0
    assert nodes.done == ["daemon+runtime n1"]
    assert nodes.fleet.nodes["n1"].verbs == ["release", "verify", "resume"]


def test_a_node_that_has_nothing_of_it_stays_in_service(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = nodes_with(n1=answer(steps=0), n2=answer())

    assert remove(nodes) == 0
    assert nodes.done == ["daemon+runtime n2"]
    output = said(capsys)
    assert "1 removed" in output
    assert "1 unchanged" in output


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        pytest.param(answer(problems=(PROBLEM,)), PROBLEM, id="a problem"),
        pytest.param({"steps": 3}, "its answer about a removal cannot be read", id="an answer that is not believed"),
    ],
)
def test_a_node_that_is_refused_does_not_stop_the_others(
    bad: object, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = nodes_with(n1=bad, n2=answer())

    assert remove(nodes) == 1
    assert nodes.done == ["daemon+runtime n2"]
    assert told in said(capsys)


def test_a_node_that_fails_does_not_stop_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = nodes_with(failing=("n1",), n1=answer(), n2=answer())

    assert remove(nodes) == 1
    assert nodes.done == ["daemon+runtime n1", "daemon+runtime n2"]
    output = said(capsys)
    assert "the disk is full" in output
    assert "grapnel remove --runtime --daemon" in output


def test_only_what_has_failed_is_remembered() -> None:
    nodes = nodes_with(failing=("n1",), n1=answer(), n2=answer())
    cluster = cluster_of(nodes.fleet)

    change_drivers(context(nodes), scope_of(cluster, driver={"version": NEW}), Removing(parts=OTHERS), consent=True)  # type: ignore[arg-type] # a runner too

    records = {name: node.record for name, node in cluster.nodes.items()}
    assert (records["n1"] is not None, records["n2"]) == (True, None)


def test_what_cannot_be_given_back_is_said_before_anybody_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = nodes_with(n1=answer(notes=(NOTE,)), n2=answer(notes=(NOTE,)))
    scope = scope_of(cluster_of(nodes.fleet), driver={"version": NEW})

    assert show_verb(context(nodes), scope, Removing(parts=OTHERS), as_json=False) == 0  # type: ignore[arg-type] # a runner too
    assert nodes.done == []
    output = said(capsys)
    assert "n1, n2 1 change restore /etc/containerd/config.toml (as it was)" in output
    assert f"not as before: {NOTE}" in output


def test_the_plan_as_json_has_every_node(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = nodes_with(n1=answer(), n2=answer(problems=(PROBLEM,)))
    scope = scope_of(cluster_of(nodes.fleet), driver={"version": NEW})

    code = show_verb(context(nodes), scope, Removing(parts=OTHERS), as_json=True)  # type: ignore[arg-type] # a runner too

    document = json.loads(capsys.readouterr().out)
    assert (code, document["parts"]) == (1, ["daemon", "runtime"])
    assert [(one["node"], one["steps"], one["problems"]) for one in document["nodes"]] == [
        ("n1", [STEP], []),
        ("n2", [STEP], [PROBLEM]),
    ]


@pytest.mark.parametrize(
    ("parts", "command"),
    [(ALL_PARTS, "grapnel remove"), (OTHERS, "grapnel remove --runtime --daemon")],
)
def test_messages_name_the_command_that_was_given(parts: frozenset[Part], command: str) -> None:
    assert replace(Removing(parts=parts)).command == command
