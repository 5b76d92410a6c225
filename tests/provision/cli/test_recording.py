"""A run of `apply` as it is written down, reported and printed as JSON."""

from __future__ import annotations

import json
import shutil
import stat
from typing import TYPE_CHECKING

import jsonschema
import pytest

from provision.base.errors import GrapnelError
from provision.cli import main
from provision.cli.change.apply import apply_nodes
from provision.cli.session.recording import Run, recorded
from provision.declaration.fleet.model import Fleet
from provision.declaration.spec.model import GpuStack, StackSpec
from tests.provision.apply.fakes import FakeFleet, FakeNode, cluster_of, context, scope_of
from tests.provision.apply.test_verbs import arguments
from tests.provision.contracts.schemas import render_schema

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


STACK = GpuStack(api_version="grapnel.dev/v1alpha1", kind="GpuStack", spec=StackSpec())
NOBODY = Fleet(STACK, (), ())


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("sys.argv", ["grapnel", "--debug", "apply", "n*", "--json", "--yes"])
    return tmp_path / "state/grapnel/runs"


def work(*, consent: bool = True, **nodes: FakeNode) -> Callable[[Run], int]:
    fleet = FakeFleet(nodes)
    scope = scope_of(cluster_of(fleet))
    return lambda run: apply_nodes(context(fleet), scope, parallel=1, consent=consent, record=run)


def do(work: Callable[[Run], int], *words: str) -> int:
    return recorded(arguments("apply", *words), NOBODY, "apply", work)


def only(state: Path) -> Path:
    (found,) = state.glob("*/2*-apply-*")
    return found


def test_json_of_apply_is_all_that_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert do(work(n1=FakeNode(), n2=FakeNode(broken="driver"), n3=FakeNode(["driver", "runtime"])), "--json") == 1

    told = capsys.readouterr()
    document = json.loads(told.out)
    jsonschema.validate(document, render_schema("run-report"))
    assert (document["state"], document["exitCode"]) == ("failed", 1)
    assert document["command"] == "grapnel apply 'n*'"
    assert document["counts"] == {"failed": 1, "converged": 1, "unchanged": 1}
    assert [one["nodes"] for one in document["troubles"]] == [["n2"]]
    assert document["troubles"][0]["message"] == "cannot install driver"
    assert "3 nodes: 1 unchanged, 1 converged, 1 failed" in told.err


def test_a_failed_run_says_where_it_is_written_down(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    do(work(n1=FakeNode(broken="driver")))
    folder = only(state)

    assert f"what happened: `grapnel report {folder.name}`; log: {folder}/log" in capsys.readouterr().err
    log = (folder / "log").read_text()
    assert "n1  driver: install driver … failed: cannot install driver" in log
    assert "1 node: 1 failed" in log
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "log", folder / "events.jsonl")}
    assert modes == {folder.name: 0o700, "log": 0o600, "events.jsonl": 0o600}


def test_a_good_run_says_nothing_about_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert do(work(n1=FakeNode())) == 0
    assert "what happened" not in capsys.readouterr().err


def test_the_last_run_is_reported(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    do(work(n1=FakeNode(broken="driver")))
    capsys.readouterr()

    assert main(["report"]) == 0
    page = only(state) / "report.html"
    assert capsys.readouterr().out.strip() == str(page)
    assert "1 of 1 node needs somebody" in page.read_text()
    assert stat.S_IMODE(page.stat().st_mode) == 0o600

    assert main(["report", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"] == only(state).name
    assert main(["report", "--output", "-"]) == 0
    assert capsys.readouterr().out == page.read_text()
    assert main(["report", "--list"]) == 0
    assert f"{only(state).name}  failed" in capsys.readouterr().out


def test_a_run_that_is_not_there_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report"]) == 1
    assert "no run is recorded in" in capsys.readouterr().err


def test_what_ends_a_whole_run_is_in_its_report(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(_run: Run) -> int:
        raise GrapnelError("the cluster does not answer", hint="look at its API server")

    with pytest.raises(GrapnelError):
        do(broken, "--json")

    told = capsys.readouterr()
    assert json.loads(told.out)["error"] == "the cluster does not answer"
    assert "what happened: `grapnel report " in told.err
    last = json.loads((only(state) / "events.jsonl").read_text().splitlines()[-1])
    assert (last["exit_code"], last["error"], last["hint"]) == (
        *(1, "the cluster does not answer"),
        "look at its API server",
    )


def test_nobody_consented(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "answer").write_text("n\n")
    with (tmp_path / "answer").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert do(work(consent=False, n1=FakeNode())) == 1

    assert json.loads((only(state) / "events.jsonl").read_text().splitlines()[-1])["declined"] is True


def test_a_state_folder_that_cannot_be_made_keeps_nobody_from_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state").write_text("a file")

    assert do(work(n1=FakeNode()), "--json") == 0
    told = capsys.readouterr()
    assert "this run is not written down: not a directory" in told.err
    assert json.loads(told.out)["counts"] == {"converged": 1}


def test_a_folder_that_somebody_removes_meanwhile_is_no_failure(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at_work = work(n1=FakeNode())

    def and_remove(run: Run) -> int:
        shutil.rmtree(only(state))
        return at_work(run)

    assert do(and_remove, "--json") == 0
    assert json.loads(capsys.readouterr().out)["counts"] == {"converged": 1}


def test_runs_are_kept_by_number(state: Path) -> None:
    for _ in range(4):
        do(work(n1=FakeNode(["driver", "runtime"])), "--keep-runs", "2")
    assert len(list(state.glob("*/2*"))) == 2


def test_artifacts_are_kept_with_the_run_unless_a_person_has_a_place_for_them(state: Path, tmp_path: Path) -> None:
    args = arguments("apply", "--keep-artifacts", str(tmp_path / "mine"))
    recorded(args, NOBODY, "apply", lambda _run: 0)
    assert args.keep_artifacts == tmp_path / "mine"

    args = arguments("apply")
    recorded(args, NOBODY, "apply", lambda _run: 0)
    assert args.keep_artifacts.name == "artifacts"
    assert args.keep_artifacts.parent in state.glob("*/2*")


def test_how_long_steps_took_is_known_to_the_next_run() -> None:
    do(work(n1=FakeNode()))
    seen: dict[str, float] = {}

    def look(run: Run) -> int:
        seen.update(run.durations)
        return 0

    do(look)
    assert "driver: install driver" in seen
