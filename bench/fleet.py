"""Measures what a rollout asks of an API server, how soon it notices, and what it keeps in memory.

The engine of an upgrade, with steps that do nothing, on an API server in memory that speaks real HTTP, in another
process (lab/apiserver). The floor beside each figure is what no engine can do without: a write for each phase, and an
eviction for each pod; a look at one Node and its pods; the process before it has asked anything.

Run: python3 bench/fleet.py [--changed 20] [--fleets 100,1000,5000]
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from provision.cluster.kubernetes.api.client import Api
from provision.cluster.kubernetes.api.kubeconfig import Kubeconfig
from provision.cluster.kubernetes.api.transport import Transport
from provision.cluster.kubernetes.cluster import KubernetesCluster
from provision.cluster.kubernetes.pods.pod_rules import PodRules
from provision.rollout.adapters import Adapters
from provision.rollout.decision.policy import DrainPolicy, Policy
from provision.rollout.decision.snapshot import NodeState
from provision.rollout.engine import Engine
from provision.rollout.interface.progress import PhaseEntered
from provision.rollout.model import NodeView, Phase
from provision.rollout.step import StepOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.apply.model import Observer
    from provision.rollout.interface.progress import RolloutProgress
    from provision.rollout.model import Origin

ROOT: Final = Path(__file__).resolve().parents[1]
OLD, NEW = "535.261.03", "550.163.01"
PHASES: Final = 7  # that are written for each node
MEMORY_LIMIT_MIB: Final = 200
LATENCY_S: Final = 0.01
GRACE_S: Final = 0.5
STEP_S: Final = 0.5


class Short:
    """Steps that do nothing, for a while."""

    def run(
        self, node: str, phase: Phase, observe: Observer, cancel: threading.Event, back: Origin | None = None
    ) -> StepOutcome:
        """Wait."""
        del node, phase, observe, back
        cancel.wait(STEP_S)
        return StepOutcome()


@dataclass
class Entered:
    """When nodes entered which phase, by the monotonic clock."""

    times: dict[Phase, dict[str, float]] = field(default_factory=dict)

    def __call__(self, progress: RolloutProgress) -> None:
        if isinstance(progress, PhaseEntered):
            self.times.setdefault(progress.phase, {})[progress.node] = time.monotonic()


@contextlib.contextmanager
def api_server(nodes: int, gpu_pods: int, *, other_pods: int = 0, latency_s: float, grace_s: float) -> Iterator[str]:
    """Run an API server with such a fleet; yield its URL."""
    command = [sys.executable, "-P", "-m", "lab.apiserver", "--nodes", str(nodes), "--gpu-pods", str(gpu_pods)]
    command += ["--other-pods", str(other_pods), "--latency", str(latency_s), "--grace", str(grace_s)]
    with subprocess.Popen(
        command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process.stdout.readline().strip() if process.stdout is not None else ""
        finally:
            process.kill()


def ask(url: str) -> dict[str, Any]:
    """Return what the server has counted."""
    with urllib.request.urlopen(f"{url}/lab", timeout=60) as answer:  # noqa: S310 - the one that was started above
        found: dict[str, Any] = json.load(answer)
    return found


def connect(url: str) -> KubernetesCluster:
    """Return the cluster behind the URL."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": url}}],
        "users": [{"name": "x", "user": {}}],
    }
    api = Api(Transport(Kubeconfig(context="x", server=url, document=document)))
    return KubernetesCluster(api, rules=PodRules(resources=frozenset({"nvidia.com/gpu"})), machines={})


def states(cluster: KubernetesCluster, nodes: int, changed: int) -> list[NodeState]:
    """Return the fleet, of which the first ``changed`` have to be changed."""
    names = [f"gpu{number:05}" for number in range(nodes)]
    hour = timedelta(hours=1)
    return [
        NodeState(
            view=view,
            target=NEW,
            origin=OLD,
            drain=DrainPolicy(limit=hour),
            is_disruptive=index < changed,
            is_as_declared=False,
        )
        for index, view in enumerate(cluster.observe(names).values())
        if isinstance(view, NodeView)
    ]


def roll_out(url: str, nodes: int, changed: int, at_once: int) -> tuple[dict[str, int], Entered, float]:
    """Change so many nodes; return how often the server was asked for what, when phases began, and when it began."""
    cluster, entered = connect(url), Entered()
    fleet = states(cluster, nodes, changed)
    before = ask(url)["requests"]
    began = time.monotonic()
    policy = Policy(max_parallel=at_once, max_unavailable=at_once)
    adapters = Adapters(cluster=cluster, steps=Short())
    result = Engine(adapters, fleet, policy, observe=entered, cancel=threading.Event()).run()
    if len(entered.times[Phase.DONE]) < changed:
        raise SystemExit(f"the rollout has stopped: {result.stop}")
    after = ask(url)["requests"]
    return {what: count - before.get(what, 0) for what, count in after.items()}, entered, began


