"""What the node daemon costs: memory, wake-ups, start, and the time of an Allocate.

Each figure stands beside its floor: a bare interpreter for memory, an empty call of the same server for
Allocate. The driver is the laboratory's simulated NVML; a real one maps more memory into any process that
uses it. Run: python3 bench/plugin.py [--gpus 8] [--calls 2000] [--idle-seconds 20] [--nvml-call-us 0]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import h2

from lab.kubelet import Kubelet
from lab.kubelet.endpoint import Endpoint
from lab.nvml import install, models

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RESOURCE = "nvidia.com/gpu"
REPOSITORY = Path(__file__).resolve().parents[1]
MODULES = {
    "bare python3": "pass",
    "+ ctypes, pynvml": "import pynvml",
    "+ asyncio, no ssl": "sys.modules['ssl'] = None; import asyncio",
    "+ asyncio": "import asyncio",
    "+ asyncio, h2, no ssl": "sys.modules['ssl'] = None; import asyncio, h2.connection",
}


@dataclass(frozen=True)
class Memory:
    """One process, in MiB. PSS shares pages with other processes of the same interpreter, USS does not count them."""

    rss: float
    pss: float
    uss: float

    def __str__(self) -> str:
        return f"RSS {self.rss:5.1f}  PSS {self.pss:5.1f}  USS {self.uss:5.1f} MiB"


def memory_of(pid: int) -> Memory:
    """Read smaps_rollup."""
    sizes: Counter[str] = Counter()
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        sizes[name] = int(rest.split()[0])
    uss = sizes["Private_Clean"] + sizes["Private_Dirty"]
    return Memory(sizes["Rss"] / 1024, sizes["Pss"] / 1024, uss / 1024)


class Interpreter:
    """A copy of this interpreter, and a release of the daemon as nodes have it: launcher, modules, compiled libraries.

    Nobody else maps its files, so PSS is that of a node where nothing else runs the same Python.
    """

    def __init__(self, folder: Path) -> None:
        (folder / "bin").mkdir()
        (folder / "lib").symlink_to(Path(sys.base_prefix) / "lib")
        shutil.copy(Path(sys.executable).resolve(), folder / "bin/python3")
        self.command = (str(folder / "bin/python3"), "-IS")  # as the launcher's first line has it
        self.launcher = folder / "grapnel-node"
        self._site = folder / "site"
        site = Path(h2.__file__).parents[1]
        for name in ("h2", "hpack", "hyperframe"):
            shutil.copytree(site / name, folder / "site" / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(site / "pynvml.py", folder / "site")
        shutil.copytree(REPOSITORY / "plugin", folder / "plugin", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(REPOSITORY / "plugin/launcher.py", self.launcher)
        subprocess.run([*self.command, "-m", "compileall", "-q", folder / "plugin", self._site], check=True)

    def memory_of_script(self, script: str) -> Memory:
        """Run a line, and look once it waits on its input."""
        script = f"import sys; sys.path.insert(0, {str(self._site)!r}); {script}\nprint(flush=True)\ninput()"
        pipe = subprocess.PIPE
        with subprocess.Popen([*self.command, "-c", script], stdin=pipe, stdout=pipe) as process:
            if process.stdout is not None:
                process.stdout.readline()
            found = memory_of(process.pid)
            process.kill()
        return found


def wake_ups(pid: int, seconds: float) -> tuple[float, Counter[str]]:
    """Count voluntary context switches per second, by thread name; the daemon's own threads are called python."""

    def counts() -> Counter[str]:
        found: Counter[str] = Counter()
        for task in Path(f"/proc/{pid}/task").iterdir():
            line = next(line for line in (task / "status").read_text().splitlines() if line.startswith("voluntary"))
            found[(task / "comm").read_text().strip()] += int(line.split()[1])
        return found

    before = counts()
    time.sleep(seconds)
    spent = counts()
    spent.subtract(before)
    return spent.total() / seconds, spent


