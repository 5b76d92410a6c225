"""Times the node daemon's half of a driver change on a node: release, verify and resume, as the playbooks call them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.nodes import Node, Site

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = "/usr/lib/grapnel/node/grapnel-node"
EXPECTATION = "grapnel.dev/expectation/v1alpha1"
TIMEOUT_S = 90
DECLARATION = """\
apiVersion: grapnel.dev/v1alpha1
kind: GpuStack
spec: {driver: {enabled: false}, runtime: {enabled: false}}
"""


@dataclass(frozen=True)
class Verbs:
    """Seconds of each verb in one driver change, and of three commands that do nothing, called the same way.

    ``cpu_s`` are the processor seconds of the whole node during the verbs.
    """

    release_s: float
    verify_s: float
    resume_s: float
    nothing_s: float
    cpu_s: float

    @property
    def total_s(self) -> float:
        """What the three add to a change."""
        return self.release_s + self.verify_s + self.resume_s

    def __str__(self) -> str:
        return f"release {self.release_s:.2f}, verify {self.verify_s:.2f}, resume {self.resume_s:.2f}"


def install_daemon(site: Site, node: Node) -> None:
    """Bring the daemon onto a node, and nothing else."""
    with tempfile.TemporaryDirectory(prefix="grapnel-bench-") as folder:
        declaration = Path(folder, "grapnel.yaml")
        declaration.write_text(DECLARATION)
        where = ["-f", str(declaration), "-i", str(site.inventory_path), node.name, "--no-cluster"]
        command = [str(Path(sys.executable).with_name("grapnel")), "apply", "--yes", *where]
        environment = {**os.environ, "GRAPNEL_PAYLOAD": str(ROOT / "dist" / "payload"), "XDG_STATE_HOME": folder}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"grapnel apply: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def release(node: Node) -> float:
    """Take the GPUs out of service; returns the seconds that it took."""
    return _call(node, "release")


def verify(node: Node, version: str) -> float:
    """Compare the driver with what was declared and what was remembered; returns the seconds that it took."""
    expectation = {"schema": EXPECTATION, "driverVersion": version, "allocation": True}
    return _call(node, "verify", "--expect", "-", given=json.dumps(expectation))


def resume(node: Node) -> float:
    """Offer the GPUs again; returns the seconds that it took."""
    return _call(node, "resume")


def nothing(node: Node) -> float:
    """Return the seconds of as many commands that do nothing as there are verbs."""
    return sum(_timed(node, ["true"]) for _ in range(3))


def _call(node: Node, verb: str, *words: str, given: str | None = None) -> float:
    return _timed(node, [LAUNCHER, verb, "--json", "--timeout", str(TIMEOUT_S), *words], given)


def _timed(node: Node, command: list[str], given: str | None = None) -> float:
    began = time.monotonic()
    done = node.run(command, check=False, timeout_s=TIMEOUT_S, input_text=given)
    took = time.monotonic() - began
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:2])}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return took
