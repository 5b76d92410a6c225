"""The controller's metrics, and everything that leans on their names: the document, the rules, the board."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plugin.publication.metrics.catalogue import OWN_METRICS
from provision.controller.publication.metrics import (
    METRICS,
    Counts,
    Metric,
    StackCounts,
    nodes_by_stand,
    render_controller,
)
from provision.controller.stacks.derive import NodeIs, Observed, Stands
from tests.plugin.metrics.promql import WITH_PROMTOOL, metric_names, promtool_says, read_board, read_panels, read_rules
from tests.provision.controller.document import PATH as DOCUMENT
from tests.provision.controller.document import with_table
from tests.provision.rollout.status.test_derive import standing

REPOSITORY = Path(__file__).parents[3]
RULES = REPOSITORY / "deploy/prometheus/grapnel-controller.rules.yml"
BOARD = REPOSITORY / "deploy/grafana/grapnel-gpu-fleet.json"
OWN = {metric.name for metric in METRICS}
SERIES = OWN | {metric.name for metric in OWN_METRICS}
LABELS = {label for metric in METRICS for label in metric.labels}
BUSY = Counts(
    is_leader=True,
    rounds=1,
    turns=7,
    turn=1_800_000_000.5,
    stacks={
        "a": StackCounts(
            state="Changing",
            nodes={"changing": 2, "as declared": 3},
            claimed=1,
            drifted=2,
            joining=1,
            hosting=1,
            done=4,
            failures=5,
            rollout=standing(out=("n1", "n2"), n3="waits for n1: drain", n4="stopped: n9 failed"),
        ),
        "b": StackCounts(state="Empty"),
    },
)


def test_a_page_says_how_each_stack_stands() -> None:
    page = render_controller(BUSY).decode()
    for line in (
        "grapnel_controller_leader 1",
        "grapnel_controller_turn_timestamp_seconds 1800000000.5",
        'grapnel_controller_stack_state{stack="a",state="Changing"} 1',
        'grapnel_controller_stack_state{stack="a",state="Refused"} 0',
        'grapnel_controller_nodes{stack="a",state="changing"} 2',
        'grapnel_controller_nodes{stack="b",state="failed"} 0',
        'grapnel_controller_nodes_claimed_twice{stack="a"} 1',
        'grapnel_controller_nodes_drifted{stack="a"} 2',
        'grapnel_controller_nodes_joining{stack="a"} 1',
        'grapnel_controller_nodes_hosting{stack="a"} 1',
        'grapnel_controller_nodes_hosting{stack="b"} 0',
        "# TYPE grapnel_controller_nodes_done_total counter",
        'grapnel_controller_nodes_done_total{stack="a"} 4',
        'grapnel_controller_node_failures_total{stack="a"} 5',
        'grapnel_controller_rollout_out_nodes{stack="a"} 2',
        'grapnel_controller_rollout_waiting_nodes{stack="a",reason="turn"} 1',
        'grapnel_controller_rollout_waiting_nodes{stack="a",reason="stopped"} 1',
        'grapnel_controller_rollout_stopped{stack="a"} 0',
    ):
        assert f"{line}\n" in page
    assert 'grapnel_controller_rollout_out_nodes{stack="b"}' not in page, "it has no rollout"


def test_nodes_are_counted_by_how_they_stand() -> None:
    stands = {"n1": Stands(NodeIs.WAITING), "n2": Stands(NodeIs.WAITING), "n3": Stands(NodeIs.FAILED, "x")}
    assert nodes_by_stand(Observed(nodes=stands)) == {"waiting": 2, "failed": 1}


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_and_labels_are_as_they_are_written_down(metric: Metric) -> None:
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.help.endswith(".")
    samples = list(metric.values(BUSY))
    assert samples
    assert {tuple(key for key, _value in labels) for labels, _number in samples} == {metric.labels}


def test_the_document_has_the_table() -> None:
    text = DOCUMENT.read_text()
    assert with_table(text) == text, "write it with: python3 -m tests.provision.controller.document"


@pytest.mark.parametrize("rule", read_rules(RULES), ids=lambda rule: rule["alert"])
def test_a_rule_asks_for_what_there_is_and_says_what_to_do(rule: dict[str, Any]) -> None:
    assert metric_names(rule["expr"])
    assert metric_names(rule["expr"]) <= OWN
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(rule["annotations"]) == {"summary", "description"}


@pytest.mark.parametrize("panel", read_panels(BOARD), ids=lambda panel: panel["title"])
def test_a_panel_asks_for_what_there_is(panel: dict[str, Any]) -> None:
    assert panel["targets"]
    for target in panel["targets"]:
        assert metric_names(target["expr"])
        assert metric_names(target["expr"]) <= SERIES
        assert target["datasource"]["uid"] == "${datasource}"


def test_every_metric_of_the_controller_is_on_the_board() -> None:
    asked = {
        name for panel in read_panels(BOARD) for target in panel["targets"] for name in metric_names(target["expr"])
    }
    assert asked >= OWN


def test_the_boards_variables_ask_for_what_there_is() -> None:
    queries = [each["definition"] for each in read_board(BOARD)["templating"]["list"] if each["type"] == "query"]
    assert queries
    for query in queries:
        assert metric_names(query) <= OWN | LABELS


@WITH_PROMTOOL
def test_promtool_finds_nothing_in_the_page() -> None:
    assert promtool_says("check", "metrics", page=render_controller(BUSY)) == (0, "")
