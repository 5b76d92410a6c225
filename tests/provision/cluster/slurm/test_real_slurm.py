"""Rollouts over Debian's own Slurm, of Debian 12 and of Debian 13: real slurmctld, slurmd, munge and jobs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.slurm import SlurmMachine
from provision.cli import main
from provision.cluster import state_file_path
from provision.declaration.fleet.sources import inventory_key
from provision.rollout.errors import UnreachableError
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.model import NodeView, Phase
from tests.provision.cluster.slurm.fleet import Rollout, Steps, connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.cluster.schedulers.cluster import ScheduledCluster

pytestmark = [
    pytest.mark.functional,
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and overlays take root"),
]

ROOT = Path(__file__).parents[4]
# The inventory's names: of one node the NodeName, of the other the NodeHostname.
NAMES = {"gpu01": "gpu01", "n2": "gpu02"}
STEPS = [Phase.RELEASE, Phase.SWAP, Phase.VERIFY, Phase.RESUME]
UP_S = 3  # from a boot to the start of slurmd
NEVER = timedelta(days=1)  # is given up waiting for a slurmd that has yet to register
WAY = [Phase.CORDON, Phase.JOBS, Phase.DRAIN, *STEPS, Phase.DONE]


@pytest.fixture(scope="module", params=["trixie", pytest.param("bookworm", marks=pytest.mark.long)])
def machine(request: pytest.FixtureRequest) -> Iterator[SlurmMachine]:
    with SlurmMachine(request.param, {"gpu01": "n1", "gpu02": "n2"}) as running:
        yield running


@pytest.fixture
def slurm(machine: SlurmMachine) -> SlurmMachine:
    """Return the Slurm with nothing on its nodes, whatever the test before left."""
    for node in machine.nodes:
        if machine.states(node) != {"IDLE"}:
            machine.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)
        machine.wait_until(lambda node=node: machine.states(node) == {"IDLE"}, f"{node} is idle")  # type: ignore[misc]
    return machine


@pytest.fixture
def cluster(slurm: SlurmMachine, tmp_path: Path) -> ScheduledCluster:
    return connect(slurm, tmp_path / "node-state-x.json")


def view(cluster: ScheduledCluster, node: str) -> NodeView:
    found = cluster.observe([node])[node]
    assert isinstance(found, NodeView), found
    return found


def drain(slurm: SlurmMachine, node: str, reason: str) -> None:
    slurm.run("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")


def shut_down(slurm: SlurmMachine, node: str) -> None:
    """Stop its slurmd, for longer than it takes from the boot to the next: Slurm heard of it before the boot only."""
    slurm.stop_node(node)
    over = time.monotonic() + UP_S + 2
    slurm.wait_until(lambda: time.monotonic() > over, "it has been away")


def test_a_node_is_changed_when_its_job_has_ended_and_takes_jobs_again(
    slurm: SlurmMachine, cluster: ScheduledCluster
) -> None:
    job = slurm.submit("gpu01")
    rollout = Rollout(cluster, Steps(slurm, NAMES), tuple(NAMES))

    rollout.waits("gpu01", f"waits for job {job} of alice (")
    assert slurm.states("gpu01") >= {"DRAIN"}
    assert slurm.reason("gpu01").startswith("grapnel:driver-550.163.01 [root@")
    slurm.wait_until(lambda: ("n2", Phase.RESUME) in rollout.steps.done, "the node without a job is changed")
    assert not [phase for node, phase in rollout.steps.done if node == "gpu01"]
    slurm.finish(job)

    assert not rollout.end().stop
    for name, node in NAMES.items():
        assert rollout.phases(name) == WAY
        assert [phase for at, phase in rollout.steps.done if at == name] == STEPS
        slurm.wait_until(lambda node=node: slurm.states(node) == {"IDLE"}, f"{node} is idle")  # type: ignore[misc]
    job = slurm.submit("gpu01")
    slurm.finish(job)
    slurm.wait_until(lambda: not slurm.job_state(job), "the job is over")


def test_a_drain_of_an_administrator_stays(slurm: SlurmMachine, cluster: ScheduledCluster) -> None:
    drain(slurm, "gpu02", "bad fan")

    rollout = Rollout(cluster, Steps(slurm, NAMES), ("n2",))

    assert not rollout.end().stop
    assert rollout.phases("n2") == WAY
    assert slurm.states("gpu02") == {"IDLE", "DRAIN"}
    assert slurm.reason("gpu02").startswith("bad fan [root@")


def test_a_drain_that_an_administrator_adds_meanwhile_stays_too(slurm: SlurmMachine, cluster: ScheduledCluster) -> None:
    def also(_node: str, phase: Phase) -> None:
        if phase is Phase.VERIFY:
            drain(slurm, "gpu01", "bad fan")

    rollout = Rollout(cluster, Steps(slurm, NAMES, also=also), ("gpu01",))

    rollout.end()
    assert view(cluster, "gpu01").record is not None
    assert rollout.phases("gpu01") == WAY
    assert slurm.reason("gpu01").startswith("bad fan [root@")
    assert view(cluster, "gpu01").is_cordoned


def test_a_node_that_fails_stays_drained_and_slurm_says_why(slurm: SlurmMachine, cluster: ScheduledCluster) -> None:
    rollout = Rollout(cluster, Steps(slurm, NAMES, broken=(Phase.SWAP, Phase.ROLLBACK)), ("gpu01",))

    assert rollout.end().stop == "gpu01 failed in rollback"
    assert slurm.states("gpu01") == {"IDLE", "DRAIN"}
    assert slurm.reason("gpu01").startswith("grapnel:failed-in-rollback [root@")
    Rollout(cluster, Steps(slurm, NAMES), ("gpu01",)).end()
    assert "DRAIN" not in slurm.states("gpu01")


def test_a_node_that_goes_back_takes_jobs_again(slurm: SlurmMachine, cluster: ScheduledCluster) -> None:
    rollout = Rollout(cluster, Steps(slurm, NAMES, broken=(Phase.SWAP,)), ("gpu01",))

    assert rollout.end().stop
    assert rollout.phases("gpu01")[-1] is Phase.RETURNED
    slurm.wait_until(lambda: slurm.states("gpu01") == {"IDLE"}, "it takes jobs again")


def test_a_node_that_reboots_on_the_way_is_resumed(slurm: SlurmMachine, tmp_path: Path) -> None:
    """Slurm 22.05 marks it DOWN, which only a resume ends."""

    def also(_node: str, phase: Phase) -> None:
        if phase is Phase.SWAP:
            shut_down(slurm, "gpu01")
            slurm.start_node("gpu01", up_s=UP_S)

    cluster = connect(slurm, tmp_path / "node-state-x.json", registers=NEVER)
    rollout = Rollout(cluster, Steps(slurm, NAMES, also=also), ("gpu01",))

    assert not rollout.end().stop
    assert rollout.phases("gpu01") == WAY
    slurm.wait_until(lambda: slurm.states("gpu01") == {"IDLE"}, "it takes jobs again")


def test_a_node_whose_slurmd_starts_late_after_a_reboot_is_waited_for(slurm: SlurmMachine, tmp_path: Path) -> None:
    """Slurm marks a node DOWN of whose boot it hears after the resume, and keeps it so."""

    def also(_node: str, phase: Phase) -> None:
        if phase is Phase.SWAP:
            shut_down(slurm, "gpu01")

    cluster = connect(slurm, tmp_path / "node-state-x.json", registers=NEVER)
    rollout = Rollout(cluster, Steps(slurm, NAMES, also=also), ("gpu01",))
    rollout.waits("gpu01", "it may have yet to register with Slurm")
    assert "DRAIN" in slurm.states("gpu01")
    slurm.start_node("gpu01", up_s=UP_S)

    assert not rollout.end().stop
    assert rollout.phases("gpu01") == WAY
    slurm.wait_until(lambda: slurm.states("gpu01") == {"IDLE"}, "it takes jobs again")


def test_a_node_whose_slurmd_is_away_is_not_begun(slurm: SlurmMachine, cluster: ScheduledCluster) -> None:
    slurm.stop_node("gpu01")
    slurm.wait_until(lambda: "NOT_RESPONDING" in slurm.states("gpu01"), "slurmctld misses it")

    rollout = Rollout(cluster, Steps(slurm, NAMES), ("gpu01",))
    rollout.waits("gpu01", "gpu01 is not ready: slurmd does not answer")
    assert not rollout.phases("gpu01")
    slurm.start_node("gpu01")

    assert not rollout.end().stop
    assert rollout.phases("gpu01") == WAY


def test_a_rollout_goes_on_when_slurmctld_is_back(slurm: SlurmMachine, cluster: ScheduledCluster) -> None:
    job = slurm.submit("gpu01")
    rollout = Rollout(cluster, Steps(slurm, NAMES), ("gpu01",))
    rollout.waits("gpu01", f"job {job} of alice")
    slurm.stop_controller()
    rollout.notes("Unable to contact slurm controller")
    with pytest.raises(UnreachableError, match=r"scontrol of Slurm by --wd: exit code 1: .*Unable to contact"):
        cluster.observe(["gpu01"])
    slurm.start_controller()
    slurm.finish(job)

    assert not rollout.end().stop
    assert rollout.phases("gpu01") == WAY
    assert "DRAIN" not in slurm.states("gpu01")


def test_a_killed_engine_leaves_what_the_next_one_finishes(
    slurm: SlurmMachine, cluster: ScheduledCluster, tmp_path: Path
) -> None:
    job = slurm.submit("gpu01")
    command = [sys.executable, "-P", str(Path(__file__).with_name("killed_engine.py"))]
    arguments = [str(tmp_path / "node-state-x.json"), "gpu01", *slurm.prefix]
    with subprocess.Popen(
        [*command, *arguments], env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "gpu01 waits\n"
        process.send_signal(signal.SIGKILL)
    assert "DRAIN" in slurm.states("gpu01")
    seen = view(cluster, "gpu01")
    assert seen.record is not None
    assert (seen.record.phase, seen.record.was_cordoned, seen.is_cordoned) == (Phase.JOBS, False, True)
    assert [each.user for each in seen.work] == ["alice"]
    slurm.finish(job)

    rollout = Rollout(cluster, Steps(slurm, NAMES), ("gpu01",))

    assert not rollout.end().stop
    assert rollout.phases("gpu01") == WAY[2:]
    assert "DRAIN" not in slurm.states("gpu01")


def test_a_drain_by_grapnel_of_another_machine_is_left_alone(
    slurm: SlurmMachine, cluster: ScheduledCluster, tmp_path: Path
) -> None:
    rollout = Rollout(cluster, Steps(slurm, NAMES, broken=(Phase.SWAP, Phase.ROLLBACK)), ("gpu01",))
    rollout.end()

    seen = connect(slurm, tmp_path / "node-state-of-another.json").observe(["gpu01"])["gpu01"]

    assert isinstance(seen, NodeProblem)
    assert "has it drained by grapnel, unknown to state file" in seen.message


def test_another_maintenance_holds_its_nodes_and_the_declared_one_does_not(
    slurm: SlurmMachine, cluster: ScheduledCluster, tmp_path: Path
) -> None:
    reservation = ("reservationname=fans", "starttime=now", "duration=60", "user=root", "flags=maint,ignore_jobs")
    slurm.run("scontrol", "create", "reservation", *reservation, "nodes=gpu01")
    slurm.wait_until(lambda: "MAINTENANCE" in slurm.states("gpu01"), "the maintenance is on")
    try:
        assert view(cluster, "gpu01").held_by.startswith("it is reserved for maintenance (fans) until 20")
        assert not view(cluster, "n2").held_by
        assert not view(connect(slurm, tmp_path / "x.json", reservation="fans"), "gpu01").held_by
    finally:
        slurm.run("scontrol", "delete", "reservationname=fans")
        slurm.wait_until(lambda: "MAINTENANCE" not in slurm.states("gpu01"), "the maintenance is over")


def test_a_machine_that_slurm_does_not_know_is_told_of(cluster: ScheduledCluster) -> None:
    seen = cluster.observe(["gpu09", "gpu01"])

    assert isinstance(seen["gpu09"], NodeProblem)
    assert "has no node of that name or address" in seen["gpu09"].message
    assert isinstance(seen["gpu01"], NodeView)


def test_what_has_not_changed_is_the_same_object(cluster: ScheduledCluster) -> None:
    assert view(cluster, "gpu01") is view(cluster, "gpu01")


def test_status_shows_a_fleet_as_its_declaration_says(
    slurm: SlurmMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The same commands as an operator's: declaration, inventory, state file, scontrol."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    declaration = {
        "apiVersion": "grapnel.dev/v1alpha1",
        "kind": "GpuStack",
        "spec": {
            "driver": {"version": "550.163.01"},
            "runtime": {"enabled": False},
            "plugin": {"enabled": False},
            "scheduler": {"kind": "slurm", "slurm": {"command": list(slurm.prefix)}},
        },
    }
    (tmp_path / "grapnel.yaml").write_text(json.dumps(declaration))
    (tmp_path / "inventory.yaml").write_text("all: {hosts: {gpu01: {}, n2: {}, gpu09: {}}}")
    state_file = state_file_path(inventory_key(("inventory.yaml",), tmp_path), os.environ)
    drain(slurm, "gpu02", "bad fan")
    Rollout(connect(slurm, state_file), Steps(slurm, NAMES, broken=(Phase.SWAP, Phase.ROLLBACK)), ("gpu01",)).end()

    assert main(["status", "--json"]) == 1

    shown = json.loads(capfd.readouterr().out)
    nodes = {node["name"]: node for node in shown["nodes"]}
    assert nodes["gpu01"]["reason"].startswith("swap failed: swap is broken")
    assert "has no node of that name or address" in nodes["gpu09"]["reason"]
    assert set(nodes) == {"gpu01", "n2", "gpu09"}
    slurm.stop_controller()
    try:
        main(["status"])
        assert "nodes are shown as the state file has them" in " ".join(capfd.readouterr().out.split())
    finally:
        slurm.start_controller()
