"""NUMA nodes that a machine does not have, as a kubelet reads them: half of the CPUs belong to each.

The kernel knows nothing of it: CPUs are pinned for real, memory is not. A kubelet with `memoryManagerPolicy: Static`
could start no pod that it gives memory of node 1, as the kernel refuses a `cpuset.mems` that the machine has not.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.e2e.stage import LabNode

CPUS: Final = os.cpu_count() or 1
FIRST_OF_1: Final = CPUS // 2
_PLACE: Final = "/sys/devices/system/node"
_MADE: Final = "/run/lab-numa"
_MAKE: Final = f"""\
set -eu
real={_PLACE}/node0
for node in 0 1; do
    folder={_MADE}/node$node
    for pool in $(ls $real/hugepages); do
        mkdir -p $folder/hugepages/$pool
        cat $real/hugepages/$pool/nr_hugepages > $folder/hugepages/$pool/nr_hugepages
    done
    cat $real/meminfo > $folder/meminfo
done
for cpu in $(seq 0 {CPUS - 1}); do
    node=$(( cpu >= {FIRST_OF_1} ))
    ln -s ../../cpu/cpu$cpu {_MADE}/node$node/cpu$cpu
done
echo 10 20 > {_MADE}/node0/distance
echo 20 10 > {_MADE}/node1/distance
echo 0-1 > {_MADE}/online
mount --bind {_MADE} {_PLACE}
mount -o remount,rw /sys/kernel  # where huge pages are set aside
"""
_END: Final = f"mount -o remount,ro /sys/kernel; umount {_PLACE}; rm -rf {_MADE}"


def simulate(node: LabNode) -> None:
    """Have a node show two NUMA nodes to a kubelet that starts from now on, and its pools of huge pages writable."""
    node.node.run(["sh", "-c", _MAKE])


def end(node: LabNode) -> None:
    """Have it show the machine's own."""
    node.node.run(["sh", "-c", _END])


def cpus_of_1() -> frozenset[int]:
    """Return the CPUs of NUMA node 1."""
    return frozenset(range(FIRST_OF_1, CPUS))


def reserved() -> str:
    """Return the CPUs of NUMA node 0, as a kubelet is told which ones are the system's."""
    return f"0-{FIRST_OF_1 - 1}" if FIRST_OF_1 > 1 else "0"