def show_calls(fleets: list[int], changed: int) -> None:
    """Print the requests of a rollout with one change at a time, in fleets of several sizes."""
    print(f"\nrequests of a rollout of {changed} nodes with 2 GPU pods each, one at a time")
    print(
        f"{'fleet':>6} {'lists':>6} {'watches':>8} {'writes':>7} {'evictions':>10} {'reads':>6}   a node  floor      s"
    )
    for nodes in fleets:
        with api_server(nodes, 2, latency_s=LATENCY_S, grace_s=GRACE_S) as url:
            calls, entered, began = roll_out(url, nodes, changed, 1)
            emptied = ask(url)["emptied"]
        lists = -(-nodes // 500) + -(-2 * nodes // 500)  # what the watches begin with, page by page
        reads = calls["list nodes"] + calls["list pods"] - lists
        watches = calls["watch nodes"] + calls["watch pods"]
        each = (calls["patch nodes"] + calls.get("get nodes", 0) + calls["evict pods"] + reads) / changed
        took = time.monotonic() - began
        print(
            f"{nodes:6} {lists:6} {watches:8} {calls['patch nodes']:7} {calls['evict pods']:10} {reads:6}"
            f" {each:8.1f} {PHASES + 2:6} {took:6.1f}",
            flush=True,
        )
        late = [entered.times[Phase.RELEASE][name] - emptied[name] for name in entered.times[Phase.RELEASE]]
        print(
            f"       an empty node is released {median(late):.2f} s later, {max(late):.2f} s at worst;"
            f" floor {2 * LATENCY_S:.2f} s: one read, one write"
        )


def show_drain(nodes: int, pods: int) -> None:
    """Print how long it takes to drain many nodes at once."""
    with api_server(nodes, pods, latency_s=LATENCY_S, grace_s=GRACE_S) as url:
        cpu_s = time.process_time()
        calls, entered, began = roll_out(url, nodes, nodes, nodes)
        cpu_s = time.process_time() - cpu_s
        emptied = max(ask(url)["emptied"].values())
    drained = max(entered.times[Phase.RELEASE].values())
    print(
        f"\n{nodes} nodes of {pods} GPU pods each, drained at once (each answer {LATENCY_S * 1000:.0f} ms,"
        f" each pod ends in {GRACE_S} s)"
    )
    print(f"  all cordoned  {max(entered.times[Phase.CORDON].values()) - began:6.1f} s")
    print(f"  all empty     {emptied - began:6.1f} s")
    print(
        f"  all released  {drained - began:6.1f} s   (floor: one after the other,"
        f" {(calls['evict pods'] + 4 * nodes) * LATENCY_S:.0f} s; best published elsewhere: 55 s)"
    )
    print(f"  all done      {max(entered.times[Phase.DONE].values()) - began:6.1f} s")
    lists = f"{calls['list nodes'] + calls['list pods']} lists"
    print(f"  {calls['evict pods']} evictions, {calls['patch nodes']} writes, {lists}; {cpu_s:.1f} s of CPU here")


def memory_mib() -> dict[str, float]:
    """Return what this process has, and has had at most."""
    rollup = Path("/proc/self/smaps_rollup").read_text()
    status = Path("/proc/self/status").read_text()
    pss = next(line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:"))
    peak = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return {"pss": int(pss) / 1024, "peak": int(peak) / 1024}


def keep_fleet(url: str, nodes: int) -> None:
    """Watch a fleet in this process, and print what it costs."""
    cluster = connect(url)
    gc.collect()
    floor = memory_mib()
    began = time.process_time()
    fleet = states(cluster, nodes, nodes)
    names = [state.name for state in fleet]
    with cluster.watching(names, lambda: None):
        cluster.observe(names)
        cpu_s = time.process_time() - began
        gc.collect()
        now = memory_mib()
        rounds = [_cpu_ms(cluster, names) for _ in range(20)]
    verdict = "within" if now["peak"] <= MEMORY_LIMIT_MIB else "MORE THAN"
    print(
        f"  PSS {now['pss']:.0f} MiB, at most {now['peak']:.0f} MiB (floor {floor['pss']:.0f} MiB, the imports):"
        f" {verdict} {MEMORY_LIMIT_MIB} MiB"
    )
    print(f"  {cpu_s:.1f} s of CPU for both lists, then {median(rounds):.2f} ms for each look at all nodes")


def _cpu_ms(cluster: KubernetesCluster, names: list[str]) -> float:
    began = time.process_time()
    cluster.observe(names)
    return (time.process_time() - began) * 1000


def show_memory(nodes: int, pods: int) -> None:
    """Print what a fleet costs in memory, in a process of its own."""
    print(f"\n{nodes} nodes of 15 KiB and {nodes * pods} GPU pods of 5 KiB each, watched")
    with api_server(nodes, pods, latency_s=0.0, grace_s=0.0) as url:
        subprocess.run([sys.executable, "-P", __file__, "--keep", url, "--nodes", str(nodes)], check=True, cwd=ROOT)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="requests, delays and memory of a rollout on a large cluster")
    parser.add_argument("--fleets", default="100,1000,5000", help="sizes of fleets (default 100,1000,5000)")
    parser.add_argument("--changed", type=int, default=20, help="nodes that are changed in each (default 20)")
    parser.add_argument("--drained", type=int, default=500, help="nodes that are drained at once (default 500)")
    parser.add_argument("--nodes", type=int, default=5000, help="that are kept in memory (default 5000)")
    parser.add_argument("--keep", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.keep:
        keep_fleet(options.keep, options.nodes)
        return 0
    show_calls([int(size) for size in options.fleets.split(",")], options.changed)
    show_drain(options.drained, 8)
    show_memory(options.nodes, 8)
    return 0


if __name__ == "__main__":
    sys.exit(main())
