"""The table of metrics, and everything that leans on its names: the document, the rules, the board."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plugin.publication.metrics.catalogue import ACCELERATOR_METRICS, GPU_METRICS, OWN_METRICS, Metric
from plugin.publication.metrics.counters import Counters
from plugin.publication.metrics.exposition import Family, render
from tests.plugin.metrics.document import PATH as DOCUMENT
from tests.plugin.metrics.document import with_tables
from tests.plugin.metrics.promql import WITH_PROMTOOL, metric_names, promtool_says, read_board, read_panels, read_rules

REPOSITORY = Path(__file__).parents[3]
RULES = REPOSITORY / "deploy/prometheus/grapnel-node.rules.yml"
BOARD = REPOSITORY / "deploy/grafana/grapnel-gpu-nodes.json"
EVERY_METRIC = (*(row.metric for row in (*GPU_METRICS, *ACCELERATOR_METRICS)), *OWN_METRICS)

# Enabled in DCGM-exporter's etc/default-counters.csv.
DEFAULTS_OF_DCGM_EXPORTER = {
    "DEV_SM_CLOCK",
    "DEV_MEM_CLOCK",
    "DEV_MEMORY_TEMP",
    "DEV_GPU_TEMP",
    "DEV_POWER_USAGE",
    "DEV_TOTAL_ENERGY_CONSUMPTION",
    "DEV_PCIE_REPLAY_COUNTER",
    "DEV_GPU_UTIL",
    "DEV_MEM_COPY_UTIL",
    "DEV_ENC_UTIL",
    "DEV_DEC_UTIL",
    "DEV_XID_ERRORS",
    "DEV_FB_FREE",
    "DEV_FB_USED",
    "DEV_FB_RESERVED",
    "DEV_NVLINK_BANDWIDTH_TOTAL",
    "DEV_VGPU_LICENSE_STATUS",
    "DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DEV_CORRECTABLE_REMAPPED_ROWS",
    "DEV_ROW_REMAP_FAILURE",
    "PROF_GR_ENGINE_ACTIVE",
    "PROF_PIPE_TENSOR_ACTIVE",
    "PROF_DRAM_ACTIVE",
    "PROF_PCIE_TX_BYTES",
    "PROF_PCIE_RX_BYTES",
}
OF_VIRTUAL_GPUS = {"DEV_VGPU_LICENSE_STATUS"}


def series() -> set[str]:
    """Return every name that a query may use: a histogram has three."""
    names = {metric.name for metric in EVERY_METRIC}
    for metric in EVERY_METRIC:
        if metric.kind == "histogram":
            names |= {f"{metric.name}{suffix}" for suffix in ("_bucket", "_sum", "_count")}
    return names


def test_every_name_is_there_once() -> None:
    names = [metric.name for metric in EVERY_METRIC]
    assert sorted(names) == sorted(set(names))


@pytest.mark.slow
@pytest.mark.parametrize("metric", EVERY_METRIC, ids=lambda metric: metric.name)
def test_every_row_is_a_family_of_the_format(metric: Metric) -> None:
    assert Family(metric.name, metric.kind, metric.help) == metric.family(())


def test_the_names_that_dcgm_exporter_serves_by_default_are_served() -> None:
    names = {row.metric.name.removeprefix("DCGM_FI_") for row in GPU_METRICS}
    assert DEFAULTS_OF_DCGM_EXPORTER - OF_VIRTUAL_GPUS - names == set()


@pytest.mark.parametrize("metric", OWN_METRICS, ids=lambda metric: metric.name)
def test_own_names_follow_prometheus_conventions(metric: Metric) -> None:
    assert metric.name.startswith("grapnel_")
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.help.endswith(".")


def test_the_document_has_the_table() -> None:
    text = DOCUMENT.read_text()
    assert with_tables(text) == text, "write it with: python3 -m tests.plugin.metrics.document"


@pytest.mark.parametrize("rule", read_rules(RULES), ids=lambda rule: rule["alert"])
def test_a_rule_asks_for_what_there_is_and_says_what_to_do(rule: dict[str, Any]) -> None:
    assert metric_names(rule["expr"])
    assert metric_names(rule["expr"]) - series() == set()
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert set(rule["annotations"]) == {"summary", "description"}


def test_alerts_and_legends_name_the_node_by_either_spelling_of_dcgm_exporters_label() -> None:
    """``Hostname`` up to 4.5.3-4.8.2, and ``hostname`` in releases after it."""
    texts = [text for rule in read_rules(RULES) for text in rule["annotations"].values()]
    legends = [
        target["legendFormat"]
        for panel in read_panels(BOARD)
        for target in panel["targets"]
        if "legendFormat" in target
    ]
    of_nodes = [text for text in (*texts, *legends) if "hostname" in text.lower()]
    assert len(of_nodes) > 20
    for text in of_nodes:
        assert "{{ or $labels.Hostname $labels.hostname }}" in text or "{{Hostname}}{{hostname}}" in text


@pytest.mark.parametrize("panel", read_panels(BOARD), ids=lambda panel: panel["title"])
def test_a_panel_asks_for_what_there_is(panel: dict[str, Any]) -> None:
    assert panel["targets"]
    for target in panel["targets"]:
        names = metric_names(target["expr"])
        assert names
        assert names - series() == set()
        assert target["datasource"]["uid"] == "${datasource}"


def test_the_boards_variables_ask_for_what_there_is() -> None:
    queries = [each["definition"] for each in read_board(BOARD)["templating"]["list"] if each["type"] == "query"]
    labels = {label for metric in EVERY_METRIC for label in metric.labels} | {"instance"}
    assert queries
    for query in queries:
        assert metric_names(query) - labels - series() == set()


@WITH_PROMTOOL
def test_promtool_finds_nothing_in_what_the_daemon_counts() -> None:
    """DCGM's own names are not to its taste, so only ours are shown to it."""
    counters = Counters()
    counters.registered("nvidia.com/gpu")
    counters.called("Allocate", "OK", 0.002)
    counters.allocated(["GPU-0"])
    counters.xid("GPU-0", 79)
    assert promtool_says("check", "metrics", page=render(counters.families())) == (0, "")
