"""`remove` takes back what grapnel made in a cluster, after the nodes, whatever was killed before."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from provision.apply.removal import ALL_PARTS, Part
from provision.cli.incident.driver_verb import change_drivers, show_verb
from provision.cli.leave.cluster_removal import with_classes
from provision.declaration.fleet.load import load
from provision.rollout.changes.removing import Removing
from provision.rollout.errors import ClusterError
from provision.rollout.interface.node_marks import MarkChange
from tests.provision.apply.fakes import cluster_of, context, scope_of
from tests.provision.cli.test_remove import Nodes, answer, nodes_with, said
from tests.provision.rollout.fakes import NEW

if TYPE_CHECKING:
    from pathlib import Path

    from provision.cli.session.scope import Scope
    from tests.provision.rollout.fakes import FakeCluster

OFF = MarkChange(changes=("no label example.com/pool", "no taint nvidia.com/gpu:NoSchedule"))
WHOLE = Removing(parts=ALL_PARTS, classes=("nvidia",))


class KilledError(BaseException):
    """The process is gone."""


def fleet(nodes: Nodes, **marks: MarkChange) -> tuple[Scope, FakeCluster]:
    cluster = cluster_of(nodes.fleet)
    cluster.marks = dict(marks)
    return scope_of(cluster, driver={"version": NEW}), cluster


def remove(nodes: Nodes, scope: Scope, verb: Removing = WHOLE) -> int:
    return change_drivers(context(nodes), scope, verb, consent=True)  # type: ignore[arg-type] # a runner too


def test_marks_and_classes_go_after_the_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = nodes_with(n1=answer(), n2=answer())
    scope, cluster = fleet(nodes, n1=OFF, n2=OFF)

    assert remove(nodes, scope) == 0

    assert (cluster.marks, cluster.classes) == ({}, [])
    output = said(capsys)
    assert "take off label example.com/pool, taint nvidia.com/gpu:NoSchedule (Node n1, n2)" in output
    assert "delete RuntimeClass nvidia (grapnel made it)" in output
    assert "RuntimeClass nvidia was deleted" in output


@pytest.mark.parametrize(
    ("parts", "marks", "classes"),
    [
        ({Part.RUNTIME}, True, False),
        ({Part.NODE}, False, True),
        ({Part.HOOK}, True, True),
    ],
    ids=["the engine's settings", "the node's settings", "the hook"],
)
def test_each_part_takes_its_own_back(parts: set[Part], marks: bool, classes: bool) -> None:  # noqa: FBT001 - a table
    nodes = nodes_with(n1=answer())
    scope, cluster = fleet(nodes, n1=OFF)

    verb = replace(WHOLE, parts=frozenset(parts), classes=("nvidia",) if Part.RUNTIME in parts else ())
    assert remove(nodes, scope, verb) == 0

    assert (bool(cluster.marks), bool(cluster.classes)) == (marks, classes)


def test_a_node_that_failed_keeps_its_marks_and_everybody_the_class(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = nodes_with(n1=answer(), n2=answer(), failing=("n2",))
    scope, cluster = fleet(nodes, n1=OFF, n2=OFF)

    assert remove(nodes, scope) == 1

    assert (list(cluster.marks), cluster.classes) == (["n2"], ["nvidia"])
    assert "RuntimeClass nvidia stays: n2 may still need it" in said(capsys)


def test_a_class_that_pods_name_stays_and_that_is_said_before(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = nodes_with(n1=answer())
    scope, cluster = fleet(nodes)
    cluster.needed["nvidia"] = "pods name it: shop/web-1"

    assert show_verb(context(nodes), scope, WHOLE, as_json=False) == 0  # type: ignore[arg-type] # a runner too
    assert "RuntimeClass nvidia stays: pods name it: shop/web-1" in said(capsys)
    assert remove(nodes, scope) == 0
    assert cluster.classes == ["nvidia"]


def test_what_others_changed_since_stays_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = nodes_with(n1=answer())
    scope, _ = fleet(nodes, n1=MarkChange(left=("label a is 'c', and grapnel had set 'b'",)))

    remove(nodes, scope)

    assert "node n1 keeps what somebody has changed: label a is 'c', and grapnel had set 'b'" in said(capsys)


@pytest.mark.parametrize("at", ["marks n1", "no class nvidia"])
def test_a_removal_that_is_killed_is_finished_by_the_next_one(at: str) -> None:
    nodes = nodes_with(n1=answer())
    scope, cluster = fleet(nodes, n1=OFF)

    def kill(what: str) -> None:
        if what == at:
            raise KilledError

    cluster.effect = kill
    with pytest.raises(KilledError):
        remove(nodes, scope)
    cluster.effect, cluster.is_held = lambda _: None, False
    nodes.answers["n1"] = answer(steps=0)  # on the node, nothing is left to do

    assert remove(nodes, scope, replace(WHOLE, parts=ALL_PARTS - {Part.DRIVER})) == 0
    assert (cluster.marks, cluster.classes) == ({}, [])


def test_a_cluster_that_refuses_does_not_hide_what_became_of_the_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = nodes_with(n1=answer())
    scope, cluster = fleet(nodes)

    def refuse(what: str) -> None:
        if what == "no class nvidia":
            raise ClusterError("these credentials may not delete runtimeclasses", hint="deploy/rbac/operator.yaml")

    cluster.effect = refuse

    assert remove(nodes, scope) == 0
    output = said(capsys)
    assert "1 node: 1 removed" in output
    assert "stays: these credentials may not delete runtimeclasses (deploy/rbac/operator.yaml)" in output


def test_the_plan_as_json_has_the_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = nodes_with(n1=answer())
    scope, cluster = fleet(nodes, n1=OFF)

    show_verb(context(nodes), scope, WHOLE, as_json=True)  # type: ignore[arg-type] # a runner too

    assert json.loads(capsys.readouterr().out)["cluster"] == {
        "marks": {"n1": list(OFF.changes)},
        "runtimeClasses": ["nvidia"],
        "stays": [],
    }
    assert (cluster.classes, list(cluster.marks)) == (["nvidia"], ["n1"])


def test_machines_that_were_not_selected_keep_the_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    declaration = tmp_path / "grapnel.yaml"
    declaration.write_text(
        "apiVersion: grapnel.dev/v1alpha1\nkind: GpuStack\nspec: {driver: {version: '550.163.01'}}\n"
    )
    inventory = tmp_path / "hosts.yaml"
    inventory.write_text(
        "all: {hosts: {n1: {}, n2: {}, n3: {grapnel_stack: {runtime: {enabled: false}, plugin: {enabled: false}}}}}"
    )
    args = argparse.Namespace(file=declaration, inventory=[str(inventory)], limit="n1")
    fleet_of_one = load(declaration, (str(inventory),), limit="n1", directory=tmp_path, environ={"PATH": "/usr/bin"})

    verb = with_classes(args, Removing(parts=ALL_PARTS), fleet_of_one)

    assert (verb.classes, verb.unselected) == (("nvidia",), {"nvidia": ("n2",)})
    nodes = nodes_with(n1=answer())
    scope, cluster = fleet(nodes)
    assert remove(nodes, scope, verb) == 0
    assert cluster.classes == ["nvidia"]
    assert "n2 may need it, too; with all nodes it goes" in said(capsys)
