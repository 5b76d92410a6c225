"""Shows a node's MIG devices in /proc and /dev as the driver's module does: capabilities, and device nodes for them.

Which MIG devices there are is in the simulated NVML; the simulated module lists the numbers of all that there can be.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from lab.nvml.capabilities import minors

if TYPE_CHECKING:
    from lab.nodes.node import Node
    from lab.nvml.machine import Machine, Mig

MAJOR = 4  # a kind of terminal, as the substitutes of GPUs
FOLDER = "/dev/nvidia-caps"
_CAPABILITIES = "/proc/driver/nvidia/capabilities"


def capabilities(gpu_minor: int, mig: Mig) -> dict[str, int]:
    """Return the numbers of a MIG device's two capabilities by the driver's names."""
    instance = f"gpu{gpu_minor}/gi{mig.gpu_instance}"
    names = (f"{instance}/access", f"{instance}/ci{mig.compute_instance}/access")
    known = minors(gpu_minor + 1)
    return {name: known[name] for name in names}


def show_capabilities(node: Node, machine: Machine) -> None:
    """Make files and device nodes for a machine's MIG devices on a running node, and no others."""
    shown = list_capabilities(node, machine)
    made = [f"mknod -m 444 {FOLDER}/nvidia-cap{minor} c {MAJOR} {minor}" for minor in shown.values()]
    node.run(["sh", "-c", " && ".join([f"mkdir -p {FOLDER}", *made])])


def list_capabilities(node: Node, machine: Machine) -> dict[str, int]:
    """Make the files alone, as the driver's module does, and return the numbers that nodes have to have by name."""
    hide_capabilities(node)
    every = minors(1 + max(gpu.minor_number for gpu in machine.gpus))
    shown = {name: every[name] for name in ("config", "monitor")}
    for gpu, mig in itertools.chain.from_iterable(((gpu, mig) for mig in gpu.migs) for gpu in machine.gpus):
        shown.update(capabilities(gpu.minor_number, mig))
    for name, minor in shown.items():
        _write(node, _file(name), f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
    return shown


def hide_capabilities(node: Node) -> None:
    """Take all of it away."""
    node.run(["rm", "-rf", FOLDER, _CAPABILITIES])


def _file(name: str) -> str:
    gpu, _, rest = name.partition("/")
    return f"{_CAPABILITIES}/{gpu}/mig/{rest}" if rest else f"{_CAPABILITIES}/mig/{name}"


def _write(node: Node, place: str, text: str) -> None:
    path = node.root / place.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
