"""Measures how long each node is out of service while another driver is rolled out, and where the time goes.

Each round: grapnel brings the fleet to the new driver, with one GPU pod on every node; then each node goes back by
hand, alone, which is the floor; then grapnel repairs the changes made behind its back, which is not counted. The
phases come from the rollout's records; an empty Ansible run shows the minimum cost of each of its runs.
"""

from __future__ import annotations

import json
import os
import resource
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from bench.nodes.apply import PING
from bench.stage import by_hand
from bench.stage.figures import Spread
from bench.stage.pods import STAY, cpu_s
from bench.stage.runs import read_runs
from lab.cluster import ClusterError
from lab.cluster.project import DECLARATION, apply_project
from lab.machine.folders import write_atomic
from provision.apply.runner import AnsibleRunner, RunFinished, RunRequest, RunStatus
from tests.e2e.manifests import container, pod

if TYPE_CHECKING:
    from pathlib import Path

    from bench.stage.api import Client, Watch
    from bench.stage.by_hand import Swap
    from bench.stage.runs import Run
    from lab.cluster import Cluster
    from lab.nodes import Node

OLD, NEW = "535.261.03", "535.309.01"
MARK = "grapnel.dev/upgrade"  # docs/contracts/node-state
DRIVER_RUN = "var/lib/grapnel/driver/run.json"  # docs/contracts/driver-run
PHASES = ("cordon", "drain", "release", "swap", "verify", "resume")
STAGING = "stage"  # the playbook that prepares a driver while the GPUs are in service
OF_PHASE = {"release": "release", "facts": "swap", "apply": "swap", "verify": "verify", "resume": "resume"}
LONGEST = 5


@dataclass(frozen=True)
class Passage:
    """One node in one rollout: durations of its phases in seconds, and the Ansible runs meanwhile.

    ``staging`` are those before it left service; ``on_node_s`` is what the program on the node counts as out of it.
    """

    phases: dict[str, float]
    runs: tuple[Run, ...]
    staging: tuple[Run, ...]
    on_node_s: float

    @property
    def out_s(self) -> float:
        """Seconds out of service."""
        return sum(self.phases.values())

    def runs_in(self, phase: str) -> list[Run]:
        """Return the runs of a phase."""
        return [run for run in self.runs if OF_PHASE[run.playbook] == phase]


@dataclass(frozen=True)
class Measured:
    """All rounds: ``controller_cpu_s`` and ``nodes_cpu_s`` of each whole apply, ``pings`` are empty Ansible runs."""

    passages: list[Passage]
    swaps: list[Swap]
    pings: list[float]
    whole_s: list[float]
    controller_cpu_s: list[float]
    nodes_cpu_s: list[float]


def declare(folder: Path, cluster: Cluster, version: str) -> None:
    """Write a declaration with this driver."""
    write_atomic(folder / "grapnel.yaml", DECLARATION.format(name=cluster.name, driver=version))


def measure(cluster: Cluster, folder: Path, client: Client, watch: Watch, rounds: int) -> Measured:
    """Roll out the new driver and go back, this many times; the fleet has the old one before and after."""
    nodes = list(cluster.site.nodes())
    measured = Measured([], [], [], [], [], [])
    for number in range(rounds):
        before = {node.name: by_hand.installed(node) for node in nodes}
        _roll_out(cluster, folder / f"artifacts-{number}", client, watch, measured)
        for node in nodes:
            packages = by_hand.changed(before[node.name], by_hand.installed(node))
            measured.pings.append(_ping(folder, node))
            measured.swaps.append(by_hand.swap(node, packages, OLD))
        declare(folder, cluster, OLD)
        apply_project(cluster, folder, log=folder / "back.log")
    return measured


def _roll_out(cluster: Cluster, artifacts: Path, client: Client, watch: Watch, measured: Measured) -> None:
    """Make grapnel bring the fleet to the new driver; add the measurements."""
    nodes, folder = list(cluster.site.nodes()), artifacts.parent
    for node in nodes:
        client.create_pod(pod(f"work-{node.name}", container(script=STAY, gpus=1), node=node.name))
    for node in nodes:
        _wait_until_running(client, f"work-{node.name}")
        node.install_module(NEW)
    declare(folder, cluster, NEW)
    mark, nodes_before = watch.mark(), sum(map(cpu_s, nodes))
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    apply_project(cluster, folder, "--keep-artifacts", str(artifacts), log=folder / "apply.log")
    measured.whole_s.append(time.monotonic() - began)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    measured.controller_cpu_s.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    measured.nodes_cpu_s.append(sum(map(cpu_s, nodes)) - nodes_before)
    runs = read_runs(artifacts)
    for node in nodes:
        phases, own = _phases(watch, node.name, mark), [run for run in runs if run.node == node.name]
        staging = tuple(run for run in own if run.playbook == STAGING)
        swapping = tuple(run for run in own if run.playbook != STAGING)
        measured.passages.append(Passage(phases, swapping, staging, _out_of_service_s(node)))