def percentiles(call: Callable[[], object], times: int) -> str:
    """Time a call; the first hundred are not counted."""
    taken: list[float] = []
    for _ in range(times + 100):
        start = time.perf_counter()
        call()
        taken.append((time.perf_counter() - start) * 1000)
    counted = taken[100:]
    return f"min {min(counted):.3f}  p50 {median(counted):.3f}  p99 {quantiles(counted, n=100)[98]:.3f} ms"


class Node:
    """The daemon as it is shipped, below a scratch folder."""

    def __init__(self, folder: Path, interpreter: Interpreter, gpus: int, nvml_call_us: int) -> None:
        machine = replace(models.machine("a100-40gb", gpus), call_cost_us=nvml_call_us)
        library = install(folder / "driver", "550.163.01", machine)
        self.root = folder / "kubelet"
        (folder / "dev").mkdir()
        for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", *(f"nvidia{minor}" for minor in range(gpus))):
            (folder / "dev" / name).symlink_to("/dev/null")
        config = {"kubeletRoot": str(self.root), "devRoot": str(folder / "dev"), "hookPath": "/bin/true"}
        config |= {"adminSocket": str(folder / "run/node.sock"), "stateFolder": str(folder / "state")}
        (folder / "node.json").write_text(json.dumps(config))
        self._command = [*interpreter.command, str(interpreter.launcher), "run", "--config", str(folder / "node.json")]
        self._environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(library.parent)}

    def start(self) -> subprocess.Popen[bytes]:
        """Start the daemon."""
        return subprocess.Popen(self._command, env=self._environment, stderr=subprocess.DEVNULL)


def time_start(node: Node, gpus: int) -> float:
    """Return milliseconds from exec to the first list at a kubelet that is there."""
    with Kubelet(node.root) as kubelet:
        start = time.perf_counter()
        process = node.start()
        kubelet.wait_for_devices(RESOURCE, gpus, timeout_s=30)
        taken = (time.perf_counter() - start) * 1000
        process.terminate()
        process.wait()
    return taken


def measure(node: Node, arguments: argparse.Namespace) -> None:
    """Print the figures of one running daemon."""
    starts = [time_start(node, arguments.gpus) for _ in range(5)]
    print(f"start → first list, {arguments.gpus} GPUs    min {min(starts):.0f}  median {median(starts):.0f} ms")
    with Kubelet(node.root) as kubelet:
        process = node.start()
        ids = kubelet.wait_for_devices(RESOURCE, arguments.gpus, timeout_s=30)
        time.sleep(2)
        total, by_thread = wake_ups(process.pid, arguments.idle_seconds)
        own = by_thread["python"] + by_thread["python3"]
        print(f"idle memory                     {memory_of(process.pid)}")
        own_rate = own / arguments.idle_seconds
        print(f"idle wake-ups                   {total:.1f}/s, of which our own threads {own_rate:.1f}/s")
        endpoint = Endpoint(kubelet.folder, "grapnel-nvidia.com_gpu.sock")
        print(f"empty call (options)            {percentiles(endpoint.options, arguments.calls)}")
        print(f"Allocate, one GPU               {percentiles(lambda: endpoint.allocate(ids[:1]), arguments.calls)}")
        for size in (size for size in (1, 2, 3, 4, 8) if size < len(ids)):
            preferred = percentiles(partial(endpoint.preferred, ids, [], size), arguments.calls // 10)
            print(f"GetPreferredAllocation, {size} of {len(ids):2} {preferred}")
        print(f"memory after that               {memory_of(process.pid)}")
        endpoint.close()
        process.terminate()
        process.wait()


def main(argv: Sequence[str] | None = None) -> None:
    """Print floors first, then the daemon."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--idle-seconds", type=float, default=20)
    parser.add_argument("--nvml-call-us", type=int, default=0, help="what each call of NVML takes, in microseconds")
    arguments = parser.parse_args(argv)
    print(f"python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        interpreter = Interpreter(folder)
        for title, script in MODULES.items():
            print(f"floor: {title:24} {interpreter.memory_of_script(script)}")
        measure(Node(folder, interpreter, arguments.gpus, arguments.nvml_call_us), arguments)


if __name__ == "__main__":
    main()
