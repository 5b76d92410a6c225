"""The tour of a driver upgrade with which ``make cluster`` ends: the files that it needs, and its commands.

It is told from a terminal, and through the controller. ``docs/tour.md`` shows what a person sees at each command, and
``tests/e2e/test_tour.py`` types them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab.cluster.spec import DRIVER_MODULE
from lab.machine.folders import write_atomic
from lab.nvml import state

if TYPE_CHECKING:
    from pathlib import Path

    from lab.nodes import Node

NEXT_DRIVER = "535.309.01"  # which both suites have with its kernel module
CUDA_OUT_OF_MEMORY = 2
SERVE = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: serve
spec:
  replicas: 3
  selector:
    matchLabels: {app: serve}
  template:
    metadata:
      labels: {app: serve}
    spec:
      runtimeClassName: nvidia
      terminationGracePeriodSeconds: 1
      containers:
        - name: serve
          image: docker.io/local/gpu-shell:1
          command: [sh, -c, "nvidia-smi -L > /tmp/index.html && exec busybox httpd -f -p 8080 -h /tmp"]
          readinessProbe:
            httpGet: {path: /index.html, port: 8080}
            periodSeconds: 1
          resources:
            limits: {nvidia.com/gpu: 2}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: serve
spec:
  minAvailable: 2
  selector:
    matchLabels: {app: serve}
"""


@dataclass(frozen=True)
class Tour:
    """An upgrade from one version to another: of these nodes first, then of one that fails and goes back."""

    version: str = NEXT_DRIVER
    former: str = DRIVER_MODULE
    upgraded: tuple[str, ...] = ("n1", "n2")
    failing: str = "n3"

    def commands(self) -> tuple[str, ...]:
        """Return what is typed at a terminal that changes nodes, in the folder of the declaration."""
        return (
            "kubectl apply -f serve.yaml && kubectl rollout status deployment/serve",
            "cp next.yaml grapnel.yaml && grapnel plan",
            f"grapnel status --serve & grapnel apply --yes {' '.join(self.upgraded)}; kill $!",
            f"python -m lab cluster fail {self.failing} {self.version}; grapnel apply --yes",
            "grapnel rollback --yes",
        )

    def controller_commands(self, stack: str) -> tuple[str, ...]:
        """Return what is typed where the controller changes the nodes of a GpuStack."""
        wait = f"kubectl wait gpustack/{stack} --timeout=15m --for=condition"
        watch = "grapnel status --serve & kubectl get gpustacks --watch &"
        return (
            "kubectl apply -f serve.yaml && kubectl rollout status deployment/serve",
            "grapnel plan -f next.yaml",
            f"python -m lab cluster fail {self.failing} {self.version}",
            f"{watch} kubectl apply -f next.yaml && {wait}=Degraded; kill $(jobs -p)",
            "kubectl get gpustacks -o wide; grapnel status",
            f"grapnel rollback --yes {' '.join(self.upgraded)} && grapnel status --watch",
            f"kubectl apply -f gpustack.yaml && {wait}=AsDeclared",
        )

    def write_files(self, folder: Path, declaration: str) -> None:
        """Write the work that is at stake, and the declaration of the driver that is to come."""
        write_atomic(folder / "serve.yaml", SERVE)
        write_atomic(folder / "next.yaml", declaration)


def fail(node: Node, version: str) -> None:
    """Let a driver of this version find no memory on the node's last GPU; with others it is in order."""
    last = len(node.gpus) - 1
    state.update(
        node.nvml_library, lambda machine: machine.with_failure("cuMemAlloc", CUDA_OUT_OF_MEMORY, last, version)
    )


def heal(node: Node) -> None:
    """End that."""
    state.update(node.nvml_library, lambda machine: machine.without_failures())
