"""Labels and taints of Nodes: ours are set and taken away, those of others are left alone."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from provision.cluster.kubernetes.api.client import Api
from provision.cluster.kubernetes.api.exchange import Request
from provision.cluster.kubernetes.mark_keeper import MarkKeeper
from provision.cluster.kubernetes.nodes.node_marks import MARKS, compare_marks, owned_by_us, render_marks
from provision.cluster.kubernetes.objects.nodes import Node
from provision.cluster.kubernetes.watch.mirror import essence
from provision.rollout.errors import ConflictError
from provision.rollout.interface.node_marks import MarkChange, NodeMarks, declared_marks
from tests.provision.cluster.fakes import ScriptedServer, answer, refusal
from tests.provision.samples import make_stack

GPU = ("nvidia.com/gpu", "NoSchedule")
NOTHING = NodeMarks({}, {})


def raw(*given: Any, **owned: dict[str, str]) -> dict[str, Any]:
    """Return a Node with labels and taints, of which some are ours."""
    labels, taints = [*given, {}, []][:2] if len(given) != 1 else [given[0], []]
    annotations = {MARKS: json.dumps(owned)} if owned else {}
    return {
        "metadata": {"name": "n1", "resourceVersion": "7", "labels": labels, "annotations": annotations},
        "spec": {"taints": taints},
    }


def node(*given: Any, **owned: dict[str, str]) -> Node:
    return msgspec.convert(raw(*given, **owned), Node)


TAINT = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
OTHER = {"key": "site.example/reserved", "effect": "NoExecute", "value": "x", "timeAdded": "2026-11-24T00:00:00Z"}

CASES: dict[str, tuple[Node, NodeMarks, MarkChange]] = {
    "a label that is missing is set": (node(), NodeMarks({"a": "b"}, {}), MarkChange(("label a=b",))),
    "a taint that is missing is set": (
        node(),
        NodeMarks({}, {GPU: ""}),
        MarkChange(("taint nvidia.com/gpu:NoSchedule",)),
    ),
    "what is there already is nothing to do": (
        node({"a": "b"}, [TAINT]),
        NodeMarks({"a": "b"}, {GPU: ""}),
        MarkChange(),
    ),
    "ours gets a new value": (
        node({"a": "b"}, labels={"a": "b"}),
        NodeMarks({"a": "c"}, {}),
        MarkChange(("label a=c",)),
    ),
    "ours that somebody changed is set again": (
        node({"a": "x"}, labels={"a": "b"}),
        NodeMarks({"a": "b"}, {}),
        MarkChange(("label a=b",)),
    ),
    "ours that is declared no more goes": (
        node({"a": "b"}, [TAINT], labels={"a": "b"}, taints={"nvidia.com/gpu:NoSchedule": ""}),
        NOTHING,
        MarkChange(("no label a", "no taint nvidia.com/gpu:NoSchedule")),
    ),
    "ours that somebody changed since stays where it is declared no more": (
        node({"a": "x"}, labels={"a": "b"}),
        NOTHING,
        MarkChange(left=("label a is 'x', and grapnel had set 'b'",)),
    ),
    "what somebody else has set is a conflict": (
        node({"a": "x"}, [{**TAINT, "value": "y"}]),
        NodeMarks({"a": "b"}, {GPU: ""}),
        MarkChange(
            (),
            (
                "label a is 'x', set by somebody else, and declared as 'b'",
                "taint nvidia.com/gpu:NoSchedule is 'y', set by somebody else, and declared as ''",
            ),
        ),
    ),
}


@pytest.mark.parametrize(("present", "wanted", "expected"), CASES.values(), ids=CASES)
def test_a_node_is_compared_with_what_is_declared(present: Node, wanted: NodeMarks, expected: MarkChange) -> None:
    assert compare_marks(present, wanted) == expected


def test_the_patch_keeps_the_taints_of_others_as_they_are() -> None:
    patch = render_marks(node({}, [OTHER]), NodeMarks({"a": "b"}, {GPU: "v"}))

    assert patch == {
        "metadata": {
            "resourceVersion": "7",
            "labels": {"a": "b"},
            "annotations": {MARKS: '{"labels":{"a":"b"},"taints":{"nvidia.com/gpu:NoSchedule":"v"}}'},
        },
        "spec": {"taints": [OTHER, {**TAINT, "value": "v"}]},
    }


def test_the_last_mark_takes_the_annotation_with_it() -> None:
    patch = render_marks(node({"a": "b"}, [OTHER], labels={"a": "b"}), NOTHING)

    assert patch == {"metadata": {"resourceVersion": "7", "labels": {"a": None}, "annotations": {MARKS: None}}}


def test_what_somebody_else_has_set_is_not_remembered_as_ours() -> None:
    assert render_marks(node({"a": "b"}), NodeMarks({"a": "b"}, {})) is None


def test_an_annotation_that_cannot_be_read_makes_nothing_ours() -> None:
    broken = msgspec.convert({"metadata": {"name": "n1", "annotations": {MARKS: "["}}}, Node)

    assert owned_by_us(broken) == owned_by_us(node())


def test_the_declaration_has_labels_and_taints() -> None:
    stack = make_stack(node={"labels": {"a": "b"}, "taints": [TAINT]})

    assert declared_marks(stack) == NodeMarks({"a": "b"}, {GPU: ""})


def keeper(server: ScriptedServer) -> MarkKeeper:
    api = Api(server)
    return MarkKeeper(api, api, lambda name: api.call(Request(method="GET", path=f"/api/v1/nodes/{name}"), Node))


def test_a_node_without_marks_costs_no_request() -> None:
    server = ScriptedServer()
    seen = {"n1": essence(node({"a": "b"}))}

    assert keeper(server).compare({"n1": NOTHING}, seen) == {}
    assert server.requests == []


def test_a_node_whose_marks_are_declared_no_more_is_read() -> None:
    owned = node({"a": "b"}, labels={"a": "b"})
    server = ScriptedServer(answer(200, raw({"a": "b"}, labels={"a": "b"})))

    assert keeper(server).compare({"n1": NOTHING}, {"n1": essence(owned)}) == {"n1": MarkChange(("no label a",))}


def test_a_node_that_changed_meanwhile_is_read_again() -> None:
    server = ScriptedServer(
        answer(200, raw()), refusal(409, "changed"), answer(200, raw({"z": "1"})), answer(200, raw({"a": "b"}))
    )

    failed = keeper(server).set({"n1": NodeMarks({"a": "b"}, {})}, {"n1": node()})

    assert failed == {}
    assert [request.method for request in server.requests] == ["GET", "PATCH", "GET", "PATCH"]


def test_a_node_that_changes_all_the_time_is_given_up() -> None:
    server = ScriptedServer(*[answer(200, raw()), refusal(409, "changed")] * 6)

    failed = keeper(server).set({"n1": NodeMarks({"a": "b"}, {})}, {"n1": node()})

    assert isinstance(failed["n1"], ConflictError)
