"""Device plugins as processes, each on a node of its own: a folder, simulated GPUs, and a kubelet that stands in.

NVIDIA's socket folder is fixed (``/var/lib/kubelet/device-plugins``), so it lives in a mount namespace where that is
its node's folder. Its start has one more exec than ours, of ``nsenter``: a millisecond.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import h2

from bench.daemons.process import Memory, memory_of
from lab.kubelet import Kubelet
from lab.kubelet.endpoint import Endpoint
from lab.nvml import install, models

if TYPE_CHECKING:
    from collections.abc import Iterator

RESOURCE = "nvidia.com/gpu"
OURS, THEIRS = "grapnel", "NVIDIA"
REPOSITORY = Path(__file__).resolve().parents[2]
DRIVER = "550.163.01"
_READY_S = 30.0
_NAMESPACE = """
set -e
mount -t tmpfs none /var/lib
mkdir /var/lib/kubelet
mount --rbind "$0" /var/lib/kubelet
exec sleep infinity
"""


class Release:
    """A copy of an interpreter, and the daemon as nodes have it: launcher, modules, compiled libraries.

    Nobody else maps its files, so PSS is that of a node where nothing else runs the same Python.
    """

    def __init__(self, folder: Path, python: Path | None = None) -> None:
        program = (python or Path(sys.executable)).resolve()
        (folder / "bin").mkdir(parents=True)
        (folder / "lib").symlink_to(program.parents[1] / "lib")
        shutil.copy(program, folder / "bin/python3")
        self.python = (str(folder / "bin/python3"), "-IS")  # as the launcher's first line has it
        self.launcher = folder / "grapnel-node"
        self._site = folder / "site"
        found, own = Path(h2.__file__).parents[1], shutil.ignore_patterns("__pycache__")
        for name in ("h2", "hpack", "hyperframe"):
            shutil.copytree(found / name, self._site / name, ignore=own)
        shutil.copy(found / "pynvml.py", self._site)
        shutil.copytree(REPOSITORY / "plugin", folder / "plugin", ignore=own)
        shutil.copy(REPOSITORY / "plugin/launcher.py", self.launcher)
        subprocess.run([*self.python, "-m", "compileall", "-q", folder / "plugin", self._site], check=True)

    def time_script(self, script: str) -> float:
        """Run a line to its end; return the milliseconds."""
        script = f"import sys; sys.path.insert(0, {str(self._site)!r}); {script}\nimport os; os._exit(0)"
        start = time.perf_counter()
        subprocess.run([*self.python, "-c", script], check=True)
        return (time.perf_counter() - start) * 1000

    def memory_of_script(self, script: str) -> Memory:
        """Run a line, and look once it waits on its input."""
        script = f"import sys; sys.path.insert(0, {str(self._site)!r}); {script}\nprint(flush=True)\ninput()"
        pipe = subprocess.PIPE
        with subprocess.Popen([*self.python, "-c", script], stdin=pipe, stdout=pipe) as process:
            if process.stdout is not None:
                process.stdout.readline()
            found = memory_of(process.pid)
            process.kill()
        return found


@dataclass(frozen=True)
class Subject:
    """One device plugin, ready to be started: its command, and where its node has what."""

    name: str
    command: tuple[str, ...]
    kubelet_root: Path
    library: Path  # its NVML, and the state of its GPUs
    endpoint: str
    gpus: int

    def start(self) -> subprocess.Popen[bytes]:
        """Start it; what it says is not kept."""
        environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(self.library.parent)}
        return subprocess.Popen(self.command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@dataclass
class Running:
    """A plugin that has shown its list."""

    subject: Subject
    kubelet: Kubelet
    process: subprocess.Popen[bytes]
    ids: list[str]
    endpoint: Endpoint

    @property
    def pid(self) -> int:
        """The plugin's process."""
        return self.process.pid


@contextmanager
def running(subject: Subject) -> Iterator[Running]:
    """Start a kubelet and the plugin; end both."""
    with Kubelet(subject.kubelet_root) as kubelet:
        process = subject.start()
        try:
            ids = kubelet.wait_for_devices(RESOURCE, subject.gpus, timeout_s=_READY_S)
            endpoint = Endpoint(kubelet.folder, subject.endpoint)
            yield Running(subject, kubelet, process, ids, endpoint)
            endpoint.close()
        finally:
            process.terminate()
            process.wait()


def ours(
    folder: Path,
    release: Release,
    gpus: int,
    nvml_call_us: int = 0,
    *,
    with_metrics: bool = False,
    replicas: int = 1,
) -> Subject:
    """Return our daemon on a new node; metrics are off until asked for. With replicas, each GPU is so many shares."""
    library, root = _node(folder, gpus, nvml_call_us)
    (folder / "dev").mkdir()
    for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", *(f"nvidia{minor}" for minor in range(gpus))):
        (folder / "dev" / name).symlink_to("/dev/null")
    config = {
        "kubeletRoot": str(root),
        "devRoot": str(folder / "dev"),
        "hookPath": "/bin/true",
        "adminSocket": str(folder / "run/node.sock"),
        "stateFolder": str(folder / "state"),
        "metricsAddress": f"127.0.0.1:{_free_port()}" if with_metrics else "",
    }
    if replicas > 1:
        config["nvidiaConfigFile"] = str(folder / "nvidia.json")
        share_gpus(folder, replicas)
    (folder / "node.json").write_text(json.dumps(config))
    command = (*release.python, str(release.launcher), "run", "--config", str(folder / "node.json"))
    return Subject(OURS, command, root, library, "grapnel-nvidia.com_gpu.sock", gpus * replicas)


def share_gpus(folder: Path, replicas: int) -> None:
    """Declare how many shares each GPU of our daemon's node is; it reads that on SIGHUP."""
    shares = {"resources": [{"name": RESOURCE, "replicas": replicas}]}
    (folder / "nvidia.json").write_text(json.dumps({"version": "v1", "sharing": {"timeSlicing": shares}}))


@contextmanager
def theirs(folder: Path, program: Path, gpus: int, nvml_call_us: int = 0) -> Iterator[Subject]:
    """Give NVIDIA's plugin on a new node, in a mount namespace that ends with it; needs root."""
    library, root = _node(folder, gpus, nvml_call_us)
    isolated = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _NAMESPACE, str(root)]
    with subprocess.Popen(isolated) as holder:
        mounts = Path(f"/proc/{holder.pid}/mounts")
        while " /var/lib/kubelet " not in mounts.read_text():
            if holder.poll() is not None:
                raise SystemExit("no mount namespace could be made: are you root?")
            time.sleep(0.01)
        command = ("nsenter", f"--mount=/proc/{holder.pid}/ns/mnt", "--", str(program), "--fail-on-init-error=true")
        try:
            yield Subject(THEIRS, command, root, library, "nvidia-gpu.sock", gpus)
        finally:
            holder.kill()


def _node(folder: Path, gpus: int, nvml_call_us: int) -> tuple[Path, Path]:
    """Return the simulated NVML and the kubelet's root of a new node."""
    machine = replace(models.machine("a100-40gb", gpus), call_cost_us=nvml_call_us)
    root = folder / "kubelet"
    (root / "device-plugins").mkdir(parents=True)
    return install(folder / "driver", DRIVER, machine), root


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    return port
