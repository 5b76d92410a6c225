"""Measures GPU pods and a driver upgrade on a real Kubernetes: three nodes, three versions of containerd.

    python bench/nodes/cluster.py [--rounds 8] [--upgrades 2] [--name bench]

Time from registration to allocatable, compared with a minimal plugin; time until pods run, with and without the
handler and a GPU, and the hook's share of it; time out of service per node in an upgrade, compared with the same swap
by hand. The cluster is created for it, provisioned by ``grapnel apply``, and removed at the end in any case. Needs
root.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.stage import pods, registration, upgrade
from bench.stage.api import NODES, PODS, Client, watching
from bench.stage.clusters import on_cluster
from lab.cluster import DEFAULT, Cluster
from lab.cluster.project import apply_project, write_project


def main() -> int:
    """Start a cluster, measure, remove it; exit status 0, or 1 with the reason."""
    options = parse_arguments()
    cluster = Cluster(options.name)
    # With containerd on every node: its log has the calls.
    return on_cluster(cluster, DEFAULT, lambda folder: measure(cluster, folder, options))


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=8, help="of starts of daemon and pods (default 8)")
    parser.add_argument("--upgrades", type=int, default=2, help="of all nodes and back (default 2)")
    parser.add_argument("--name", default="bench", help="of the cluster (default bench)")
    return parser.parse_args()


def measure(cluster: Cluster, folder: Path, options: argparse.Namespace) -> None:
    """Make the nodes GPU nodes, and print table after table."""
    write_project(cluster, folder)
    upgrade.declare(folder, cluster, upgrade.OLD)
    apply_project(cluster, folder, log=folder / "first.log")
    api, nodes = cluster.control_plane.api, list(cluster.site.nodes())
    engines = {node.name: f"{node.engine}, Kubernetes {node.kubelet}" for node in cluster.status().nodes}
    print(f"{options.rounds} rounds, load {os.getloadavg()[0]:.1f}", flush=True)
    with closing(Client(api)) as client, watching(api, NODES) as seen_nodes, watching(api, PODS) as seen_pods:
        registration.show(registration.measure(nodes, seen_nodes, options.rounds))
        pods.show(pods.measure(nodes, client, seen_pods, options.rounds), engines)
        upgrade.show(upgrade.measure(cluster, folder, client, seen_nodes, options.upgrades))


if __name__ == "__main__":
    sys.exit(main())
