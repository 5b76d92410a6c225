"""A node whose driver has a module of DKMS, and the operator who changes it.

What is simulated is the kernel that loads the modules. They are built beforehand by the same dkms (``lab.modules``)
and handed over, so that no test compiles; that a node compiles while it is staged is in
``tests/playbooks/staging/test_on_node.py``.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.stage.rolling import TRIM
from lab import modules
from lab.nodes import NodeSpec, Site
from tests.journey.conftest import Controller
from tests.journey.test_driver_swap import is_there, works_with

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from lab.nodes import Node

TIMEOUT_S = 900  # of a command: a first installation unpacks and indexes a lot, beside whatever else runs
HOME = "/var/lib/grapnel/driver"
PROGRAM = "/usr/lib/grapnel/driver/grapnel-driver"
PACKAGES = ("libcuda1", "libnvidia-ml1", "nvidia-kernel-dkms", "nvidia-kernel-support", "nvidia-smi")
DECLARATION = """\
apiVersion: grapnel.dev/v1alpha1
kind: GpuStack
spec:
  driver: {{version: "{version}", kernelModule: {module}, companions: []}}
"""  # persistenced talks to a device that the lab does not have
# What was there before: holds, pins, sources, blacklists, packages and modules of a driver.
OPERATOR_S_OWN = """
apt-mark hold make
echo 'blacklist nouveau' > /etc/modprobe.d/no-nouveau.conf
"""
STATE = """
apt-mark showhold
find /etc/apt /etc/modprobe.d /etc/modules-load.d /etc/dkms -type f -exec sha256sum {} + | sort
dpkg-query -W -f '${db:Status-Abbrev}${Package}\\n' | grep -E 'nvidia|libcuda'
dkms status
find /usr/lib/modules /var/lib/dkms -name 'nvidia*'
find /sys/module -maxdepth 1 -name 'nvidia*' # what they had loaded of the kernel's own stays until the next boot
"""


@dataclass
class Operator:
    """Who changes the driver of one node, from a folder with a declaration."""

    node: Node
    controller: Controller

    def declare(self, version: str, module: str = "auto") -> None:
        text = DECLARATION.format(version=version, module=module)
        self.controller.folder.joinpath("grapnel.yaml").write_text(text)

    def plan(self) -> dict[str, Any]:
        done = self.grapnel("plan", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        (plan,) = json.loads(done.stdout)["plans"]
        return dict(plan)

    def grapnel(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        return self.controller.grapnel(verb, self.node.name, *words)

    def apply(self) -> subprocess.CompletedProcess[str]:
        return self.grapnel("apply", "--yes", "--no-cluster")

    def assert_applied(self, version: str) -> None:
        """Apply what is declared, and hold the node to that."""
        done = self.apply()
        assert done.returncode == 0, done.stdout + done.stderr
        self.assert_has(version)

    def assert_refused(self, *words: str) -> None:
        """Hold plan and apply to a refusal in these words, which leaves the node as it is."""
        before = self.state()
        done = self.apply()
        said = " ".join((done.stdout + done.stderr).split())
        assert done.returncode == 1, said
        assert all(each in said for each in words), said
        assert self.state() == before

    def prepare(self, version: str) -> dict[str, Any]:
        """Declare a version, and hand over its module; returns the plan."""
        self.declare(version)
        plan = self.plan()
        archive = modules.archive(version, "proprietary", self.node.kernel_release)
        modules.hand_over(self.node, stage_item(plan), archive)
        return plan

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.node.run([PROGRAM, "status"]).stdout))

    def state(self) -> str:
        """Return what a removal gives back, and a refusal leaves as it is."""
        return self.node.run(["sh", "-c", STATE]).stdout

    def assert_has(self, version: str) -> None:
        """Hold the node to packages, module on disk, module loaded, and the hook's inventory of one version."""
        form = "${db:Status-Abbrev}${source:Upstream-Version}\n"
        shown = self.node.run(["dpkg-query", "--show", "--showformat", form, *PACKAGES]).stdout.splitlines()
        assert shown == [f"hi {version}"] * len(PACKAGES)
        on_disk = self.node.run(["modinfo", "-F", "version", "nvidia-current"]).stdout.strip()
        built = self.node.run(["dkms", "status"]).stdout.splitlines()
        assert on_disk == version
        assert built == [f"nvidia-current/{version}, {self.node.kernel_release}, x86_64: installed"]
        assert works_with(self.node, version)


def stage_item(plan: dict[str, Any]) -> str:
    """Return the name of the change that a plan stages."""
    return next(str(item["to"]) for item in plan["items"] if item["action"] == "stage")


@contextlib.contextmanager
def operating(site: Site, suite: str, folder: Path) -> Iterator[Operator]:
    """Boot a node with kernel, headers and dkms, and nothing of a driver; its operator works in a folder."""
    folder.joinpath("inventory.yaml").symlink_to(site.inventory_path)
    node = site.up(NodeSpec(suite, suite=suite, gpus=2, builder=True))
    for script in (TRIM, OPERATOR_S_OWN):
        node.run(["sh", "-e", "-c", script])
    yield Operator(node, Controller(folder, timeout_s=TIMEOUT_S))
    site.remove(suite)


def removal(operator: Operator, before: str) -> None:
    """What was there before the first driver is there again, and nothing else."""
    done = operator.grapnel("remove", "--driver", "--yes", "--no-cluster")

    assert done.returncode == 0, done.stdout + done.stderr
    assert operator.state() == before
    assert not is_there(operator.node, HOME)
