"""One rollout over nodes of Kubernetes and of Slurm: a real API server, real slurmctld and slurmd, real commands.

Only what would be done on the machines is staged. Every command is a process of its own, as an operator's are.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from lab.slurm import SlurmMachine
from tests.provision.cluster.stage import wait_until
from tests.provision.staged.fleet import NEW, NO_KUBELET, OLD, PERSON, Fleet, Running
from tests.provision.staged.machines import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.provision.cluster.stage import Stage

pytestmark = [
    pytest.mark.functional,
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and overlays take root"),
]

SLURM_NODES = ("gpu01", "gpu02")
UPGRADE = "grapnel.dev/upgrade"
RESTART = """
pid=$(cat "/run/slurmd-$2.pid") && kill "$pid" && while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
hostname "$1" && exec /usr/sbin/slurmd
"""
_ADDRESSES = (f"10.77.{each // 250}.{each % 250 + 1}" for each in itertools.count())


@pytest.fixture(scope="module")
def machine() -> Iterator[SlurmMachine]:
    with SlurmMachine("bookworm", {name: f"host-{name}" for name in SLURM_NODES}) as running:
        yield running


@dataclass
class Mixed:
    """Nodes of both kinds, of which nothing is known yet."""

    fleet: Fleet
    stage: Stage
    slurm: SlurmMachine
    in_kubernetes: tuple[str, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes, in the inventory's order: the two kinds take turns."""
        return tuple(name for pair in zip(self.in_kubernetes, SLURM_NODES, strict=True) for name in pair)

    def declare(self, **rollout: object) -> None:
        """Declare the new driver; both kinds of nodes have the same rollout."""
        self.fleet.declare(NEW, rollout=rollout)

    def out(self) -> set[str]:
        """Return the nodes that are out of service, as those say who give them work."""
        cordoned = {name for name in self.in_kubernetes if self.stage.get("node", name)["spec"].get("unschedulable")}
        return cordoned | {name for name in SLURM_NODES if "DRAIN" in self.slurm.states(name)}

    def record(self, node: str) -> dict[str, Any] | None:
        """Return the record that a Node has."""
        text = self.stage.get("node", node)["metadata"].get("annotations", {}).get(UPGRADE)
        return None if text is None else json.loads(text)

    def state_file(self) -> dict[str, Any]:
        """Return what the state file has of each node."""
        found: dict[str, Any] = json.loads(self.fleet.state_file.read_text())["nodes"]
        return found


@pytest.fixture
def mixed(stage: Stage, machine: SlurmMachine, tmp_path: Path) -> Iterator[Mixed]:
    lease = ("lease", "grapnel-upgrade", "--namespace", "kube-system")
    stage.kubectl("delete", *lease, "--ignore-not-found")  # that of a killed rollout lasts for a while
    machine.run("scancel", "--user=alice")  # whatever the test before has left
    for node in SLURM_NODES:
        if machine.states(node) != {"IDLE"}:
            machine.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)
        machine.wait_until(lambda node=node: machine.states(node) == {"IDLE"}, f"{node} is idle")  # type: ignore[misc]
    fleet = Fleet(tmp_path, {"KUBECONFIG": str(stage.control_plane.kubeconfig)})
    addresses = [next(_ADDRESSES) for _ in SLURM_NODES]
    found = Mixed(fleet, stage, machine, tuple(stage.make_node(address=each) for each in addresses))
    by_name = dict(zip(found.in_kubernetes, addresses, strict=True))
    scheduler = {"kind": "slurm", "slurm": {"command": list(machine.prefix)}}
    groups = {
        "kubernetes": {"hosts": {name: {} for name in found.in_kubernetes}},
        "slurm": {
            "hosts": {name: {} for name in SLURM_NODES},
            "vars": {"grapnel_stack": {"scheduler": scheduler, **NO_KUBELET}},
        },
    }
    fleet.lay_out({name: by_name.get(name) or next(_ADDRESSES) for name in found.nodes}, groups)
    for node in SLURM_NODES:  # as an exchange of the driver does
        restart = [*machine.prefix, "unshare", "--uts", "sh", "-c", RESTART, "sh", machine.nodes[node], node]
        fleet.machines.make(node, Machine([OLD], exchange=restart))
    yield found
    fleet.call("resume")


