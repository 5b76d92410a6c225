"""`pause` and `resume`, and what an apply says that meets a pause."""

from __future__ import annotations

import getpass
import json
import socket
from typing import TYPE_CHECKING

import pytest

from provision.base.errors import GrapnelError
from provision.cli import main
from provision.cli.change.apply import apply_nodes
from provision.cluster import LocalCluster, state_file_path
from provision.declaration.fleet.sources import inventory_key
from provision.rollout.interface.pause import Pause
from provision.rollout.model import Phase
from tests.provision.apply.fakes import FakeFleet, FakeNode, cluster_of, context, plan_drain, scope_of
from tests.provision.rollout.fakes import NEW, NOON, record

if TYPE_CHECKING:
    from pathlib import Path

    from tests.provision.rollout.fakes import FakeCluster

PAUSE = Pause(by="ada@laptop", since=NOON, reason="disk alarms")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_STATE_HOME", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("USER", getpass.getuser())
    (tmp_path / "inventory.yaml").write_text("all: {hosts: {n1: {}, n2: {}}}\n")
    return tmp_path


def cluster_at(home: Path) -> LocalCluster:
    key = inventory_key([str(home / "inventory.yaml")], home)
    return LocalCluster(state_file_path(key, {"HOME": str(home)}))


def test_who_pauses_and_resumes_is_told_what_that_means(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    who = f"{getpass.getuser()}@{socket.gethostname()}"

    assert main(["pause", "--reason", "  disk\n alarms "]) == 0
    paused = cluster_at(home).paused()
    assert paused is not None
    assert (paused.by, paused.reason) == (who, "disk alarms")
    output = capsys.readouterr().out
    assert f"are paused by {who} since {paused.since:%Y-%m-%d %H:%M:%S} UTC: disk alarms\n" in output
    assert "goes on after `grapnel resume`" in output

    assert main(["pause"]) == 0
    assert f"that replaces the pause by {who}" in capsys.readouterr().out

    assert main(["resume", "-i", "inventory.yaml"]) == 0
    assert f"go on; they were paused by {who}" in capsys.readouterr().out
    assert cluster_at(home).paused() is None

    assert main(["resume"]) == 0
    assert "are not paused" in capsys.readouterr().out


def test_a_reason_that_nobody_would_read_is_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pause", "--reason", "x" * 500]) == 2
    assert "it has 500 characters, and 400 may be" in capsys.readouterr().err
    assert cluster_at(home).paused() is None


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet({"n1": FakeNode(), "n2": FakeNode(["driver"]), "n3": FakeNode()})


def apply(fleet: FakeFleet, cluster: FakeCluster, *, check: bool = False) -> int:
    scope = scope_of(cluster, driver={"version": NEW})
    return apply_nodes(context(fleet, plan_drain, check=check), scope, parallel=2, consent=True)


def test_an_apply_that_meets_a_pause_is_refused_before_anything_is_done(fleet: FakeFleet) -> None:
    cluster = cluster_of(fleet)
    cluster.pause = PAUSE

    with pytest.raises(GrapnelError) as raised:
        apply(fleet, cluster)

    assert raised.value.message == "upgrades are paused by ada@laptop since 2026-05-04 12:00:00 UTC: disk alarms"
    assert raised.value.hint.startswith("`grapnel resume` ends it")
    assert (fleet.requests, cluster.writes) == ([], [])


def test_it_finishes_what_is_out_of_service_and_nothing_else(
    fleet: FakeFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = cluster_of(fleet)
    cluster.pause = PAUSE
    cluster.nodes["n3"].record = record(Phase.SWAP)
    cluster.nodes["n3"].is_cordoned = True

    assert apply(fleet, cluster) == 1

    captured = capsys.readouterr()
    assert f"upgrades are paused {PAUSE}; what was begun on n3 is finished, and nothing else is changed" in captured.err
    assert {node for node, _, _ in cluster.writes} == {"n3"}
    assert not cluster.nodes["n3"].is_cordoned
    assert fleet.applied() == ["n3"]
    assert "3 nodes: 1 unchanged, 1 converged, 1 waiting" in captured.out
    assert "n1: paused by ada@laptop" in captured.out


def test_check_mode_asks_nobody(fleet: FakeFleet) -> None:
    cluster = cluster_of(fleet)
    cluster.pause = PAUSE

    assert apply(fleet, cluster, check=True) == 0


def test_status_shows_it_on_top_and_in_json(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "grapnel.yaml").write_text(
        "apiVersion: grapnel.dev/v1alpha1\nkind: GpuStack\nmetadata: {name: a}\nspec: {driver: {version: 535.309.01}}\n"
    )
    main(["pause", "--reason", "disk alarms"])
    paused = cluster_at(home).paused()
    assert paused is not None
    assert paused.since is not None
    capsys.readouterr()

    assert main(["status"]) == 0, "no node waits for it"
    output = "".join(capsys.readouterr().out.split())
    assert "".join(f"nobody is at work paused {paused}; `grapnel resume` ends it 2 nodes:".split()) in output
    assert main(["status", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["pause"]
    assert (told["by"], told["reason"]) == (paused.by, "disk alarms")
