"""Measures a burst of pods with claims beside the same burst by our own device plugin, on a real Kubernetes.

    python bench/nodes/burst.py [--rounds 3] [--pods 50] [--name bench-burst] [--strict]

Four nodes with 16 GPUs and containerd 2, each pod with a GPU of its own. All nodes change over between two bursts, so
both kinds have the same nodes, and the rounds alternate which comes first. A claim is made of a template for each pod;
a pod by the device plugin names the RuntimeClass, as people write them. Needs root and the payload.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.stage.api import NODES, PODS, Client, Object, watching
from bench.stage.clusters import on_cluster
from bench.stage.figures import Spread, in_turn
from bench.stage.pods import STAY, cpu_s
from lab.cluster import Cluster, ClusterError, Engine
from lab.cluster.project import apply_project, write_project
from lab.cluster.spec import ClusterNode, ClusterSpec
from lab.cluster.status import RESOURCE
from plugin.dra.slices import PATH as SLICES
from tests.e2e.manifests import HANDLER, container, pod

if TYPE_CHECKING:
    from bench.stage.api import Watch
    from lab.nodes import Node

ROOT = Path(__file__).resolve().parents[2]
GPUS = 16
SPEC = ClusterSpec(tuple(ClusterNode(f"n{number}", engine=Engine.CONTAINERD_2, gpus=GPUS) for number in (1, 2, 3, 4)))
KUBECONFIG = "/etc/kubernetes/kubelet.kubeconfig"
DRIVER, TEMPLATE = "gpu.nvidia.com", "burst"
BY_PLUGIN, BY_CLAIMS = KINDS = ("devicePlugin", "dra")
COLUMNS = {"half of them": "half_s", "all but late ones": "others_s", "nodes' CPU till then": "cpu_s", "all": "all_s"}
LIMIT = 1.10  # of the device plugin's time
EVENTS, UNRELATED = "/api/v1/namespaces/default/events", "no relationship found between node"
WARM_UP = 1
_CHANGED_S = 120.0


@dataclass(frozen=True)
class Burst:
    """Seconds from the first pod's creation until half of them and until all of them ran.

    `late` are the pods whose kubelet was refused their claim by the API server, which did not know yet that they are on
    its node: it asks again after a minute or more, without a word to any driver. `others_s` is until all but them ran,
    `cpu_s` what the nodes' CPUs had done by then.
    """

    half_s: float
    others_s: float
    all_s: float
    cpu_s: float
    late: int

    def __str__(self) -> str:
        seconds = f"half {self.half_s:6.2f} s, all {self.others_s:6.2f} s, CPU {self.cpu_s:6.2f} s"
        return f"{seconds}; with {self.late} late ones {self.all_s:6.2f} s"


def main() -> int:
    """Start a cluster, measure, remove it; exit status 0, or 1 with the reason."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pods", type=int, default=50, help=f"of a burst, at most {GPUS * len(SPEC.nodes)}")
    parser.add_argument("--name", default="bench-burst", help="of the cluster")
    parser.add_argument("--strict", action="store_true", help="exit with 1 where the limit is exceeded")
    options = parser.parse_args()
    cluster = Cluster(options.name)

    def is_kept(folder: Path) -> bool:
        return measure(cluster, folder, options.rounds, options.pods) or not options.strict

    return on_cluster(cluster, SPEC, is_kept)


def measure(cluster: Cluster, folder: Path, rounds: int, count: int) -> bool:
    """Print the figures, and say whether the limit is kept."""
    write_project(cluster, folder)
    apply_project(cluster, folder, log=folder / "apply.log")
    classes = (ROOT / "deploy/dra/deviceclasses.yaml").read_text()
    cluster.control_plane.kubectl(["apply", "-f", "-"], input_text=classes)
    cluster.control_plane.kubectl(["create", "-f", "-"], input_text=json.dumps(_template()))
    api, nodes = cluster.control_plane.api, list(cluster.site.nodes())
    taken: dict[str, list[Burst]] = {kind: [] for kind in KINDS}
    with closing(Client(api)) as client, watching(api, PODS) as watch:
        for number in range(rounds + WARM_UP):
            for kind in in_turn(KINDS, number):
                _change_over(client, nodes, kind)
                manifests = [_pod(f"{kind.lower()}-{number}-{each}", kind) for each in range(count)]
                burst = _burst(client, watch, nodes, manifests)
                print(f"{kind:13} {burst}", flush=True)
                if number >= WARM_UP:
                    taken[kind].append(burst)
    return show(taken, count)


