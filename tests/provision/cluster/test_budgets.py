"""Which evictions budgets would refuse, said before anything is evicted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from provision.cluster.kubernetes.api.client import Api
from provision.cluster.kubernetes.objects.core import LabelSelector
from provision.cluster.kubernetes.objects.pods import DisruptionBudget
from provision.cluster.kubernetes.pods.budgets import refusals, render_selector, why_not
from provision.cluster.kubernetes.pods.eviction import TWO_BUDGETS
from provision.cluster.kubernetes.pods.gpu_pods import drained_pod
from provision.cluster.kubernetes.pods.pod_rules import PodRules
from tests.provision.cluster.fakes import Clock, ScriptedServer, refusal
from tests.provision.cluster.samples import pod

WEB = pod(metadata={"labels": {"app": "web", "tier": "gold"}})


def budget(selector: object, *, name: str = "web", namespace: str = "default", **status: int) -> DisruptionBudget:
    whole = {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {} if selector is None else {"selector": selector},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 3} | status,
    }
    return msgspec.convert(whole, DisruptionBudget)


@pytest.mark.parametrize(
    ("budgets", "expected"),
    [
        pytest.param([], "", id="no budget"),
        pytest.param([budget({"matchLabels": {"app": "db"}})], "", id="a budget of others"),
        pytest.param([budget(None)], "", id="a budget without a selector"),
        pytest.param([budget({}, namespace="shop")], "", id="another namespace"),
        pytest.param([budget({}, disruptionsAllowed=1)], "", id="a budget that allows one"),
        pytest.param([budget({})], "would wait for budget web: 2 of 3 pods are healthy, and it needs 2", id="all"),
        pytest.param(
            [budget({"matchLabels": {"app": "web"}}, desiredHealthy=3)],
            "budget web never allows an eviction, as it needs all of its 3 pods: scale up, or change it",
            id="a budget that is never to be kept",
        ),
        pytest.param([budget({}), budget({"matchLabels": {"app": "web"}})], TWO_BUDGETS, id="two"),
    ],
)
def test_a_budget_is_in_the_way(budgets: list[DisruptionBudget], expected: str) -> None:
    assert why_not(WEB, budgets) == expected


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ({}, ""),
        ({"matchLabels": {"a": "b", "c": ""}}, "a=b,c="),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["x", "y"]}]}, "a in (x,y)"),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["x"]}]}, "a notin (x)"),
        (
            {"matchExpressions": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "DoesNotExist"}]},
            "a,!b",
        ),
    ],
)
def test_selectors_are_written_as_people_write_them(selector: dict[str, Any], text: str) -> None:
    assert render_selector(msgspec.convert(selector, LabelSelector)) == text


def test_nothing_is_said_where_budgets_may_not_be_listed() -> None:
    words = 'User "ada" cannot list resource "poddisruptionbudgets" in API group "policy" at the cluster scope'
    server, clock = ScriptedServer(refusal(403, words)), Clock()
    known = drained_pod(WEB, PodRules(resources=frozenset()))

    assert refusals(Api(server, sleep=clock.sleep, clock=clock), [known]) == {}
    assert len(server.requests) == 1
