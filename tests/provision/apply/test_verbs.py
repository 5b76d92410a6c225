"""What a person sees and a script gets of `plan` and `apply`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from provision.apply.model import NodeResult, Status
from provision.base.errors import UsageError
from provision.cli.change import apply as apply_verb
from provision.cli.change.apply import apply_nodes
from provision.cli.foresee.plan import show_plans
from provision.cli.parsers.arguments import ARGUMENTS
from provision.cli.session.work import exit_code
from provision.cluster import Machine
from provision.planning.supply.payload.place import payload_folder
from tests.provision.apply.fakes import FakeFleet, FakeNode, cluster_of, context, scope_of


def fleet_of(**nodes: FakeNode) -> FakeFleet:
    return FakeFleet(nodes)


@pytest.mark.parametrize(
    ("node", "tell_changes", "code"),
    [
        pytest.param(FakeNode(["driver", "runtime"]), False, 0, id="as declared"),
        pytest.param(FakeNode(["driver", "runtime"]), True, 0, id="as declared, asked for changes"),
        pytest.param(FakeNode(), False, 0, id="changes"),
        pytest.param(FakeNode(), True, 3, id="changes, asked for them"),
        pytest.param(FakeNode(["curse"]), True, 1, id="problems"),
        pytest.param(FakeNode(reachable=False), True, 1, id="unreachable"),
    ],
)
def test_exit_code_of_plan(node: FakeNode, code: int, *, tell_changes: bool) -> None:
    fleet = fleet_of(n1=node)
    assert show_plans(context(fleet), scope_of(cluster_of(fleet)), as_json=False, tell_changes=tell_changes) == code
    assert fleet.applied() == []


def test_what_machines_say_of_themselves_is_kept_beside_where_they_are_reached() -> None:
    fleet = fleet_of(n1=FakeNode(), n2=FakeNode(reachable=False))
    scope = scope_of(cluster_of(fleet))
    scope.machines["n1"] = Machine(addresses=frozenset({"10.0.0.1"}))

    show_plans(context(fleet), scope, as_json=True, tell_changes=False)

    assert scope.machines == {"n1": Machine(addresses=frozenset({"10.0.0.1"}), hostname="n1", machine_id="m")}


def test_json_of_plan_is_all_that_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    fleet = fleet_of(n2=FakeNode(), n1=FakeNode(reachable=False))
    show_plans(context(fleet), scope_of(cluster_of(fleet)), as_json=True, tell_changes=False)
    document = json.loads(capsys.readouterr().out)
    assert [plan["node"] for plan in document["plans"]] == ["n2"]
    assert [failure["node"] for failure in document["failures"]] == ["n1"]


def test_apply_shows_plans_and_results(capsys: pytest.CaptureFixture[str]) -> None:
    fleet = fleet_of(n1=FakeNode(), n2=FakeNode(["driver", "runtime"]), n3=FakeNode(broken="driver"))
    assert apply_nodes(context(fleet), scope_of(cluster_of(fleet)), parallel=1, consent=True) == 1
    output = capsys.readouterr().out
    assert "3 nodes: 2 to change (4 changes), 1 as declared" in output
    assert "driver: install driver … changed" in output
    assert "3 nodes: 1 unchanged, 1 converged, 1 failed" in output
    assert "E: broken" in output


def test_apply_with_nothing_to_do_is_short(capsys: pytest.CaptureFixture[str]) -> None:
    fleet = fleet_of(n1=FakeNode(["driver", "runtime"]))
    assert apply_nodes(context(fleet), scope_of(cluster_of(fleet)), parallel=1, consent=False) == 0
    assert "as declared" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "code", "applied"),
    [
        pytest.param("y\n", 0, ["n1"], id="yes"),
        pytest.param("\n", 1, [], id="no by default"),
        pytest.param("", 1, [], id="end of input"),
    ],
)
def test_apply_asks(
    answer: str, code: int, applied: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "answer").write_text(answer)
    fleet = fleet_of(n1=FakeNode(["driver"]))
    with (tmp_path / "answer").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert apply_nodes(context(fleet), scope_of(cluster_of(fleet)), parallel=1, consent=False) == code
    assert fleet.applied() == applied


def arguments(verb: str, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    ARGUMENTS[verb](parser)
    return parser.parse_args(list(words))


def test_apply_without_a_terminal_needs_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/null").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        with pytest.raises(UsageError, match="standard input is not a terminal"):
            apply_verb.run(arguments("apply"))


@pytest.mark.parametrize("number", ["0", "-1", "x"])
def test_parallel_is_a_number_above_zero(number: str) -> None:
    with pytest.raises(SystemExit):
        arguments("apply", f"--parallel={number}")


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        pytest.param([Status.CONVERGED, Status.UNCHANGED], 0, id="good"),
        pytest.param([Status.CONVERGED, Status.UNFINISHED], 1, id="not finished"),
        pytest.param([Status.REFUSED, Status.UNCHANGED], 1, id="refused"),
        pytest.param([Status.CANCELED, Status.FAILED], 130, id="interrupted"),
    ],
)
def test_exit_code_of_apply(statuses: list[Status], code: int) -> None:
    assert exit_code([NodeResult("n1", status) for status in statuses]) == code


def test_payload_is_looked_for_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declaration = tmp_path / "grapnel.yaml"
    asked, named = tmp_path / "asked", str(tmp_path / "named")
    assert payload_folder(asked, {"GRAPNEL_PAYLOAD": named}, declaration) == asked
    assert payload_folder(None, {"GRAPNEL_PAYLOAD": named}, declaration) == Path(named)
    assert payload_folder(None, {"XDG_CACHE_HOME": str(tmp_path)}, declaration) == tmp_path / "grapnel" / "payload"
    own = tmp_path / "site-packages" / "provision" / "_payload" / "archives"
    own.mkdir(parents=True)
    monkeypatch.setattr("provision.__file__", str(own.parents[1] / "__init__.py"))
    assert payload_folder(None, {}, declaration) == own
    (tmp_path / "dist" / "payload").mkdir(parents=True)
    assert payload_folder(None, {}, declaration) == tmp_path / "dist" / "payload"


def test_options_of_plan() -> None:
    args = arguments("plan", "--json", "--exit-code", "--payload", "p")
    assert (args.json, args.exit_code, args.payload) == (True, True, Path("p"))
