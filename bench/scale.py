"""Measures the controller on a real API server with many Nodes: memory, CPU, requests, how soon it notices a change.

The machines behind the Nodes answer at once, so that what is measured is the controller's own. Beside it stands what
an upgrade controller asks of the same API server that lists all Nodes and pods every two minutes.
Run: python3 bench/scale.py [--nodes 100 1000] [--changes 50] [--idle-seconds 30]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import msgspec

from lab.cluster import ControlPlane
from provision.cluster.api import Api
from provision.cluster.connect import open_api
from provision.cluster.exchange import MERGE_PATCH, Request
from provision.cluster.kubernetes_cluster import KubernetesCluster
from provision.cluster.pod_rules import PodRules
from provision.controller.loop import Controller
from provision.controller.rounds import Means, usual_adapters
from provision.node_plan import Action, Disruption, Item, NodePlan, Role
from provision.payload.model import Artifact, Payload
from provision.runner import Outcome, RunFinished, RunStatus, TaskDone, TaskStarted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from provision.apply.context import Planner
    from provision.apply.declarations import Declarations
    from provision.cluster.exchange import Answer, Stream
    from provision.cluster.kubernetes_cluster import Held
    from provision.fleet.facts import NodeFacts
    from provision.gates import GateKeeper
    from provision.rollout.cluster import Cluster
    from provision.rollout.engine import Adapters
    from provision.rollout.step import Steps
    from provision.runner import Event, RunRequest

ROOT: Final = Path(__file__).resolve().parents[1]
OLD, NEW = "535.261.03", "550.163.01"
NODES: Final = "/api/v1/nodes"
STACK: Final = "/apis/grapnel.dev/v1alpha1/gpustacks"
MAX_MIB_AT_1000, MAX_MIB_PER_NODE = 100.0, 0.05
MAX_NOTICED_S: Final = 2.0
LISTED_EVERY_S: Final = 120
FAULTY: Final = 20  # one node of so many keeps failing
LABELS: Final = {f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{number}": "true" for number in range(40)}
INFO: Final = (
    *("bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion", "machineID"),
    *("operatingSystem", "architecture", "osImage", "systemUUID"),
)


# The controller's process: the real controller, with machines in memory.


@dataclass
class Machines:
    """Answers playbooks at once. Whoever is first asked for facts after a change is told to the measuring process."""

    drivers: dict[str, str] = field(default_factory=dict)
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def run(self, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        """Run a playbook on its nodes."""
        del cancel
        playbook = request.playbook.stem
        bad = False
        for node in request.nodes:
            if playbook == "facts":
                tell("looked", node)
            yield TaskStarted(node, playbook)
            plan = request.extra_vars.get("grapnel_plan")
            if playbook == "apply" and isinstance(plan, dict):
                target = plan["items"][0]["target"]
                if target == NEW and int(node[1:]) % FAULTY == 0:
                    bad = True
                    yield TaskDone(node, playbook, Outcome.FAILED, message="it is broken")
                    continue
                self.drivers[node] = target
            values = {"facts": self.facts(node), "daemon": b'{"released":true,"holders":[],"ok":true,"checks":[]}'}
            yield TaskDone(node, playbook, Outcome.OK, values=values)
        yield RunFinished(RunStatus.FAILED if bad else RunStatus.SUCCESSFUL)

    def facts(self, node: str) -> bytes:
        """Return the facts of a bare machine."""
        machine = {"hostname": node, "machine_id": "m", "boot_id": "b", "kernel": "6.12", "architecture": "x86_64"}
        more = {"python": "3.13", "os": {"id": "debian"}}
        packages = {"driver": {"version": self.drivers.get(node, OLD), "source": "driver"}}
        found = {"schema": "grapnel.dev/facts/v1alpha1", "node": machine | more, "packages": packages}
        return json.dumps(found | {"package_manager": {"name": "apt"}, "device_holders": []}).encode()


@contextmanager
def planner(declarations: Declarations, _payload: Payload) -> Iterator[Planner]:
    """Plan the declared driver, for which a node has to be taken out of service."""

    def plan(node: str, facts: NodeFacts, _cancel: threading.Event) -> NodePlan:
        wanted = declarations.stacks[node].driver.version or ""
        if facts.packages["driver"].version == wanted:
            return NodePlan(node=node)
        swap = Item(
            role=Role.DRIVER,
            action=Action.INSTALL,
            target=wanted,
            to=wanted,
            reason="declared",
            disruption=Disruption.DRAIN,
        )
        return NodePlan(node=node, items=(swap,))

    yield plan


class Counting:
    """Counts what a controller asks of its API server."""

    def __init__(self, api: Api) -> None:
        self._sender = api._sender  # noqa: SLF001 - a bench looks behind
        self.name = api.name
        self.requests = 0

    def send(self, request: Request) -> Answer:
        """Send a request."""
        self.requests += 1
        return self._sender.send(request)

    def stream(self, request: Request) -> Stream:
        """Begin a watch."""
        self.requests += 1
        return self._sender.stream(request)


def accelerated(cluster: Cluster, steps: Steps, gates: GateKeeper) -> Adapters:
    """Look again at once: steps of machines in memory take no time."""
    return replace(usual_adapters(cluster, steps, gates), poll_s=0.05)


def tell(*words: object) -> None:
    """Write a line to the measuring process, with the time."""
    sys.stdout.write(f"{time.time():.4f} {' '.join(map(str, words))}\n")
    sys.stdout.flush()


def lead(kubeconfig: str) -> None:
    """Be the controller until standard input ends."""
    found = open_api(Path(kubeconfig), None, {})
    assert found is not None  # noqa: S101 - it was named
    counting, machines = Counting(found), Machines()
    api = Api(counting)
    archive = Artifact("/archive", "0" * 64)
    payload = Payload(hook=archive, driver=archive, node={"3.13": archive}, unit="[Unit]")
    rules = PodRules(resources=frozenset({"nvidia.com/gpu"}))

    def means(held: Held) -> Means:
        return Means(
            runner=machines,
            collection=Path("/collection"),
            payload=payload,
            open_cluster=lambda _stacks: KubernetesCluster(api, rules=rules, machines={}, tenure=held),
            holder="bench",
            parallel=20,
            planner=planner,
            adapt=accelerated,
        )

    controller = Controller(api, means, "bench", say=lambda text: tell("said", text))

    def answer() -> None:
        for _line in sys.stdin:
            tell("requests", counting.requests)
        controller.stop()

    threading.Thread(target=answer, daemon=True).start()
    controller.run()


# The measuring process.


@dataclass
class Child:
    """The controller's process, and what it says."""

    process: subprocess.Popen[str]
    looked: dict[str, float] = field(default_factory=dict)
    answers: list[int] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def read(self) -> None:
        """Take its lines, on a thread."""
        assert self.process.stdout is not None  # noqa: S101 - a pipe
        for line in self.process.stdout:
            moment, kind, text = line.rstrip("\n").split(" ", 2)
            if kind == "looked":
                self.looked[text] = float(moment)
            elif kind == "requests":
                self.answers.append(int(text))
            else:
                self.said.append(text)

    def requests(self) -> int:
        """Return how many requests it has sent."""
        assert self.process.stdin is not None  # noqa: S101 - a pipe
        known = len(self.answers)
        self.process.stdin.write("?\n")
        self.process.stdin.flush()
        wait(lambda: len(self.answers) > known, "the child answers", 30)
        return self.answers[-1]

    def memory_mib(self, key: str = "VmRSS") -> float:
        """Return its memory; VmHWM is the most that it has had."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024

    def cpu_s(self) -> float:
        """Return the CPU time that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait(is_true: Any, what: str, timeout_s: float) -> None:  # noqa: ANN401 - something to call
    """Wait for a condition."""
    deadline = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {timeout_s:.0f} s in vain: {what}")
        time.sleep(0.05)


