from __future__ import annotations

import json

import pytest

from plugin.base.errors import ClusterError
from plugin.publication.node_object.answers import content_of, node_state
from plugin.publication.node_object.api.messages import ApiResponse, Request
from plugin.publication.node_object.model import Condition
from plugin.publication.node_object.requests import read_node

PATCH = Request("PATCH", "/api/v1/nodes/n1/status", "patch", "nodes/status")
EVENT = Request("POST", "/api/v1/namespaces/default/events", "create", "events")
EVICTION = Request("POST", "/api/v1/namespaces/ml/pods/web/eviction", "create", "pods/eviction")


def refused(request: Request, status: int, message: str = "", retry_after: str = "") -> ClusterError:
    body = json.dumps({"kind": "Status", "message": message}).encode()
    with pytest.raises(ClusterError) as raised:
        content_of(request, ApiResponse(status, body, retry_after))
    assert raised.value.status == status
    return raised.value


@pytest.mark.parametrize(
    ("request_", "status", "words", "hint"),
    [
        pytest.param(PATCH, 301, "redirects patch nodes/status", "not followed", id="moved"),
        pytest.param(PATCH, 307, "redirects patch nodes/status", "not followed", id="for now somewhere else"),
        pytest.param(PATCH, 401, "refuses patch nodes/status (401)", "credentials are read again", id="unknown"),
        pytest.param(PATCH, 403, "forbids patch nodes/status", 'allow verb "patch" on "nodes/status"', id="forbidden"),
        pytest.param(EVENT, 403, "forbids create events", 'allow verb "create" on "events"', id="events forbidden"),
        pytest.param(read_node("n1"), 404, "there is no such node", "until the kubelet registers", id="no node"),
        pytest.param(EVENT, 404, "refuses create events (404)", "", id="no such event"),
        pytest.param(PATCH, 410, "refuses patch nodes/status (410)", "", id="gone"),
        pytest.param(PATCH, 422, "refuses patch nodes/status (422): invalid", "", id="invalid"),
        pytest.param(PATCH, 503, "refuses patch nodes/status (503)", "", id="not now"),
    ],
)
def test_refusals_say_what_and_what_to_do(request_: Request, status: int, words: str, hint: str) -> None:
    error = refused(request_, status, "invalid")
    assert words in error.message
    assert hint in error.hint


def test_the_servers_words_are_bounded_and_on_one_line() -> None:
    error = refused(PATCH, 500, "a\nb" + "x" * 10_000)
    assert "\n" not in error.message
    assert len(error.message) < 400


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        pytest.param("7", 7, id="seconds"),
        pytest.param("99999", 3600, id="more than an hour"),
        pytest.param("Wed, 21 Oct 2026 07:28:00 GMT", 0, id="a date"),
        pytest.param("-1", 0, id="less than nothing"),
        pytest.param("", 0, id="none"),
    ],
)
def test_patience_that_is_asked_for(header: str, seconds: int) -> None:
    assert refused(PATCH, 429, retry_after=header).retry_after_s == seconds


def test_owners_of_labels_are_named() -> None:
    field = {"field": ".metadata.labels.nvidia.com/gpu.count", "reason": "FieldManagerConflict"}
    causes = [
        {**field, "message": 'conflict with "gpu-feature-discovery" using v1'},
        {**field, "field": ".metadata.labels.nvidia.com/x", "message": "who knows"},
        {**field, "reason": "Else", "field": ".metadata.labels.nvidia.com/y"},
        7,
    ]
    with pytest.raises(ClusterError) as raised:
        content_of(PATCH, ApiResponse(409, json.dumps({"details": {"causes": causes}}).encode()))
    assert raised.value.owners == {"nvidia.com/gpu.count": "gpu-feature-discovery", "nvidia.com/x": "somebody else"}


@pytest.mark.parametrize(
    ("status", "message"),
    [
        pytest.param(429, "Cannot evict pod as it would violate the pod's disruption budget.", id="for now"),
        pytest.param(403, 'poddisruptionbudget.policy "web" is forbidden', id="from Kubernetes 1.37 on"),
    ],
)
def test_a_budget_is_named_by_its_cause_and_no_rule_is_asked_for(status: int, message: str) -> None:
    causes = [{"reason": "DisruptionBudget", "message": "The disruption budget web needs 2\nhealthy pods"}, "none", {}]
    body = json.dumps({"kind": "Status", "message": message, "details": {"causes": causes}}).encode()
    with pytest.raises(ClusterError) as raised:
        content_of(EVICTION, ApiResponse(status, body, "7"))
    told = f"the api server refuses create pods/eviction ({status}): The disruption budget web needs 2 healthy pods"
    assert (raised.value.message, raised.value.hint) == (told, "")
    assert (raised.value.status, raised.value.retry_after_s) == (status, 7)


@pytest.mark.parametrize("body", [b"", b"ok", b"[]", b"\xff", b"[" * 100_000])
def test_a_success_without_an_object_is_a_failure(body: bytes) -> None:
    with pytest.raises(ClusterError, match="no json object"):
        content_of(PATCH, ApiResponse(200, body))


def test_a_failure_without_an_object_is_one_all_the_same() -> None:
    with pytest.raises(ClusterError, match="502"):
        content_of(PATCH, ApiResponse(502, b"<html>"))


def test_a_node_says_its_uid_labels_and_our_conditions() -> None:
    rows = [
        {"type": "Ready", "status": "True"},
        {"type": "GPUsHealthy", "status": "False", "reason": "R", "message": "m", "lastTransitionTime": "t"},
        {"type": "GPUDriverReady", "status": 7},
        "x",
    ]
    state = node_state({"metadata": {"uid": "u", "labels": {"a": "b"}}, "status": {"conditions": rows}})
    assert state.uid == "u"
    assert state.labels == {"a": "b"}
    assert state.conditions == {
        "GPUsHealthy": Condition("GPUsHealthy", "False", "R", "m", "t"),
        "GPUDriverReady": Condition("GPUDriverReady", "", "", ""),
    }
    assert node_state({"metadata": {"uid": "u"}}).conditions == {}


@pytest.mark.parametrize("document", [{}, {"metadata": None}, {"metadata": {"uid": 7}}, {"metadata": {"uid": ""}}])
def test_a_node_without_a_uid_is_none(document: dict[str, object]) -> None:
    with pytest.raises(ClusterError, match="no uid"):
        node_state(document)
