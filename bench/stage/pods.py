"""Measures how soon a pod runs, with and without the runtime handler, with and without a GPU, on each engine.

One pod at a time. The phases of a start come from the watch of one client and from the engine's log; the hook runs
inside StartContainer, and nothing else there differs between pods with and without the handler.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench.stage.engine_log import read_starts
from bench.stage.figures import Spread, in_turn
from lab.cluster import ClusterError
from lab.nodes.cgroup import hierarchies
from tests.e2e.manifests import HANDLER, container, pod

if TYPE_CHECKING:
    from bench.stage.api import Client, Seen, Watch
    from bench.stage.engine_log import Start
    from lab.nodes import Node

PLAIN, HANDLED, WHOLE, DEVICE = "plain", "handled", "whole", "device"
KINDS = {  # kind -> title, RuntimeClass, GPUs
    PLAIN: ("floor: default runtime, no GPU", "", 0),
    HANDLED: ("RuntimeClass nvidia, no GPU", HANDLER, 0),
    WHOLE: ("RuntimeClass nvidia, one GPU", HANDLER, 1),
    DEVICE: ("default runtime, one GPU", "", 1),
}
STAY = "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done"
WARM_UP = 1
MS = 1000


@dataclass(frozen=True)
class _Timed:
    """One pod as seen by the client: times, and the node's CPU time until it ran."""

    pod: str
    kind: str
    created: float
    scheduled: float
    running: float
    cpu_s: float


@dataclass(frozen=True)
class Run:
    """One pod: the client's view, and the engine's calls in between."""

    seen: _Timed
    engine: Start

    def parts(self) -> dict[str, float]:
        """Return the phases of the start in order, in seconds; their sum is the whole."""
        seen, engine = self.seen, self.engine
        between = engine.create.began - engine.sandbox.ended + engine.start.began - engine.create.ended
        return {
            "scheduler": seen.scheduled - seen.created,
            "kubelet before": engine.sandbox.began - seen.scheduled,
            "sandbox": engine.sandbox.took_s,
            "create": engine.create.took_s,
            "start": engine.start.took_s,
            "kubelet between": between,
            "and after": seen.running - engine.start.ended,
        }

    @property
    def whole_s(self) -> float:
        """Seconds from the create request to the event that it runs."""
        return self.seen.running - self.seen.created


Samples = dict[str, list[Run]]  # by kind


def measure(nodes: list[Node], client: Client, watch: Watch, rounds: int) -> dict[str, Samples]:
    """Return the pods by node; nodes and kinds alternate in an order that changes each round."""
    timed: dict[str, list[_Timed]] = {node.name: [] for node in nodes}
    by_name = {node.name: node for node in nodes}
    for number in range(rounds + WARM_UP):
        for kind in in_turn(list(KINDS), number):
            for node in in_turn(list(by_name), number):
                taken = _run(by_name[node], client, watch, kind, number)
                if number >= WARM_UP:
                    timed[node].append(taken)
    samples: dict[str, Samples] = {node: {kind: [] for kind in KINDS} for node in timed}
    for node, every in timed.items():
        starts = read_starts(by_name[node])
        for each in every:
            if each.pod not in starts:
                raise ClusterError(f"containerd's log on {node} has no complete start of {each.pod}")
            samples[node][each.kind].append(Run(each, starts[each.pod]))
        _expect_hook(by_name[node], samples[node])
    return samples


def _run(node: Node, client: Client, watch: Watch, kind: str, number: int) -> _Timed:
    """Start a pod, wait until it runs, delete it."""
    name = f"bench-{kind}-{node.name}-{number}"
    _, runtime_class, gpus = KINDS[kind]
    manifest = pod(name, container(script=STAY, gpus=gpus), node=node.name, runtime_class=runtime_class)
    mark, cpu = watch.mark(), cpu_s(node)
    created = time.monotonic()
    client.create_pod(manifest)
    running = watch.wait(f"pod {name} runs", lambda seen: seen.name == name and _phase(seen) == "Running", mark)
    used = cpu_s(node) - cpu
    bound = watch.wait(f"pod {name} is bound", lambda seen: seen.name == name and "nodeName" in seen.body["spec"], mark)
    client.delete_pod(name)
    watch.wait(f"pod {name} is gone", lambda seen: seen.name == name and seen.kind == "DELETED", mark)
    return _Timed(name, kind, created, bound.moment, running.moment, used)


def _phase(seen: Seen) -> str:
    return str(seen.body["status"]["phase"])


def cpu_s(node: Node) -> float:
    """Return the CPU time of all processes of a node, including terminated ones."""
    for hierarchy in hierarchies():
        group = Path(hierarchy, node.machine.group.name)
        if (usage := group / "cpuacct.usage").exists():
            return int(usage.read_text()) / 1e9
        if (stat := group / "cpu.stat").exists() and "usage_usec" in (text := stat.read_text()):
            return int(text.split("usage_usec", 1)[1].split()[0]) / 1e6
    raise ClusterError(f"no cgroup of {node.name} counts CPU time")


def _expect_hook(node: Node, samples: Samples) -> None:
    """Check that the figures mean what they claim: the hook granted the driver to one kind only."""
    argv = ["journalctl", "--identifier", "grapnel-hook", "--boot", "--output", "json", "--no-pager"]
    lines = map(json.loads, node.run(argv).stdout.splitlines())
    granted = {line.get("GRAPNEL_CONTAINER") for line in lines if line.get("GRAPNEL_DECISION") == "granted"}
    for kind, runs in samples.items():
        given = sum(run.engine.container in granted for run in runs)
        if given != (len(runs) if kind == WHOLE else 0):
            raise ClusterError(f"the hook of {node.name} granted {given} of {len(runs)} pods: {KINDS[kind][0]}")


def show(samples: dict[str, Samples], engines: dict[str, str]) -> None:
    """Print a table for each engine."""
    rounds = len(next(iter(samples.values()))[PLAIN])
    print(f"\npod created -> running: ms, min/med/max of {rounds} pods each; the hook runs inside StartContainer")
    for node, kinds in samples.items():
        _show_node(f"{node}, {engines[node]}", kinds)


def _show_node(title: str, kinds: Samples) -> None:
    heads = f"{'created -> running':>20} {'to floor':>9} {'StartContainer':>20} {'over floor':>10} {'node CPU':>8}"
    print(f"{title}\n{'':32} {heads}")
    wholes = {kind: Spread.of(run.whole_s * MS for run in runs) for kind, runs in kinds.items()}
    starts = {kind: Spread.of(run.engine.start.took_s * MS for run in runs) for kind, runs in kinds.items()}
    for kind, runs in kinds.items():
        cpu = median(run.seen.cpu_s * MS for run in runs)
        print(
            f"  {KINDS[kind][0]:30} {wholes[kind].show():>20} {wholes[kind].mid / wholes[PLAIN].mid:9.2f}"
            f" {starts[kind].show():>20} {starts[kind].mid - starts[PLAIN].mid:+10.0f} {cpu:8.0f}"
        )
    hook, early = (starts[one].mid - starts[other].mid for one, other in ((WHOLE, DEVICE), (HANDLED, PLAIN)))
    share = 100 * hook / wholes[WHOLE].mid
    print(f"  the hook: {hook:.0f} ms with a GPU, {share:.1f} % of that pod's start; {early:.0f} ms without one")
    every = [run.parts() for run in kinds[WHOLE]]
    parts = [f"{part} {median(run[part] * MS for run in every):.0f}" for part in every[0]]
    print(f"  phases of that start, medians: {', '.join(parts)}")