def node(name: str) -> dict[str, Any]:
    """Return a Node with the labels of feature discovery."""
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": dict.fromkeys(INFO, "") | {"bootID": "0"},
        "capacity": {"nvidia.com/gpu": "8", "pods": "110"},
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": LABELS}, "status": status}


def stack(version: str) -> dict[str, Any]:
    """Return the stack of all nodes."""
    rollout = {
        "maxUnavailable": "20%",
        "maxParallel": 50,
        "soakMinutes": 0,
        "maxFailures": 100_000,
        "nodeEvents": False,
    }
    return {
        "apiVersion": "grapnel.dev/v1alpha1",
        "kind": "GpuStack",
        "metadata": {"name": "all"},
        "spec": {"nodeSelector": {}, "driver": {"version": version}, "rollout": rollout},
    }


@dataclass
class Bench:
    """One size of fleet."""

    api: Api
    control_plane: ControlPlane
    count: int
    changes: int
    idle_s: float

    def run(self) -> None:
        """Measure, and print."""
        names = [f"n{number:05}" for number in range(self.count)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: self.send("POST", NODES, node(name)), names))
        self.send("POST", STACK, stack(OLD))
        command = [sys.executable, "-P", __file__, "--lead", str(self.control_plane.kubeconfig)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            child = Child(process)
            threading.Thread(target=child.read, daemon=True).start()
            began = time.monotonic()
            self.wait_for("AsDeclared", self.count)
            brought = time.monotonic() - began
            wait(lambda: self.marked() == self.count, "every Node is marked", 600)
            time.sleep(2)
            print(f"\n{self.count} nodes")
            print(f"  all looked at and found as declared   {brought:8.1f} s")
            self.idle(child)
            self.notice(child, names)
            self.roll(child)
            peak, allowed = child.memory_mib("VmHWM"), MAX_MIB_AT_1000 + max(0, self.count - 1000) * MAX_MIB_PER_NODE
            verdict = "kept" if peak <= allowed else "MISSED"
            print(f"  memory at most                        {peak:8.1f} MiB   (limit {allowed:.0f}: {verdict})")
            assert process.stdin is not None  # noqa: S101 - a pipe
            process.stdin.close()
            process.wait(60)
        self.peer()

    def idle(self, child: Child) -> None:
        """Nothing changes."""
        requests, cpu, began = child.requests(), child.cpu_s(), time.monotonic()
        time.sleep(self.idle_s)
        minutes = (time.monotonic() - began) / 60
        print(f"  memory                                {child.memory_mib():8.1f} MiB")
        print(f"  CPU while nothing changes             {(child.cpu_s() - cpu) / minutes:8.2f} s a minute")
        print(f"  requests while nothing changes        {(child.requests() - requests) / minutes:8.1f} a minute")

    def notice(self, child: Child, names: Sequence[str]) -> None:
        """Nodes boot one after the other; each is looked at."""
        took, requests = [], child.requests()
        for name in names[: self.changes]:
            child.looked.pop(name, None)
            patch = {"status": {"nodeInfo": {"bootID": str(time.time())}}}
            began = time.time()
            self.send("PATCH", f"{NODES}/{name}/status", patch)
            wait(lambda name=name: name in child.looked, f"{name} is looked at", 60)
            took.append(child.looked[name] - began)
            time.sleep(0.3)
        took.sort()
        p99 = took[min(len(took) - 1, round(len(took) * 0.99))]
        verdict = "kept" if p99 <= MAX_NOTICED_S else "MISSED"
        print(f"  a change is acted on after, median    {took[len(took) // 2]:8.2f} s")
        print(f"  ... p99                               {p99:8.2f} s     (limit {MAX_NOTICED_S:.0f}: {verdict})")
        print(f"  requests for a changed node           {(child.requests() - requests) / len(took):8.1f}")

    def roll(self, child: Child) -> None:
        """Roll another driver out; one node of twenty fails."""
        requests, cpu, began = child.requests(), child.cpu_s(), time.monotonic()
        self.send("PATCH", f"{STACK}/all", {"spec": {"driver": {"version": NEW}}})
        failing = len(range(0, self.count, FAULTY))
        self.wait_for("Degraded", self.count - failing)
        took = time.monotonic() - began
        each = (child.requests() - requests) / self.count
        print(f"  a roll-out, {failing} of them fail {'':13} {took:8.1f} s     ({child.cpu_s() - cpu:.0f} s of CPU)")
        print(f"  ... requests for each node            {each:8.1f}")

    def peer(self) -> None:
        """Ask what a controller asks that lists everything every two minutes."""
        began, cpu, size = time.monotonic(), time.process_time(), 0
        for path in (NODES, "/api/v1/pods"):
            size += len(bytes(self.api.call(Request(method="GET", path=path), msgspec.Raw)))
        times = 60 / LISTED_EVERY_S
        waited, used = (time.monotonic() - began) * times, (time.process_time() - cpu) * times
        print(f"  a controller that lists every {LISTED_EVERY_S} s   {size * times / 1e6:8.1f} MB a minute")
        print(f"  ... before anything is decoded        {used:8.2f} s of CPU a minute, {waited:.2f} s of waiting")

    def wait_for(self, state: str, as_declared: int) -> None:
        """Wait for the status of the stack."""

        def is_so() -> bool:
            found = msgspec.json.decode(bytes(self.api.call(Request(method="GET", path=f"{STACK}/all"), msgspec.Raw)))
            status = found.get("status", {})
            is_now = status.get("observedGeneration") == found["metadata"]["generation"]
            return is_now and (status.get("state"), status["nodes"]["asDeclared"]) == (state, as_declared)

        wait(is_so, f"the stack is {state} with {as_declared} nodes as declared", 1800)

    def marked(self) -> int:
        """Return how many Nodes say what they were brought to."""
        found = msgspec.json.decode(bytes(self.api.call(Request(method="GET", path=NODES), msgspec.Raw)))
        return sum("grapnel.dev/as-declared" in each["metadata"].get("annotations", {}) for each in found["items"])

    def send(self, method: str, path: str, body: dict[str, Any]) -> None:
        """Change something as the administrator."""
        kind = MERGE_PATCH if method == "PATCH" else "application/json"
        self.api.call(Request(method=method, path=path, body=body, content_type=kind), msgspec.Raw)


def main() -> int:
    """Measure every size, each on an API server of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--changes", type=int, default=50)
    parser.add_argument("--idle-seconds", type=float, default=30)
    parser.add_argument("--lead", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.lead:
        lead(args.lead)
        return 0
    for count in args.nodes:
        with (
            tempfile.TemporaryDirectory(prefix="grapnel-bench-") as folder,
            ControlPlane(Path(folder), node_grace_s=86_400).running() as control_plane,
        ):
            crd = str(ROOT / "deploy/crd/gpustacks.yaml")
            control_plane.kubectl(["apply", "-f", crd])
            control_plane.kubectl(["wait", "--for=condition=Established", "--timeout=60s", "-f", crd])
            api = open_api(control_plane.kubeconfig, None, {})
            assert api is not None  # noqa: S101 - it was named
            Bench(api, control_plane, count, min(args.changes, count), args.idle_seconds).run()
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
