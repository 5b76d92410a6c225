"""Writes what ``make cluster`` needs to turn a cluster's bare nodes into GPU nodes with grapnel.

A folder with a declaration, the inventory of the nodes and an example pod. Applying it is left to grapnel.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lab.cluster.controller import POOL
from lab.cluster.errors import ClusterError
from lab.cluster.spec import Engine
from lab.cluster.tour import Tour
from lab.machine.folders import write_atomic

if TYPE_CHECKING:
    from lab.cluster.cluster import Cluster

CHECKOUT = Path(__file__).parents[2]
PAYLOAD = CHECKOUT / "dist" / "payload"
LOG_LINES = 30
TOUR_PAGE = "docs/tour.md"
NAME_VARIABLE = "GRAPNEL_LAB_CLUSTER"  # the cluster that commands are about, unless they name one
DECLARATION = """\
apiVersion: grapnel.dev/v1alpha1
kind: GpuStack
metadata:
  name: {name}
spec:
{nodes}  driver:
    version: "{driver}"
    {module}
  runtime:
    entitlement: kubelet
  plugin:
    resource: nvidia.com/gpu
"""
SELECTED = f"  nodeSelector:\n    matchLabels: {{{POOL}: gpu}}\n"
PROVIDED = "kernelModule: none # the lab provides the module on these nodes"
OWN = "companions: [] # persistenced needs a device that a simulated GPU does not have"
CRIO_SETTINGS = """\
grapnel_stack:
  runtime:
    engine: crio
"""
POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: smi
spec:
  runtimeClassName: nvidia
  restartPolicy: Never
  containers:
    - name: smi
      image: docker.io/local/gpu-shell:1
      command: [nvidia-smi, -L]
      resources:
        limits:
          nvidia.com/gpu: 1
"""


def write_project(cluster: Cluster, folder: Path, tour: Tour | None = None) -> None:
    """Write declaration, inventory, an example pod and the files of a tour; an existing declaration stays as it is."""
    tour = tour or Tour()
    folder.mkdir(parents=True, exist_ok=True)
    declaration = folder / "grapnel.yaml"
    if not declaration.exists():
        write_atomic(declaration, render_declaration(cluster, tour.former, PROVIDED))
    tour.write_files(folder, render_declaration(cluster, tour.version, OWN))
    write_atomic(folder / "pod.yaml", POD)
    inventory = folder / "inventory.yaml"
    if inventory.exists() and not inventory.is_symlink():
        raise ClusterError(f"{inventory} exists and was not written by the lab", hint="choose another folder")
    inventory.unlink(missing_ok=True)
    inventory.symlink_to(cluster.site.inventory_path)
    write_settings(cluster, folder)


def write_stack(cluster: Cluster, folder: Path, tour: Tour | None = None) -> Path:
    """Write a GpuStack, an example pod and the files of a tour through the controller; return the GpuStack's file."""
    tour = tour or Tour()
    folder.mkdir(parents=True, exist_ok=True)
    stack = folder / "gpustack.yaml"
    if not stack.exists():
        write_atomic(stack, render_declaration(cluster, tour.former, PROVIDED, SELECTED))
    tour.write_files(folder, render_declaration(cluster, tour.version, OWN, SELECTED))
    write_atomic(folder / "pod.yaml", POD)
    return stack


def render_declaration(cluster: Cluster, driver: str, module: str, nodes: str = "") -> str:
    """Return a declaration for an inventory; with ``nodes``, a GpuStack for those of a cluster."""
    return DECLARATION.format(name=cluster.name, driver=driver, module=module, nodes=nodes)


def write_settings(cluster: Cluster, folder: Path) -> None:
    """Write per-node overrides of the declaration next to the inventory: another engine."""
    for node in cluster.spec.nodes:
        if node.engine is Engine.CRIO:
            (folder / "host_vars").mkdir(exist_ok=True)
            write_atomic(folder / "host_vars" / f"{node.name}.yaml", CRIO_SETTINGS)


def apply_project(cluster: Cluster, folder: Path, *options: str, log: Path | None = None) -> None:
    """Run ``grapnel apply`` in the folder, its output on this terminal or in ``log``. Raises ``ClusterError``."""
    grapnel = str(Path(sys.executable).parent / "grapnel")
    command = [grapnel, "apply", "-i", "inventory.yaml", "--yes", *options]
    environment = {
        **os.environ,
        "GRAPNEL_PAYLOAD": str(PAYLOAD),
        "KUBECONFIG": str(cluster.kubeconfig),
    }
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(log.open("w")) if log else None
        errors = subprocess.STDOUT if log else None
        process = stack.enter_context(
            subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=errors)
        )
        try:
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()  # it ends what it has started on the nodes, and keeps writing until then
            raise
    if code:
        said = "".join(log.read_text().splitlines(keepends=True)[-LOG_LINES:]) if log else ""
        hint = f"{said}try it again: cd {shlex.quote(str(folder))} && {shlex.join(command)}"
        raise ClusterError(f"grapnel apply ended with status {code}", hint=hint)


def render_invitation(cluster: Cluster, folder: Path) -> str:
    """Return commands to paste, which work in any working folder: what can be looked at, and a tour at the end."""
    return _invitation(cluster, folder, Tour().commands(), "its driver upgraded while it is at work")


def render_stack_invitation(cluster: Cluster, folder: Path) -> str:
    """Return the same where the controller has the nodes."""
    what = "its driver upgraded by the controller while it is at work"
    return _invitation(cluster, folder, Tour().controller_commands(cluster.name), what)


def _invitation(cluster: Cluster, folder: Path, commands: tuple[str, ...], what: str) -> str:
    tour = "\n".join(commands)
    return f"""\
{render_settings(cluster, folder)}
grapnel plan
kubectl get nodes -o custom-columns=NODE:.metadata.name,GPUS:.status.allocatable.nvidia\\\\.com/gpu
kubectl apply -f pod.yaml; sleep 3; kubectl logs smi; kubectl delete -f pod.yaml
make -C {shlex.quote(str(CHECKOUT))} cluster-status      # and cluster-down, when you are done

and to see {what} ({CHECKOUT / TOUR_PAGE}):

{tour}"""


def render_settings(cluster: Cluster, folder: Path) -> str:
    """Return what a shell needs for the commands that are shown."""
    binaries = f"{Path(sys.executable).parent}:{cluster.control_plane.programs}"
    return f"""\
export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))} PATH={shlex.quote(binaries)}:$PATH
export GRAPNEL_PAYLOAD={shlex.quote(str(PAYLOAD))} PYTHONPATH={shlex.quote(str(CHECKOUT))}
export {NAME_VARIABLE}={cluster.name}
cd {shlex.quote(str(folder))}"""
