"""Measures the CPU time of one preferred allocation, for every size, on machines with 8, 16 and 64 GPUs.

The daemon reads the topology once, so a slow driver is not in these figures; `bench/plugin.py --nvml-call-us 20` has
the whole call over the kubelet's socket. Run: python3 bench/preference.py [--rounds 20]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from plugin.devices.allocation.answer import DeviceNode, NamedDevice
from plugin.devices.allocation.preference.choice import Preference, prefer
from plugin.devices.allocation.table import AllocationTable, Entry
from plugin.driver.topology.facts import GpuLinks, LinkFacts, NvLink, Place, Remote
from plugin.driver.topology.machine import Level, make_topology

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plugin.driver.topology.machine import Topology

_LEVELS = (Level.SWITCH, Level.HOST_BRIDGE, Level.NUMA_NODE, Level.MACHINE)
_SWITCHED = (NvLink(Remote.SWITCH, ""),) * 12


def tree(one: int, other: int) -> Level:
    """Pairs below a switch, fours behind a host bridge, eights on a NUMA node, as in real machines."""
    return _LEVELS[min((one ^ other).bit_length(), len(_LEVELS)) - 1]


def tangle(one: int, other: int) -> Level:
    """Random levels: unlike any machine, so that the search has no structure to use."""
    return _LEVELS[(min(one, other) * 7 + max(one, other) * 13 + one * other) % len(_LEVELS)]


def topology(count: int, level: Callable[[int, int], Level], *, switched: bool) -> Topology:
    """Return a machine with this many GPUs."""
    ids = [f"GPU-{index:02}" for index in range(count)]
    pairs = [(one, other) for one in range(count) for other in range(one + 1, count)]
    facts = LinkFacts(
        gpus=tuple(GpuLinks(uuid, _SWITCHED if switched else ()) for uuid in ids),
        levels=tuple((ids[one], ids[other], level(one, other)) for one, other in pairs),
    )
    return make_topology(ids, [Place(uuid) for uuid in ids], facts)


def measure(table: AllocationTable, size: int, rounds: int) -> tuple[float, Preference]:
    """Return the median CPU time of a call in milliseconds, and its result."""
    free, taken = list(table.entries), []
    for _ in range(rounds):
        start = time.process_time_ns()
        preferred = prefer(table, free, [], size)
        taken.append((time.process_time_ns() - start) / 1e6)
    return median(taken), preferred


def main(argv: Sequence[str] | None = None) -> None:
    """Print a row for each machine, and below it the sizes whose answer was approximate."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args(argv).rounds
    for name, level, switched in (("NVSwitch", tree, True), ("PCIe", tree, False), ("tangle", tangle, False)):
        for count in (8, 16, 64):
            start = time.process_time_ns()
            made = topology(count, level, switched=switched)
            once = (time.process_time_ns() - start) / 1e6
            node = DeviceNode("/dev/null", "/dev/null")
            table = AllocationTable((), {name: Entry(NamedDevice(name, name, (node,))) for name in made.ids}, made)
            found = {size: measure(table, size, rounds) for size in range(1, count + 1)}
            slowest = max(found, key=lambda size: found[size][0])
            bounded = [size for size, (_, preferred) in found.items() if preferred.cut_off]
            print(
                f"{name:8} {count:2} GPUs  p50 of size 1, 2, 3, 4: "
                + " ".join(f"{found[size][0]:6.2f}" for size in (1, 2, 3, 4))
                + f" ms; slowest {found[slowest][0]:.2f} (size {slowest}); approximate: {len(bounded)} of {count};"
                f" topology once: {once:.1f} ms"
            )


if __name__ == "__main__":
    main()
