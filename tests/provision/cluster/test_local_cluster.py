"""Node state in a state_file: nothing is lost, and nothing that cannot be read is overwritten."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from provision.cluster import LocalCluster, state_file_path
from provision.cluster.errors import StateFileError
from provision.cluster.local.state_file import read_state
from provision.rollout.errors import ConflictError, HeldError
from provision.rollout.interface.cluster import Cluster, Eviction, EvictionOutcome
from provision.rollout.model import GpuPod, NodeView, Phase
from tests.provision.cluster.samples import RECORD

ROOT = Path(__file__).parents[3]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "state_file.json"


@pytest.fixture
def cluster(path: Path) -> Cluster:
    return LocalCluster(path)


def test_nothing_is_remembered_at_first(cluster: Cluster, path: Path) -> None:
    assert cluster.observe(["n1"]) == {"n1": NodeView(name="n1", record=None, is_cordoned=False, is_ready=True)}
    assert not path.exists()


def test_what_is_written_is_there_for_the_next_process(cluster: Cluster, path: Path) -> None:
    cluster.observe(["n1", "n2"])
    cluster.write("n1", RECORD, cordoned=True)
    cluster.write("n2", replace(RECORD, phase=Phase.DONE))

    assert LocalCluster(path).observe(["n1", "n2", "n3"]) == {
        "n1": NodeView(name="n1", record=RECORD, is_cordoned=True, is_ready=True),
        "n2": NodeView(name="n2", record=replace(RECORD, phase=Phase.DONE), is_cordoned=False, is_ready=True),
        "n3": NodeView(name="n3", record=None, is_cordoned=False, is_ready=True),
    }
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(each.name for each in path.parent.iterdir()) == ["state_file.edit", "state_file.json"]


def test_a_cordon_stays_until_it_is_taken_away(cluster: Cluster) -> None:
    cluster.observe(["n1"])
    cluster.write("n1", RECORD, cordoned=True)
    cluster.write("n1", replace(RECORD, phase=Phase.SWAP))
    assert cluster.observe(["n1"])["n1"] == NodeView(
        name="n1", record=replace(RECORD, phase=Phase.SWAP), is_cordoned=True, is_ready=True
    )

    cluster.write("n1", None, cordoned=False)

    assert cluster.observe(["n1"])["n1"] == NodeView(name="n1", record=None, is_cordoned=False, is_ready=True)


def test_the_state_file_is_what_the_contract_says(cluster: Cluster, path: Path) -> None:
    cluster.observe(["n1"])
    cluster.write("n1", RECORD, cordoned=True)

    assert json.loads(path.read_text()) == {
        "schema": "grapnel.dev/state-file/v1alpha1",
        "nodes": {
            "n1": {
                "record": {
                    "schema": "grapnel.dev/node-state/v1alpha1",
                    "phase": "drain",
                    "target": "535.309.01",
                    "origin": "535.261.03",
                    "began": "2026-11-21T09:30:00Z",
                    "since": "2026-11-21T09:30:00Z",
                },
                "cordoned": True,
            }
        },
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("", "input data was truncated", id="empty"),
        pytest.param('{"schema": "grapnel.dev/state-file/v1alpha1", "nod', "input data was truncated", id="cut off"),
        pytest.param("[]", "expected `object`, got `array`", id="a list"),
        pytest.param('{"nodes": {}}', "object missing required field `schema`", id="without schema"),
        pytest.param(
            '{"schema": "grapnel.dev/state-file/v2", "nodes": {}}',
            "invalid enum value 'grapnel.dev/state-file/v2' - at `$.schema`",
            id="of the future",
        ),
        pytest.param(
            '{"schema": "grapnel.dev/state-file/v1alpha1", "nodes": {"n1": {"record": {"phase": "x"}}}}',
            "invalid enum value 'x' - at `$.nodes[...].record.phase`",
            id="a broken record",
        ),
    ],
)
def test_a_state_file_that_cannot_be_read_is_told_and_kept(
    cluster: Cluster, path: Path, text: str, reason: str
) -> None:
    cluster.observe(["n1"])
    path.parent.mkdir()
    path.write_text(text)

    for attempt in (lambda: cluster.observe(["n1"]), lambda: cluster.write("n1", RECORD)):
        with pytest.raises(StateFileError) as raised:
            attempt()
        assert raised.value.message == f"state file {path} cannot be read: {reason}"
        assert "move the file away" in raised.value.hint

    assert path.read_text() == text


def test_a_folder_in_its_place_is_told(cluster: Cluster, path: Path) -> None:
    path.mkdir(parents=True)

    with pytest.raises(StateFileError, match="cannot be read: Is a directory"):
        cluster.observe(["n1"])


def test_a_state_folder_that_is_a_file_is_told(cluster: Cluster, path: Path) -> None:
    cluster.observe(["n1"])
    path.parent.write_text("")

    with pytest.raises(StateFileError):
        cluster.write("n1", RECORD)


def test_of_two_writers_the_second_is_told(cluster: Cluster, path: Path) -> None:
    other = LocalCluster(path)
    cluster.observe(["n1"])
    other.observe(["n1"])
    other.write("n1", RECORD)

    with pytest.raises(ConflictError, match="n1 was changed in state file"):
        cluster.write("n1", RECORD, cordoned=True)

    other.observe(["n2"])
    other.write("n2", RECORD)  # another node is no conflict


@pytest.mark.slow
def test_a_writer_that_is_killed_leaves_a_whole_state_file(path: Path) -> None:
    writes = f"""