def _template() -> Object:
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": TEMPLATE},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def _pod(name: str, kind: str) -> Object:
    if kind == BY_PLUGIN:
        return pod(name, container(script=STAY, gpus=1), runtime_class=HANDLER)
    found = pod(name, {**container(script=STAY), "resources": {"claims": [{"name": "gpu"}]}}, runtime_class="")
    found["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": TEMPLATE}]
    return found


def _change_over(client: Client, nodes: list[Node], kind: str) -> None:
    """Declare an interface on all nodes, and wait until the scheduler can see all GPUs by it."""
    for node in nodes:
        path = node.root / "etc/grapnel/node.json"
        keys = {"interface": kind, "kubernetesApi": KUBECONFIG, "nodeName": node.name}
        path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))
        node.run(["systemctl", "reload", "grapnel-node"])
    wanted = (GPUS * len(nodes), 0) if kind == BY_PLUGIN else (0, GPUS * len(nodes))
    deadline = time.monotonic() + _CHANGED_S
    while (found := _offered(client)) != wanted:
        if time.monotonic() > deadline:
            raise ClusterError(f"{kind}: {found} GPUs are offered by device plugin and by claims, not {wanted}")
        time.sleep(0.5)


def _offered(client: Client) -> tuple[int, int]:
    nodes, slices = client.call("GET", NODES)["items"], client.call("GET", SLICES)["items"]
    by_plugin = sum(int(node["status"]["allocatable"].get(RESOURCE, 0)) for node in nodes)
    return by_plugin, sum(len(each["spec"].get("devices") or ()) for each in slices)


class Ran(NamedTuple):
    """A pod, when it ran, and what the nodes' CPUs had done by then; both in seconds since the first was created."""

    name: str
    after_s: float
    cpu_s: float


def _burst(client: Client, watch: Watch, nodes: list[Node], manifests: list[Object]) -> Burst:
    """Create all pods as fast as the API server takes them, wait until they run, and until they are gone."""
    mark, cpu, began = watch.mark(), sum(map(cpu_s, nodes)), time.monotonic()
    for manifest in manifests:
        client.create_pod(manifest)
    left, ran = {manifest["metadata"]["name"] for manifest in manifests}, list[Ran]()
    while left:
        seen = watch.wait(f"{len(left)} pods run", lambda each: each.name in left and _runs(each.body), mark)
        left.remove(seen.name)
        ran.append(Ran(seen.name, seen.moment - began, sum(map(cpu_s, nodes)) - cpu))
    late = _late(client)
    for each in ran:
        client.delete_pod(each.name)
    for each in ran:
        _until_gone(watch, mark, each.name)
    in_time = [each for each in ran if each.name not in late]
    middle, last = ran[len(ran) // 2], in_time[-1]
    return Burst(middle.after_s, last.after_s, ran[-1].after_s, last.cpu_s, len(ran) - len(in_time))


def _until_gone(watch: Watch, mark: int, name: str) -> None:
    watch.wait(f"pod {name} is gone", lambda seen: seen.name == name and seen.kind == "DELETED", mark)


def _late(client: Client) -> set[str]:
    """Return the pods whose kubelet could not read their claim."""
    events = client.call("GET", EVENTS)["items"]
    return {each["involvedObject"]["name"] for each in events if UNRELATED in (each.get("message") or "")}


def _runs(body: Object) -> bool:
    return str(body["status"]["phase"]) == "Running"


def show(taken: dict[str, list[Burst]], count: int) -> bool:
    """Print the table; say whether claims take no more than they may."""
    rounds = len(taken[BY_PLUGIN])
    load = os.getloadavg()[0]
    print(f"\n{count} pods created at once -> running: s, min/med/max of {rounds} bursts; load {load:.1f}")
    print(f"{'':14}" + "".join(f"{title:>21}" for title in COLUMNS) + f"{'late':>6}")
    for kind, bursts in taken.items():
        columns = [Spread.of(getattr(each, field) for each in bursts) for field in COLUMNS.values()]
        late = sum(each.late for each in bursts)
        print(f"{kind:14}" + "".join(f"{spread.show(1):>21}" for spread in columns) + f"{late:6}")
    ratios = {field: _median(taken[BY_CLAIMS], field) / _median(taken[BY_PLUGIN], field) for field in COLUMNS.values()}
    print(f"{'ratio':14}" + "".join(f"{ratio:21.2f}" for ratio in ratios.values()))
    print("late: the API server refused the kubelet their claim, for it did not know yet on which node they are")
    is_kept = ratios["others_s"] <= LIMIT
    print(f"all but late ones: at most {LIMIT:.2f} of the device plugin's: {'kept' if is_kept else 'EXCEEDED'}")
    return is_kept


def _median(bursts: list[Burst], field: str) -> float:
    return float(median(getattr(each, field) for each in bursts))


if __name__ == "__main__":
    sys.exit(main())
