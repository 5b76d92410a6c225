"""`grapnel simulate` from its command line to what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from provision.base.errors import UsageError
from provision.cli import main
from provision.cli.foresee.simulate import read_failures
from provision.rollout.simulate.scenario import Faults

SAMPLES = Path(__file__).parents[3] / "docs" / "contracts" / "simulation-fleet" / "good"
START = ("--start", "2026-11-24T22:00+01:00")


def test_the_waves_the_nodes_and_the_worst_case_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--fleet", str(SAMPLES / "smallest.yaml"), "--seeds", "3", *START]) == 0
    shown = capsys.readouterr().out
    assert "simulated roll-out of 3 nodes, 535.261.03 → 550.163.01, seed 1" in shown
    for word in ("all nodes", "n1", "n2", "n3", "what nodes waited for", "3 seeds", "worst: seed"):
        assert word in shown


def test_json_is_the_same_for_the_same_seed(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["simulate", "--fleet", str(SAMPLES / "smallest.yaml"), "--json", "--seeds", "2", *START]
    assert main(arguments) == 0
    first = capsys.readouterr().out
    assert main(arguments) == 0
    assert capsys.readouterr().out == first
    document = json.loads(first)
    assert [node["ending"] for node in document["nodes"]] == ["done"] * 3
    assert document["start"] == "2026-11-24T21:00:00Z"


def test_a_roll_out_that_stops_ends_with_1_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["simulate", "--fleet", str(SAMPLES / "smallest.yaml"), "--failures", "verify=100%", "--seeds", "1"]) == 1
    )
    shown = capsys.readouterr().out
    assert "\nstopped: " in shown, "on a line of its own"
    assert "not touched" in shown


def test_a_node_that_somebody_wants_left_alone_is_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text((SAMPLES / "smallest.yaml").read_text() + "    - {name: spare, skipped: true}\n")

    assert main(["simulate", "--fleet", str(fleet), "--seeds", "2", *START]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "stopped" not in shown
    assert "not touched: is skipped: `grapnel skip --undo spare` ends that" in shown
    assert main(["simulate", "--fleet", str(fleet), "--failures", "verify=100%", "--seeds", "1", *START]) == 1


def test_a_large_fleet_stays_readable(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--fleet", str(SAMPLES / "two-racks.yaml"), "--seeds", "1"]) in {0, 1}
    shown = capsys.readouterr().out
    assert "other nodes: --json has all" in shown
    assert len(shown.splitlines()) < 70


@pytest.mark.parametrize("words", [["n1"], ["-i", "hosts.yaml"], ["--no-cluster"]], ids=lambda words: words[0])
def test_a_fleet_of_a_file_has_no_other_nodes(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--fleet", str(SAMPLES / "smallest.yaml"), *words]) == 2
    assert "--fleet has its nodes in a file" in capsys.readouterr().err


def test_rates_replace_those_of_the_file() -> None:
    assert read_failures("swap=1%, hardware=0.5%", Faults(verify=0.2)) == Faults(
        swap=0.01, verify=0.2, ill_per_day=0.005
    )


@pytest.mark.parametrize("text", ["swap=1", "swap", "gremlins=1%", "swap=200%", "swap=x%"])
def test_a_rate_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        read_failures(text, Faults())


def test_on_a_terminal_it_is_told_how_far_a_seed_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("provision.cli.foresee.simulate.TELL_EACH_S", 0.0)
    arguments = ["simulate", "--fleet", str(SAMPLES / "smallest.yaml"), "--json", "--seeds", "1", *START]
    main(arguments)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    main(arguments)
    assert "· seed 1: of 3 nodes 0 have come to an end after 0s" in capsys.readouterr().err
