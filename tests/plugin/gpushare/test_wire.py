"""The wire format of k8s.io/kube-scheduler/extender/v1 (0.36), and the older one with small letters."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.gpushare.wire import (
    Victims,
    bind_answer,
    filter_error,
    parse_bind,
    parse_filter,
    parse_preempt,
    render_filter,
    render_preempt,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["Pod", "pod", "Nodes", "NodeNames", "items", "Pods", "UID", "metadata", "name"])
            | st.sampled_from(["NodeNameToMetaVictims", "NodeNameToVictims", "NumPDBViolations", "n1"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
POD = {"metadata": {"name": "binpack-1-0", "namespace": "default", "uid": "u1"}, "spec": {"containers": []}}
MEMBERS = ["Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"]


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param({"Pod": POD, "Nodes": None, "NodeNames": ["n1", "n2"]}, id="kube-scheduler 1.17 and later"),
        pytest.param({"pod": POD, "nodenames": ["n1", "n2"]}, id="before"),
    ],
)
def test_nodes_are_asked_for_by_name(sent: dict[str, object]) -> None:
    question = parse_filter(json.dumps(sent).encode())
    assert (question.pod, question.names, question.items) == (POD, ("n1", "n2"), None)


@pytest.mark.parametrize("key", ["Items", "items"])
def test_nodes_that_are_sent_whole_are_answered_whole(key: str) -> None:
    nodes = [{"metadata": {"name": name}, "spec": {"podCIDR": name}} for name in ("n1", "n2")]
    question = parse_filter(json.dumps({"Pod": POD, "Nodes": {key: nodes}, "NodeNames": None}).encode())
    assert question.names == ("n1", "n2")
    answer = json.loads(render_filter(question, {"n1": "full"}, {}))
    assert answer["Nodes"] == {"items": [nodes[1]]}
    assert answer["NodeNames"] == ["n2"]


def test_an_answer_has_the_members_of_the_type() -> None:
    question = parse_filter(json.dumps({"Pod": POD, "NodeNames": ["a", "b", "c"]}).encode())
    answer = json.loads(render_filter(question, {"a": "full"}, {"b": "too small"}))
    assert list(answer) == MEMBERS
    assert answer == {
        "Nodes": None,
        "NodeNames": ["c"],
        "FailedNodes": {"a": "full"},
        "FailedAndUnresolvableNodes": {"b": "too small"},
        "Error": "",
    }
    assert list(json.loads(filter_error("why"))) == MEMBERS


def test_a_bind_question_and_its_answers() -> None:
    sent = {"PodName": "p", "PodNamespace": "d", "PodUID": "u", "Node": "n"}
    assert parse_bind(json.dumps(sent).encode()) == ("p", "d", "u", "n")
    assert parse_bind(json.dumps({key.lower(): value for key, value in sent.items()}).encode()) == ("p", "d", "u", "n")
    assert json.loads(bind_answer()) == {"Error": ""}
    assert json.loads(bind_answer("no room")) == {"Error": "no room"}


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param({"NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "a"}], "NumPDBViolations": 2}}}, id="by uid"),
        pytest.param(
            {
                "NodeNameToMetaVictims": None,
                "NodeNameToVictims": {"n": {"Pods": [{"metadata": {"uid": "a"}}], "NumPDBViolations": 2}},
            },
            id="whole",
        ),
    ],
)
def test_victims_are_named_by_uid(sent: dict[str, object]) -> None:
    question = parse_preempt(json.dumps({"Pod": POD, **sent}).encode())
    assert question.victims == {"n": Victims(("a",), 2)}
    assert json.loads(render_preempt(question.victims)) == {
        "NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "a"}], "NumPDBViolations": 2}}
    }


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"[1]", id="a list"),
        pytest.param(b"[" * 100_000, id="nested without end"),
        pytest.param(b'{"Pod": null, "NodeNames": ["n"]}', id="no pod"),
        pytest.param(json.dumps({"Pod": POD}).encode(), id="no nodes"),
        pytest.param(json.dumps({"Pod": POD, "NodeNames": ["n", []]}).encode(), id="a name that is none"),
        pytest.param(b'{"PodName": "p", "PodUID": "", "PodNamespace": "d", "Node": "n"}', id="an empty uid"),
    ],
)
def test_a_bad_question_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"is|are|must"):
        parse_filter(body)
    with pytest.raises(ValueError, match=r"is|are|must"):
        parse_bind(body)


@given(JSON)
def test_any_question_is_answered_or_refused(document: object) -> None:
    body = json.dumps(document).encode()
    for parse in (parse_filter, parse_preempt, parse_bind):
        with contextlib.suppress(ValueError):
            parse(body)