def test_one_rollout_counts_the_nodes_of_both_and_keeps_the_order_of_waves(mixed: Mixed) -> None:
    first, second = mixed.in_kubernetes
    machines = mixed.fleet.machines
    mixed.declare(maxUnavailable=2, maxParallel=2, waves=[{"name": "canary", "hosts": [first, "gpu01"]}, {}])
    job = mixed.slurm.submit("gpu01")
    pod = mixed.stage.make_pod(first)
    machines.hold(first, "apply")
    machines.hold("gpu02", "apply")

    with mixed.fleet.running("apply", "--yes") as apply:
        apply.says(f"gpu01 waits for job {job} of alice")
        wait_until(lambda: "deletionTimestamp" in mixed.stage.get("pod", pod)["metadata"], "the pod is evicted")
        mixed.stage.kubectl("delete", "pod", pod, "--force", "--grace-period=0")
        apply.says(f"{first} swap: the driver is exchanged")
        assert mixed.out() == {first, "gpu01"}
        assert mixed.slurm.reason("gpu01").startswith(f"grapnel:driver-{NEW} [root@")
        for node in (second, "gpu02"):
            assert f"{node} waits for wave 1 of 2 (canary): " in apply.output

        mixed.slurm.finish(job)
        apply.says("gpu01 done: in service again")
        assert mixed.out() == {first}, "the canary is not over: a node of Kubernetes is still out"
        machines.let(first, "apply")
        apply.says("gpu02 swap: the driver is exchanged")
        apply.says(f"{second} done: in service again")
        machines.let("gpu02", "apply")
        output = apply.end()

    assert "4 nodes: 4 converged" in output
    assert {machines.driver(node) for node in mixed.nodes} == {NEW}
    assert mixed.out() == set()
    assert set(mixed.fleet.states().values()) == {"done"}


def test_an_outage_in_one_place_is_counted_against_the_nodes_of_the_other(mixed: Mixed) -> None:
    first, second = mixed.in_kubernetes
    mixed.declare(maxUnavailable=1)
    mixed.slurm.run("scontrol", "update", "nodename=gpu02", "state=drain", "reason=bad fan")

    with mixed.fleet.running("apply", "--yes", f"{first},{second},gpu02") as apply:
        output = apply.end(code=1)

    reason = "1 of 3 nodes may be unavailable: gpu02 is cordoned"
    assert output.count(reason) > 0, output
    assert mixed.out() == {"gpu02"}


@contextlib.contextmanager
def both_in_flight(mixed: Mixed) -> Iterator[tuple[Running, str]]:
    """Apply until a node of Kubernetes is held in its swap, and one of Slurm waits for a job, whose id is returned."""
    first = mixed.in_kubernetes[0]
    mixed.declare(maxUnavailable=2, maxParallel=2, waves=[{"hosts": [first, "gpu01"]}, {}])
    mixed.fleet.machines.hold(first, "apply")
    job = mixed.slurm.submit("gpu01")
    with mixed.fleet.running("apply", "--yes") as apply:
        apply.says(f"{first} swap: the driver is exchanged")
        apply.says(f"gpu01 waits for job {job} of alice")
        yield apply, job


@pytest.mark.long
def test_a_pause_holds_up_both_and_what_is_in_flight_in_either_ends(mixed: Mixed) -> None:
    first, second = mixed.in_kubernetes
    machines = mixed.fleet.machines

    with both_in_flight(mixed) as (apply, job):
        assert f"are paused by {PERSON}@" in mixed.fleet.call("pause", "--reason", "disk alarms")
        apply.says(f"paused by {PERSON}@")
        machines.let(first, "apply")
        mixed.slurm.finish(job)
        for node in (first, "gpu01"):
            apply.says(f"{node} done: in service again")
        apply.until(lambda: are_held(mixed, second, "gpu02"), "status has the pause as the reason of both")
        assert mixed.out() == set()
        shown = mixed.fleet.call("status", code=1)
        assert "disk alarms; `grapnel resume` ends it" in shown
        assert "go on; they were paused by" in mixed.fleet.call("resume")
        assert "4 nodes: 4 converged" in apply.end()

    assert {machines.driver(node) for node in mixed.nodes} == {NEW}


def are_held(mixed: Mixed, *nodes: str) -> bool:
    reasons = mixed.fleet.reasons()
    return all(reasons[node].startswith(f"paused by {PERSON}@") for node in nodes)


def test_a_killed_rollout_left_its_state_where_each_node_belongs_and_goes_on_from_there(mixed: Mixed) -> None:
    first, second = mixed.in_kubernetes
    machines = mixed.fleet.machines

    with both_in_flight(mixed) as (apply, job):
        apply.process.send_signal(signal.SIGKILL)
        apply.end(code=-signal.SIGKILL)

    assert mixed.out() == {first, "gpu01"}
    record = mixed.record(first)
    assert record is not None
    assert (record["phase"], record["target"], record["origin"]) == ("swap", NEW, OLD)
    assert mixed.record(second) is None
    kept = mixed.state_file()
    assert {name: each["record"]["phase"] for name, each in kept.items()} == {"gpu01": "wait-for-jobs"}
    mixed.slurm.finish(job)
    machines.let(first, "apply")

    with mixed.fleet.running("apply", "--yes") as apply:
        output = apply.end()

    assert f"{first} {OLD} → {NEW} continues from swap" in output
    assert "gpu01 cordon" not in output, "it was drained already"
    assert machines.runs(first) == ["stage", "release", "apply", "resume"]
    assert {machines.driver(node) for node in mixed.nodes} == {NEW}
    assert mixed.out() == set()
    assert set(mixed.fleet.states().values()) == {"done"}
