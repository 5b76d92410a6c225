"""An apply tells whoever is declared, and goes on when nobody can be told."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from provision.cli.change.apply import apply_nodes
from provision.report.notify.receivers import ReceiverError
from tests.provision.apply.fakes import FakeFleet, FakeNode, cluster_of, context, plan_drain, scope_of
from tests.provision.notify.receiver import OK, Server, status
from tests.provision.notify.test_webhook import SECRET, is_signed
from tests.provision.rollout.fakes import NEW

if TYPE_CHECKING:
    from pathlib import Path

EVENTS = ["rollout.started", "rollout.ended", "node.started", "node.done"]


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet({"n1": FakeNode(), "n2": FakeNode()})


def apply(fleet: FakeFleet, url: str, secret: Path, metrics: Path | None = None) -> int:
    receiver = {"url": url, "secretFile": str(secret), "events": EVENTS}
    scope = scope_of(cluster_of(fleet), driver={"version": NEW}, rollout={"notify": [receiver]})
    return apply_nodes(context(fleet, plan_drain), replace(scope, metrics_file=metrics), parallel=1, consent=True)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "webhook.secret"
    file.write_text(SECRET)
    return file


def test_receivers_hear_of_an_apply(fleet: FakeFleet, secret: Path) -> None:
    with Server([OK]) as server:
        assert apply(fleet, server.url, secret) == 0
        got = [server.got.get(timeout=30) for _ in range(6)]
        assert server.got.empty()

    told = [json.loads(each.body) for each in got]
    assert [(each["type"], each["data"].get("node")) for each in told] == [
        ("rollout.started", None),
        ("node.started", "n1"),
        ("node.done", "n1"),
        ("node.started", "n2"),
        ("node.done", "n2"),
        ("rollout.ended", None),
    ]
    assert told[-1]["data"]["nodes"] == {"done": 2, "failed": 0, "out": 0, "waiting": 0}
    assert all(map(is_signed, got))


def test_a_receiver_that_fails_changes_nothing_and_is_told_of(
    fleet: FakeFleet, secret: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Server([status(410)]) as server:
        assert apply(fleet, server.url, secret) == 0

    assert f"· webhook http://127.0.0.1:{server.port}: 6 of 6 notifications were not delivered: it answers 410" in (
        capsys.readouterr().err
    )


def test_a_key_that_is_missing_is_an_error_before_anything_is_changed(fleet: FakeFleet, tmp_path: Path) -> None:
    with pytest.raises(ReceiverError, match="No such file"):
        apply(fleet, "https://alerts.example/", tmp_path / "nothing")
    assert fleet.applied() == []


def test_metrics_say_how_it_ended(fleet: FakeFleet, secret: Path, tmp_path: Path) -> None:
    metrics = tmp_path / "grapnel.prom"
    with Server([OK]) as server:
        assert apply(fleet, server.url, secret, metrics) == 0

    page = metrics.read_text()
    assert 'grapnel_rollout_nodes{state="done"} 2' in page
    assert "grapnel_rollout_engine_at_work 0" in page
