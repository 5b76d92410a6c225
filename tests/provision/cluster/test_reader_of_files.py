"""Machines without a cluster are read from files."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from provision.cluster.local.cluster import LocalCluster
from provision.cluster.local.state_file import lock_path, progress_path
from provision.cluster.reader import StateFileReader
from provision.rollout.errors import HeldError
from tests.provision.cluster.samples import NOW, RECORD
from tests.provision.cluster.test_progress import STANDING
from tests.provision.cluster.test_reader import view

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def state_file(tmp_path: Path) -> Path:
    return tmp_path / "grapnel" / "node-state-1.json"


def test_machines_without_a_cluster_are_read_from_files(state_file: Path) -> None:
    cluster = LocalCluster(state_file)
    looking = StateFileReader(state_file, ["n1", "n2"], clock=lambda: NOW)
    assert (looking.look().tenant, looking.look().standing) == (None, None)

    with cluster.lease("ada@laptop/1"):
        cluster.observe(["n1"])
        cluster.write("n1", RECORD, cordoned=True)
        cluster.publish(STANDING)
        seen = looking.look()

    assert view(seen, "n1").record == RECORD
    assert view(seen, "n2").record is None
    assert seen.standing == STANDING
    assert seen.tenant is not None
    assert (seen.tenant.holder, seen.tenant.is_at_work) == ("ada@laptop/1", True)
    after = looking.look()
    assert (after.tenant, after.standing) == (None, STANDING), "what was said last stays"


def test_looking_at_the_lock_keeps_no_engine_out(state_file: Path) -> None:
    cluster = LocalCluster(state_file)
    with cluster.lease("ada"):
        pass
    StateFileReader(state_file, []).look()
    with (
        cluster.lease("ada"),
        pytest.raises(HeldError, match="ada is changing nodes"),
        LocalCluster(state_file).lease("bob"),
    ):
        pass


def test_a_new_run_forgets_what_the_former_said(state_file: Path) -> None:
    cluster = LocalCluster(state_file)
    with cluster.lease("ada"):
        cluster.publish(STANDING)
    with cluster.lease("ada"):
        assert StateFileReader(state_file, []).look().standing is None


def test_reasons_that_change_often_are_written_now_and_then_and_at_the_end(state_file: Path) -> None:
    now = [100.0]
    cluster = LocalCluster(state_file, clock=lambda: now[0])
    looking = StateFileReader(state_file, [])
    with cluster.lease("ada"):
        for number in range(5):
            cluster.publish(replace(STANDING, stop=f"stop {number}"))
        first = looking.look().standing
        now[0] += 1
        cluster.publish(replace(STANDING, stop="stop 4"))
        second = looking.look().standing
        cluster.publish(replace(STANDING, stop="the end"))
    last = looking.look().standing

    assert [each.stop if each else None for each in (first, second, last)] == ["stop 0", "stop 4", "the end"]


def test_a_disk_that_is_full_does_not_end_the_rollout(state_file: Path) -> None:
    cluster = LocalCluster(state_file)
    with cluster.lease("ada"):
        progress_path(state_file).mkdir()
        cluster.publish(STANDING)
        (complaint,) = StateFileReader(state_file, []).look().complaints

    assert complaint.startswith(f"why nodes wait is not known: {progress_path(state_file)} cannot be read")
    assert lock_path(state_file).exists()
