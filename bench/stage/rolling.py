"""Three nodes whose driver has a module of DKMS, in two waves: a canary, and two nodes that are one domain."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from bench.stage.driver_changes import NEW
from lab import modules
from lab.nodes import NodeSpec
from lab.nvml import state as nvml_state

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from lab.nodes import Node, Site
    from lab.nvml.machine import Machine

CANARY, LEFT, RIGHT = NAMES = ("r1", "r2", "r3")
RACK = "rack:\n  hosts: {r2: {}, r3: {}}\n"
DECLARATION = """\
apiVersion: grapnel.dev/v1alpha1
kind: GpuStack
spec:
  driver: {{version: "{version}", companions: []}}
  runtime: {{enabled: false}}
  rollout:
    maxParallel: 2
    maxUnavailable: 2
    maxFailures: 2
    domains: {{groups: [rack]}}
    waves:
      - {{name: canary, hosts: [r1]}}
      - {{}}
"""  # persistenced talks to a device that the lab does not have
# Rebuilding the initramfs, and reading all modules of a kernel again and again, would take longer than the changes.
# What is left is what the driver's modules need of the kernel's; a builder of Debian 12 has no kernel, only headers.
TRIM = """
rm -f /boot/initrd.img-*
cd /usr/lib/modules/"$(uname -r)"
[ -d kernel ] || exit 0
rm -rf kernel/fs kernel/net kernel/sound
for each in kernel/drivers/*; do case $each in */gpu|*/video|*/i2c|*/acpi|*/char) ;; *) rm -rf "$each" ;; esac; done
depmod -a
"""
CUDA_OUT_OF_MEMORY = 2


class Fleet:
    """The nodes, and who operates them from a folder: ``run`` runs a command there."""

    def __init__(
        self, nodes: dict[str, Node], folder: Path, run: Callable[..., subprocess.CompletedProcess[str]]
    ) -> None:
        self.nodes = nodes
        self._folder = folder
        self._run = run

    def declare(self, version: str) -> None:
        """Declare a version, and hand its modules over, so that no node compiles."""
        self._folder.joinpath("grapnel.yaml").write_text(DECLARATION.format(version=version))
        done = self._grapnel("plan", "--json", "--no-cluster")
        if done.returncode:
            raise RuntimeError(f"grapnel plan: {done.stdout}{done.stderr}")
        for plan in json.loads(done.stdout)["plans"]:
            staged = [str(item["to"]) for item in plan["items"] if item["action"] == "stage"]
            if staged:
                node = self.nodes[plan["node"]]
                modules.hand_over(node, staged[0], modules.archive(version, "proprietary", node.kernel_release))

    def change(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a verb that changes the nodes."""
        return self._grapnel(verb, "--yes", "--no-cluster", *words)

    def stage(self) -> subprocess.CompletedProcess[str]:
        """Stage what is declared, GPUs in service."""
        return self._grapnel("stage")

    def records(self) -> dict[str, dict[str, Any]]:
        """Return what is remembered of each node's upgrade (docs/contracts/node-state)."""
        (path,) = (self._folder / "state" / "grapnel").glob("node-state-*.json")
        return {name: entry["record"] for name, entry in json.loads(path.read_text())["nodes"].items()}

    def fail(self, name: str) -> None:
        """Let the newer driver find no memory on a node's last GPU; with the older one it is in order."""
        nvml_state.update(self.nodes[name].nvml_library, _failing)

    def heal(self, name: str) -> None:
        """End that."""
        nvml_state.update(self.nodes[name].nvml_library, lambda machine: machine.without_failures())

    def _grapnel(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        return self._run("grapnel", verb, "-i", "inventory.yaml", "-i", "racks.yaml", *words)


def boot(site: Site, folder: Path) -> dict[str, Node]:
    """Boot the nodes, with kernel, headers and dkms and nothing of a driver; the folder gets their inventory."""
    nodes = {name: site.up(NodeSpec(name, suite="trixie", gpus=2, builder=True)) for name in NAMES}
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda node: node.run(["sh", "-e", "-c", TRIM]), nodes.values()))
    folder.joinpath("inventory.yaml").symlink_to(site.inventory_path)
    folder.joinpath("racks.yaml").write_text(RACK)
    return nodes


def _failing(machine: Machine) -> Machine:
    return machine.with_failure("cuMemAlloc", CUDA_OUT_OF_MEMORY, len(machine.gpus) - 1, NEW)
