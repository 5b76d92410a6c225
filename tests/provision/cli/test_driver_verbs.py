"""`rollback` and `remove`: who is asked, and what a person reads."""

from __future__ import annotations

import argparse
import io
import json
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from provision.apply.removal import Part
from provision.apply.runner import Event, RunFinished, RunStatus, TaskDone, TaskOutcome
from provision.base.errors import GrapnelError
from provision.cli import main
from provision.cli.incident.driver_verb import change_drivers, show_verb
from provision.cli.parsers.options import verb_arguments
from provision.cli.session.fleet import load_fleet
from provision.cli.session.scope import open_scope, with_unnamed
from provision.rollout.changes.plan import DriverVerb, Extent
from provision.rollout.changes.removing import Removing
from provision.rollout.interface.pause import Pause
from tests.provision.apply.fakes import FakeFleet, FakeNode, cluster_of, context, raw_facts, scope_of
from tests.provision.rollout.fakes import NEW, OLD

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator
    from pathlib import Path

    from provision.apply.runner import RunRequest
    from provision.rollout.changes.plan import AnyVerb

REMOVE = Removing(parts=frozenset({Part.DRIVER}))
STEP = {"part": "driver", "action": "install", "target": f"libcuda1 {OLD}", "reason": f"is {NEW} now"}
HOLD = {"part": "driver", "action": "hold", "target": "libcuda1", "reason": "is not held"}


