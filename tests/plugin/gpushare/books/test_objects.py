"""What Nodes and pods say of memory units."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.gpushare.books.model import RESOURCE, Demand
from plugin.gpushare.books.objects import parse_node, parse_pod, parse_quantity
from plugin.gpushare.books.report import ANNOTATION
from tests.plugin.gpushare.documents import (
    CREATED_NS,
    container,
    make_node,
    make_pod,
    node_document,
    pod_document,
    report,
)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("3", 3),
        (3, 3),
        ("2k", 2000),
        ("1Ki", 1024),
        ("1e3", 1000),
        ("2M", 2_000_000),
        ("0", 0),
        ("1.5", 0),
        ("-1", 0),
        ("many", 0),
        (None, 0),
        (True, 0),
        ("9" * 40, 0),
    ],
)
def test_quantities(written: object, expected: int) -> None:
    assert parse_quantity(written) == expected


@pytest.mark.parametrize(
    ("demand", "units", "steps"),
    [
        pytest.param(Demand((3,)), 3, (3,), id="one container"),
        pytest.param(Demand((3, 0, 2)), 5, (3, 2), id="several, one without"),
        pytest.param(Demand((3,), 2), 3, (2, 1), id="an init container's units are used again"),
        pytest.param(Demand((3,), 8), 8, (8,), id="a larger init container"),
    ],
)
def test_demands(demand: Demand, units: int, steps: tuple[int, ...]) -> None:
    assert (demand.units, demand.steps) == (units, steps)


def test_a_pod() -> None:
    pod = make_pod("p", 3, 2, node="n1", initial=4)
    assert pod.title == "jobs/p"
    assert (pod.uid, pod.node, pod.names, pod.created_ns) == ("uid-p", "n1", ("c0", "c1"), CREATED_NS)
    assert pod.demand == Demand((3, 2), 4)


def test_a_sidecar_runs_beside_the_containers() -> None:
    document = pod_document("p", 3, initial=2)
    document["spec"]["initContainers"].append({**container("side", 1), "restartPolicy": "Always"})
    pod = parse_pod(document, RESOURCE)
    assert pod is not None
    assert pod.demand == Demand((3, 1), 2)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"status": {"phase": "Succeeded"}}, id="succeeded"),
        pytest.param({"status": {"phase": "Failed"}}, id="failed"),
        pytest.param({"spec": {"containers": [container("c", 0)]}}, id="asks for nothing"),
        pytest.param({"spec": None}, id="odd"),
    ],
)
def test_pods_that_do_not_matter(changes: dict[str, Any]) -> None:
    assert parse_pod({**pod_document("p", 3), **changes}, RESOURCE) is None


def test_a_pod_that_is_being_deleted_still_has_its_units() -> None:
    document = pod_document("p", 3, node="n1")
    document["metadata"]["deletionTimestamp"] = "2026-05-04T13:00:00Z"
    assert parse_pod(document, RESOURCE) is not None


def test_a_node() -> None:
    node = make_node("n1", report(15, 8))
    assert (node.name, node.address, node.allocatable, node.problem) == ("n1", "192.168.0.71", 23, "")
    assert node.report == report(15, 8)


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        pytest.param("", "does not say which cards", id="no annotation"),
        pytest.param("{", "cannot be read: not valid json", id="not json"),
        pytest.param('{"schema": "other/v9"}', "cannot be read: schema is not", id="a later schema"),
    ],
)
def test_a_node_whose_report_cannot_be_used_says_why(written: str, problem: str) -> None:
    document = node_document("n1", report(15))
    document["metadata"]["annotations"] = {ANNOTATION: written} if written else {}
    node = parse_node(document, RESOURCE)
    assert node.report is None
    assert problem in node.problem


def test_a_node_that_offers_another_resource() -> None:
    document = node_document("n1", report(15))
    assert "offers aliyun.com/gpu-mem, not example.com/mem" in parse_node(document, "example.com/mem").problem


WORDS = (
    "metadata spec status name uid annotations containers initContainers resources limits requests phase nodeName "
    "creationTimestamp allocatable addresses"
)
KEYS = st.sampled_from([*WORDS.split(), RESOURCE, ANNOTATION])
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["3", "Running"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=15,
)


@given(ODD)
def test_odd_documents_are_read_as_far_as_they_go(document: object) -> None:
    parse_pod(document, RESOURCE)
    parse_node(document, RESOURCE)
