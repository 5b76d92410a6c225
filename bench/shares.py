"""What shared GPUs cost the node daemon: 1,000 shares beside 8 whole GPUs, in turn, and a change of their number.

Two daemons run at the same time, each with a kubelet of its own, over simulated GPUs. The list of memory units is
encoded in this process. Run: python3 bench/shares.py [--calls 300] [--strict]
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.daemons import calls, process, verdict
from bench.daemons.subjects import RESOURCE, Release, ours, running, share_gpus
from plugin.devices.inventory import Device, Inventory
from plugin.devices.naming import NamePattern
from plugin.devices.resources import OfferRules, plan_offers
from plugin.devices.sharing import ShareRule, Strategy
from plugin.driver.snapshot import GpuFacts
from plugin.kubelet.device_plugin.messages import device_list
from plugin.kubelet.rpc.codec import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.daemons.subjects import Running

GPUS, REPLICAS, OTHER = 8, 125, 100
ALLOCATE_MS, PREFER_MS, MEMORY_MIB, LIST_KIB = 5.0, 10.0, 2.0, 256.0
GIB = 2**30


def main(argv: Sequence[str] | None = None) -> int:
    """Print a row for each figure; with --strict exit status 1 where one is beyond its limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--strict", action="store_true")
    options = parser.parse_args(argv)
    rounds = options.calls
    with tempfile.TemporaryDirectory(prefix="grapnel-bench-") as place, ExitStack() as stack:
        release = Release(Path(place) / "release")
        folder = Path(place) / "shared"
        whole = stack.enter_context(running(ours(Path(place) / "whole", release, GPUS)))
        shared = stack.enter_context(running(ours(folder, release, GPUS, replicas=REPLICAS)))
        beyond = [*in_turn(whole, shared, rounds), *memory(whole, shared)]
        change(shared, folder)
    size = units_kib()
    print(f"list of {GPUS} GPUs of 80 GB in units of 1 GiB           {size:8.1f} KiB (at most {LIST_KIB:g})")
    return 1 if options.strict and (beyond or size > LIST_KIB) else 0


def in_turn(whole: Running, shared: Running, rounds: int) -> list[str]:
    """Time the kubelet's calls of both, and return what takes too long."""
    measures = {
        ("whole", "allocate"): calls.allocate(whole),
        ("shares", "allocate"): calls.allocate(shared),
        ("whole", "prefer 2"): calls.preferred(whole, 2),
        ("shares", "prefer 2"): calls.preferred(shared, 2),
    }
    limits = {("shares", "allocate"): ALLOCATE_MS, ("shares", "prefer 2"): PREFER_MS}
    print(
        f"{GPUS} whole GPUs and {GPUS * REPLICAS} shares, {rounds} rounds in turn, ms over the socket     p50      p99"
    )
    beyond = []
    for name, taken in calls.in_rounds(measures, rounds).items():
        worst = verdict.percentile_99(taken)
        limit = f"  (at most {limits[name]:g})" if name in limits else ""
        print(f"  {name[0]:8} {name[1]:12} {'':42} {median(taken):8.3f} {worst:8.3f}{limit}")
        if worst > limits.get(name, worst):
            beyond.append(" ".join(name))
    return beyond


def memory(whole: Running, shared: Running) -> list[str]:
    """Compare what both daemons weigh."""
    first, second = process.memory_of(whole.pid), process.memory_of(shared.pid)
    more = second.pss - first.pss
    print(f"PSS, whole {first.pss:.2f} MiB, shares {second.pss:.2f}: {more:+.2f} MiB (at most {MEMORY_MIB:+g})")
    return ["memory"] if more > MEMORY_MIB else []


def change(shared: Running, folder: Path) -> None:
    """Print how long another number of shares takes to be allocatable, and back."""
    for replicas in (OTHER, REPLICAS):
        share_gpus(folder, replicas)
        begun = time.perf_counter()
        seen = threading.Thread(target=shared.kubelet.wait_for_devices, args=(RESOURCE, GPUS * replicas))
        seen.start()
        shared.process.send_signal(signal.SIGHUP)
        seen.join()
        took_ms = (time.perf_counter() - begun) * 1000
        print(
            f"SIGHUP until {GPUS * replicas} shares are allocatable        {took_ms:8.1f} ms, YAML's process included"
        )


def units_kib() -> float:
    """Return the size of the list of memory units that a kubelet is sent."""
    found = tuple(
        Device(
            GpuFacts(index, f"GPU-00000000-0000-0000-0000-{index:012}", index, f"0000:{index:02x}:00.0", 80 * GIB, "H"),
            f"/dev/nvidia{index}",
            index % 2,
        )
        for index in range(GPUS)
    )
    rule = ShareRule(Strategy.MEMORY, RESOURCE, "aliyun.com/gpu-mem", unit_bytes=GIB)
    plan = plan_offers(Inventory(devices=found), OfferRules((NamePattern("*", RESOURCE),), shares=(rule,)))
    return len(encode(device_list(plan.resources["aliyun.com/gpu-mem"].offers))) / 1024


if __name__ == "__main__":
    sys.exit(main())