@dataclass
class Nodes:
    """Nodes that all run a driver of grapnel's, ``first`` those that had none before."""

    fleet: FakeFleet
    first: tuple[str, ...] = ()
    changed: list[str] = field(default_factory=list)
    refreshed: bool = False  # package lists
    problems: tuple[str, ...] = ()  # of what is foreseen
    foreseen: list[str] = field(default_factory=list)

    def run(self, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        self.refreshed |= request.playbook.stem == "facts" and not request.extra_vars.get("grapnel_is_offline")
        if request.check:
            for name in request.nodes:
                yield from self._foresee(name, request)
        elif request.playbook.stem == "driver":
            self.changed += request.nodes
            yield TaskDone(request.nodes[0], "Change the driver", TaskOutcome.CHANGED)
        elif request.playbook.stem == "facts":
            for name in request.nodes:
                yield TaskDone(
                    name, "Gather facts", TaskOutcome.OK, values={"facts": json.dumps(self._facts(name)).encode()}
                )
        else:
            yield from self.fleet.run(request, cancel)
            return
        yield RunFinished(RunStatus.SUCCESSFUL)

    def _foresee(self, name: str, request: RunRequest) -> Iterator[TaskDone]:
        self.foreseen.append(f"{request.playbook.stem} {name}")
        answer = {"steps": [STEP, HOLD], "notes": [], "problems": list(self.problems)}
        if request.playbook.stem == "driver" or request.extra_vars.get("grapnel_foresees_driver"):
            yield TaskDone(name, "Say", TaskOutcome.OK, values={"foreseen": json.dumps(answer).encode()})
        if request.playbook.stem == "remove":
            nothing = {"steps": [], "notes": [], "problems": []}
            yield TaskDone(name, "Look", TaskOutcome.OK, values={"removal": json.dumps(nothing).encode()})

    def _facts(self, name: str) -> dict[str, Any]:
        back = None if name in self.first else OLD
        driver = {"current": "0123456789ab", "back": back, "managed": True}
        module = {"loaded": True, "version": NEW, "on_disk": NEW}
        return {**raw_facts(name, [], []), "driver": driver, "module": module}


def change(verb: AnyVerb, *, consent: bool = True, **driver: object) -> tuple[Nodes, int]:
    nodes = Nodes(FakeFleet({"n1": FakeNode(), "n2": FakeNode()}), first=("n2",))
    scope = scope_of(cluster_of(nodes.fleet), driver={"version": NEW, **driver})
    return nodes, change_drivers(context(nodes), scope, verb, consent=consent)  # type: ignore[arg-type] # a runner too


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_a_rollback_tells_what_the_declaration_still_says(capsys: pytest.CaptureFixture[str]) -> None:
    nodes, code = change(DriverVerb.BACK)

    output = said(capsys)
    assert nodes.changed == ["n1"]
    assert code == 1, "n2 has nothing to go back to"
    assert f"n1 {NEW} → {OLD}" in output
    assert "2 nodes: 1 returned, 1 refused" in output
    assert (
        f"the declaration still names driver {NEW} for n1, and the next `grapnel apply` brings it back: "
        "declare the version that they shall keep, or driver.enabled: false to leave them alone"
    ) in output


def test_a_rollback_keeps_metrics_for_whoever_reads_them(tmp_path: Path) -> None:
    metrics = tmp_path / "grapnel.prom"
    nodes = Nodes(FakeFleet({"n1": FakeNode(), "n2": FakeNode()}))
    scope = replace(scope_of(cluster_of(nodes.fleet), driver={"version": NEW}), metrics_file=metrics)
    assert change_drivers(context(nodes), scope, DriverVerb.BACK, consent=True) == 0  # type: ignore[arg-type] # a runner too
    page = metrics.read_text()
    assert 'grapnel_rollout_nodes{state="done"} 2' in page
    assert "grapnel_rollout_engine_at_work 0" in page


@pytest.mark.parametrize("verb", [DriverVerb.BACK, REMOVE])
def test_no_package_source_is_contacted(verb: AnyVerb) -> None:
    """A node that got its driver from a bundle waited for a source that does not answer before it went back."""
    nodes, _ = change(verb)

    assert nodes.changed
    assert not nodes.refreshed


@pytest.mark.parametrize(("enabled", "is_told"), [(True, True), (False, False)])
def test_a_removal_tells_whether_the_next_apply_brings_it_back(
    capsys: pytest.CaptureFixture[str], *, enabled: bool, is_told: bool
) -> None:
    nodes, code = change(REMOVE, enabled=enabled)

    output = said(capsys)
    assert nodes.changed == ["n1", "n2"]
    assert code == 0
    assert "2 nodes: 2 removed" in output
    assert ("for n1, n2, and the next `grapnel apply` brings it back" in output) == is_told


@pytest.mark.parametrize(("answer", "changed"), [("y\n", ["n1"]), ("yes\n", ["n1"]), ("\n", []), ("n\n", []), ("", [])])
def test_nobody_is_taken_out_of_service_without_consent(
    answer: str, changed: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))

    nodes, code = change(DriverVerb.BACK, consent=False)

    captured = capsys.readouterr()
    assert nodes.changed == changed
    assert code == 1
    assert "return 1 node to the driver before, taking it out of service for a while? [y/N]" in captured.err
    assert ("nothing was changed" in captured.out) == (not changed)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param(["rollback"], "hint: add --yes", id="rollback of the last upgrade without a terminal"),
        pytest.param(["rollback", "--further"], "hint: grapnel rollback --further NODE...", id="--further of no node"),
        pytest.param(["remove"], "hint: add --yes", id="remove of everything without a terminal"),
        pytest.param(["remove", "--driver"], "hint: add --yes", id="remove without a terminal"),
        pytest.param(["rollback", "n1"], "hint: add --yes", id="rollback without a terminal"),
    ],
)
def test_what_is_not_said_is_asked_for(
    words: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    assert main(words) == 2
    assert told in capsys.readouterr().err


def test_a_pause_that_was_there_before_is_told_and_does_not_hold_it_up(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = Nodes(FakeFleet({"n1": FakeNode()}))
    cluster = cluster_of(nodes.fleet)
    cluster.pause = Pause(by="ada@laptop", reason="looking into it")

    assert change_drivers(context(nodes), scope_of(cluster), DriverVerb.BACK, consent=True) == 0  # type: ignore[arg-type] # a runner too

    assert nodes.changed == ["n1"]
    assert "paused by ada@laptop: looking into it; rollback is not held up by that" in said(capsys)


def test_an_upgrade_that_changed_no_node_is_not_undone() -> None:
    nodes = Nodes(FakeFleet({"n1": FakeNode()}))
    scope = scope_of(cluster_of(nodes.fleet), driver={"version": NEW})

    with pytest.raises(GrapnelError) as raised:
        change_drivers(context(nodes), scope, DriverVerb.BACK, consent=True, extent=Extent(undoes_upgrade=True))  # type: ignore[arg-type] # a runner too

    assert raised.value.message == f"no node was changed by an upgrade to the driver that is declared ({NEW})"
    assert nodes.changed == []
    with pytest.raises(GrapnelError, match="no node was changed by an upgrade"):
        show_verb(context(nodes), scope, DriverVerb.BACK, as_json=False, extent=Extent(undoes_upgrade=True))  # type: ignore[arg-type] # a runner too


def foresee(verb: AnyVerb, *, as_json: bool = False, problems: tuple[str, ...] = ()) -> tuple[Nodes, int]:
    nodes = Nodes(FakeFleet({"n1": FakeNode()}), problems=problems)
    scope = scope_of(cluster_of(nodes.fleet), driver={"version": NEW})
    return nodes, show_verb(context(nodes), scope, verb, as_json=as_json)  # type: ignore[arg-type] # a runner too


@pytest.mark.parametrize(("verb", "playbook"), [(DriverVerb.BACK, "driver"), (REMOVE, "remove")])
def test_the_plan_of_a_verb_has_what_becomes_of_the_driver(
    verb: AnyVerb, playbook: str, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes, code = foresee(verb)

    assert (code, nodes.changed, nodes.foreseen) == (0, [], [f"{playbook} n1"])
    assert f"n1 2 changes install libcuda1 {OLD} (is {NEW} now)" in said(capsys)


@pytest.mark.parametrize(("verb", "word"), [(DriverVerb.BACK, "returned"), (REMOVE, "removed")])
def test_results_count_what_the_plan_shows(verb: AnyVerb, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They counted Ansible's tasks."""
    nodes = Nodes(FakeFleet({"n1": FakeNode()}))
    scope = scope_of(cluster_of(nodes.fleet), driver={"version": NEW})
    assert change_drivers(context(nodes), scope, verb, consent=True) == 0  # type: ignore[arg-type] # a runner too

    output = said(capsys)
    assert "n1 2 changes install libcuda1" in output
    assert f"n1 {word} 2" in output


@pytest.mark.parametrize("verb", [DriverVerb.BACK, REMOVE])
def test_the_plan_as_json_has_it_too(verb: AnyVerb, capsys: pytest.CaptureFixture[str]) -> None:
    _, code = foresee(verb, as_json=True)

    document = json.loads(capsys.readouterr().out)
    assert (code, document["parts"], document["nodes"][0]["steps"]) == (0, ["driver"], [STEP, HOLD])


@pytest.mark.parametrize("verb", [DriverVerb.BACK, REMOVE])
def test_what_keeps_a_node_from_it_is_shown_beside_what_would_be_done(
    verb: AnyVerb, capsys: pytest.CaptureFixture[str]
) -> None:
    _, code = foresee(verb, problems=("cuda-tool would go with it",))

    output = said(capsys)
    assert code == 1
    assert "refused: cuda-tool would go with it" in output
    assert f"install libcuda1 {OLD}" in output


DECLARATION = """\
apiVersion: grapnel.dev/v1alpha1
kind: GpuStack
spec:
  driver: {branch: "550"}
  rollout: {maxUnavailable: 2, maxParallel: 2, domains: {groups: [rack1]}}
"""
INVENTORY = """\
rack1: {hosts: {a1: {}, a2: {}}}
others: {hosts: {n1: {}}}
"""


@pytest.mark.parametrize(("limit", "unnamed"), [("a1", {"a2", "n1"}), ("rack1", {"n1"}), ("", set())])
def test_nodes_that_are_not_named_are_looked_up_for_their_domains(
    limit: str, unnamed: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "grapnel.yaml").write_text(DECLARATION, encoding="utf-8")
    (tmp_path / "inventory.yaml").write_text(INVENTORY, encoding="utf-8")
    parser = argparse.ArgumentParser()
    verb_arguments(parser)
    args = parser.parse_args(["--no-cluster", *([limit] if limit else [])])

    fleet = load_fleet(args)
    scope = with_unnamed(args, fleet, open_scope(args, fleet, {node.name: node.stack for node in fleet.nodes}))

    assert set(scope.unnamed) == unnamed
    if limit:
        assert scope.groups["a2"][-1] == "rack1", "whether it is named or not"
