"""Serves a fleet until standard input ends: ``python -m lab.apiserver --nodes 5000 --gpu-pods 8``; prints its URL.

``GET /lab`` returns how often it was asked for what, and when the last pod of each Node ended (CLOCK_MONOTONIC).
"""

from __future__ import annotations

import argparse
import sys

from lab.apiserver.fleet import make_fleet
from lab.apiserver.server import serving
from lab.apiserver.store import Store


def main() -> int:
    """Make the fleet and serve it."""
    parser = argparse.ArgumentParser(prog="python -m lab.apiserver", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--gpu-pods", type=int, default=1, help="on each Node")
    parser.add_argument("--other-pods", type=int, default=0, help="on each Node")
    parser.add_argument("--latency", type=float, default=0.005, metavar="S", help="of each answer")
    parser.add_argument("--grace", type=float, default=0.5, metavar="S", help="that a pod takes to end")
    options = parser.parse_args()
    store = Store()
    make_fleet(store, options.nodes, gpu_pods=options.gpu_pods, other_pods=options.other_pods, is_large=True)
    with serving(store, grace_s=options.grace) as server:
        server.latency_s = options.latency
        print(server.url, flush=True)
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
