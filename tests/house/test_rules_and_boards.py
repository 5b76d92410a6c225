"""The rules for Prometheus and the boards for Grafana by themselves; what they ask for: beside its table."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.plugin.metrics.promql import WITH_PROMTOOL, promtool_says, read_board, read_rules

REPOSITORY = Path(__file__).parents[2]
BOARDS = sorted((REPOSITORY / "deploy/grafana").glob("*.json"))
RULES = {
    REPOSITORY / "deploy/prometheus/grapnel-node.rules.yml": REPOSITORY / "tests/plugin/metrics/rules_test.yml",
    REPOSITORY / "deploy/prometheus/grapnel-controller.rules.yml": REPOSITORY
    / "tests/provision/controller/rules_test.yml",
}


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_panels_have_places_of_their_own(path: Path) -> None:
    panels, taken = read_board(path)["panels"], set[tuple[int, int]]()
    ids = [panel["id"] for panel in panels]
    assert len(ids) == len(set(ids))
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + column, place["y"] + line) for column in range(place["w"]) for line in range(place["h"])}
        assert max(column for column, _ in cells) < 24
        assert not cells & taken
        taken |= cells


def test_every_file_of_rules_is_looked_at() -> None:
    assert set((REPOSITORY / "deploy/prometheus").glob("*.rules.yml")) == set(RULES)


@pytest.mark.parametrize(("rules", "tests"), RULES.items(), ids=lambda path: path.name)
def test_every_rule_has_a_case_that_fires(rules: Path, tests: Path) -> None:
    told = yaml.safe_load(tests.read_text())["tests"]
    cases = [case for test in told for case in test.get("promql_expr_test", ())]
    fired = {sample["labels"] for case in cases for sample in case["exp_samples"]}
    assert fired == {f'{{alertname="{rule["alert"]}"}}' for rule in read_rules(rules)}


@pytest.mark.slow
@WITH_PROMTOOL
@pytest.mark.parametrize(("rules", "tests"), RULES.items(), ids=lambda path: path.name)
def test_promtool_can_read_the_rules_and_they_fire_when_they_should(rules: Path, tests: Path) -> None:
    for command in (("check", "rules", str(rules)), ("test", "rules", str(tests))):
        status, words = promtool_says(*command)
        assert status == 0, words