from pathlib import Path
from provision.cluster import LocalCluster
from tests.provision.cluster.samples import RECORD
cluster = LocalCluster(Path({str(path)!r}))
cluster.observe([f"n{{i}}" for i in range(200)])
print("writes", flush=True)
while True:
    for i in range(200):
        cluster.write(f"n{{i}}", RECORD, cordoned=True)
"""
    with subprocess.Popen(
        [sys.executable, "-P", "-c", writes], env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        while not path.exists():
            assert writer.poll() is None
        writer.send_signal(signal.SIGKILL)

    assert LocalCluster(path).observe(["n0"])["n0"] == NodeView(
        name="n0", record=RECORD, is_cordoned=True, is_ready=True
    )


def test_one_engine_at_a_time(cluster: Cluster, path: Path) -> None:
    with (
        cluster.lease("ada@laptop"),
        pytest.raises(HeldError, match="ada@laptop is changing nodes of state file"),
        LocalCluster(path).lease("bob"),
    ):
        pytest.fail("two engines hold it")

    with LocalCluster(path).lease("bob"):
        pass


def test_there_are_no_pods_and_no_runtime_classes(cluster: Cluster) -> None:
    pod = GpuPod(namespace="a", name="b", uid="c", is_terminating=False, is_mirror_or_daemon=False)

    assert cluster.evict(pod) == Eviction(outcome=EvictionOutcome.GONE)
    assert not cluster.ensure_runtime_class("nvidia", "nvidia")


def test_the_state_file_lies_in_the_users_state_folder(tmp_path: Path) -> None:
    assert state_file_path("k", {"HOME": "/home/ada"}) == Path("/home/ada/.local/state/grapnel/node-state-k.json")
    assert state_file_path("k", {"XDG_STATE_HOME": str(tmp_path)}) == tmp_path / "grapnel" / "node-state-k.json"


def test_a_state_file_of_the_former_name_is_read_and_replaced(tmp_path: Path) -> None:
    path, former = tmp_path / "node-state-k.json", tmp_path / "journal-k.json"
    former.write_text('{"schema": "grapnel.dev/journal/v1alpha1", "nodes": {"n1": {"cordoned": true}}}')
    cluster = LocalCluster(path)
    assert cluster.observe(["n1"])["n1"].is_cordoned
    cluster.write("n1", None, cordoned=False)
    assert not former.exists()
    assert read_state(path).nodes == {}