def _out_of_service_s(node: Node) -> float:
    """Return how long the last swap took, from the first service stopped to the driver verified."""
    return float(json.loads(node.root.joinpath(DRIVER_RUN).read_text())["out_of_service_s"])


def _wait_until_running(client: Client, name: str) -> None:
    deadline = time.monotonic() + 60
    while client.call("GET", f"/api/v1/namespaces/default/pods/{name}").get("status", {}).get("phase") != "Running":
        if time.monotonic() > deadline:
            raise ClusterError(f"pod {name} is not running")
        time.sleep(0.2)


def _phases(watch: Watch, node: str, mark: int) -> dict[str, float]:
    """Return the duration of each phase of a node, from the records that the watch has shown."""
    entered: dict[str, datetime] = {}
    for seen in watch.since(mark):
        text = (seen.body["metadata"].get("annotations") or {}).get(MARK) if seen.name == node else None
        if text:
            record = json.loads(text)
            if not entered and record["phase"] != PHASES[0]:
                continue  # left from the previous round, repeated by the node's next heartbeat
            entered.setdefault(record["phase"], datetime.fromisoformat(record["since"]))
    if list(entered) != [*PHASES, "done"]:
        raise ClusterError(f"{node} did not go through the phases of an upgrade but through {', '.join(entered)}")
    return {phase: (end - entered[phase]).total_seconds() for phase, end in _followed(entered)}


def _followed(entered: dict[str, datetime]) -> list[tuple[str, datetime]]:
    return [(phase, entered[following]) for phase, following in pairwise(entered)]


def _ping(folder: Path, node: Node) -> float:
    """Return the duration of an empty Ansible run on one node, started like a step of a rollout."""
    playbook = folder / "ping.yml"
    playbook.write_text(PING)
    request = RunRequest(playbook=playbook, inventory=(str(folder / "inventory.yaml"),), nodes=(node.name,), forks=1)
    began = time.monotonic()
    *_, end = AnsibleRunner().run(request, threading.Event())
    if not (isinstance(end, RunFinished) and end.status is RunStatus.SUCCESSFUL):
        raise ClusterError(f"ansible cannot ping {node.name}")
    return time.monotonic() - began


def show(measured: Measured) -> None:
    """Print where the time goes."""
    passages, swaps = measured.passages, measured.swaps
    rounds = len(measured.whole_s)
    print(
        f"\nupgrade {OLD} -> {NEW}, one node at a time, a GPU pod on each: s, min/med/max of {len(passages)} passages"
    )
    print(f"{'':44} {'s':>21}   {'Ansible runs':>12} {'in tasks':>9} {'the rest':>9}")
    for phase in PHASES:
        _show_line(phase, [one.phases[phase] for one in passages], [one.runs_in(phase) for one in passages])
    outs = [one.out_s for one in passages]
    _show_line("out of service", outs, [list(one.runs) for one in passages])
    _show_line("  of which the swap on the node", [one.on_node_s for one in passages])
    floors = [one.packages_s + one.module_s for one in swaps]
    _show_line("floor: by hand, the same node alone", floors)
    _show_line("  apt-get install of the same packages", [one.packages_s for one in swaps])
    _show_line("  modprobe -r, modprobe", [one.module_s for one in swaps])
    _show_line("an Ansible run that does nothing", measured.pings)
    _show_line("staging before that, GPUs in service", [sum(run.in_tasks_s for run in one.staging) for one in passages])
    print(f"out of service to floor, medians: {median(outs) / median(floors):.2f}")
    print(
        f"whole apply {median(measured.whole_s):.0f} s; CPU: controller {median(measured.controller_cpu_s):.1f} s, "
        f"nodes {median(measured.nodes_cpu_s):.1f} s (medians of {rounds}); load now {os.getloadavg()[0]:.1f}"
    )
    tasks: dict[str, list[float]] = defaultdict(list)
    for task in (task for one in passages for run in one.runs for task in run.tasks):
        tasks[task.name].append(task.took_s)
    longest = sorted(tasks, key=lambda name: -sum(tasks[name]))[:LONGEST]
    print("tasks, s per node: " + "; ".join(f"{name} {sum(tasks[name]) / len(passages):.1f}" for name in longest))


def _show_line(title: str, seconds: list[float], runs: list[list[Run]] | None = None) -> None:
    spread = Spread.of(seconds)
    line = f"  {title:42} {spread.show(1):>21}"
    if runs:
        in_tasks = median(sum(run.in_tasks_s for run in each) for each in runs)
        line += f"   {median(map(len, runs)):12g} {in_tasks:9.1f} {spread.mid - in_tasks:9.1f}"
    print(line)
