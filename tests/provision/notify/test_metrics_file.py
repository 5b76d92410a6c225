"""A file of metrics follows a rollout, whole at every moment, and says at the end that nobody is at work."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from provision.base.errors import GrapnelError
from provision.report.notify.metrics_file import MetricsFile
from provision.rollout.model import Phase
from tests.provision.rollout.fakes import record, state, view
from tests.provision.rollout.status.test_derive import standing

if TYPE_CHECKING:
    from pathlib import Path

NODES = [state("n1", view("n1", record(Phase.SWAP))), state("n2")]
WORKING = 'grapnel_rollout_nodes{state="swap"} 1'


def wait_for(path: Path, words: str) -> None:
    deadline = time.monotonic() + 60
    while words not in path.read_text():
        assert time.monotonic() < deadline, path.read_text()
        time.sleep(0.01)


def test_what_the_engine_says_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "grapnel.prom"
    metrics = MetricsFile(path, place="cluster test", holder="ada", write_s=0.02)
    assert path.read_text() == ""
    metrics.see(standing(out=("n1",), n2="waits for n1: swap"), NODES)
    wait_for(path, WORKING)
    assert "grapnel_rollout_engine_at_work 1" in path.read_text()
    assert 'grapnel_rollout_waiting_nodes{reason="turn"} 1' in path.read_text()

    assert metrics.close() == ""
    assert "grapnel_rollout_engine_at_work 0" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o644
    assert [each.name for each in tmp_path.iterdir()] == ["grapnel.prom"]


def test_a_disk_that_is_full_for_a_while_is_told_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = MetricsFile(tmp_path / "grapnel.prom", place="cluster test", holder="ada", write_s=60)
    metrics.see(standing(), NODES)

    def full(*_arguments: object, **_more: object) -> tuple[int, str]:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("tempfile.mkstemp", full)

    assert metrics.close() == f"--metrics-file {tmp_path}/grapnel.prom: No space left on device"


@pytest.mark.parametrize(
    ("name", "message"), [("a.txt", "does not end with .prom"), ("nowhere/a.prom", "No such file")]
)
def test_a_file_that_nobody_would_read_is_refused(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(GrapnelError, match=message):
        MetricsFile(tmp_path / name, place="", holder="")
