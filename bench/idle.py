"""Measures the idle cost of the node daemon, wake-ups and CPU, in each state in which a node can wait.

Eight simulated GPUs and default settings; all states are measured at the same time.

Run: python3 bench/idle.py [--seconds 40]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.daemons.process import cpu_s, switches
from lab.kubelet import Kubelet
from lab.nvml import install, models
from lab.nvml.machine import GPU_IS_LOST, Machine

REPOSITORY = Path(__file__).resolve().parents[1]
DAEMON = "import sys; from plugin.cli import main; sys.exit(main())"
DRIVER_NOT_LOADED, VERSION_MISMATCH, UNKNOWN = 9, 18, 999
SETTLING_S = 20.0  # nine starts at once
WHOLE = models.machine("a100-40gb", 8)
RELEASED = "released"


def refusing(code: int) -> Machine:
    """Return a machine on which NVML cannot be initialized."""
    return WHOLE.with_failure("nvmlInitWithFlags", code).with_failure("nvmlInit", code)


STATES: dict[str, Machine | None] = {
    "8 GPUs, all healthy": WHOLE,
    "a GPU that does not answer": WHOLE.with_failure("*", GPU_IS_LOST, 3),
    "XID events fail": WHOLE.with_failure("nvmlEventSetWait", UNKNOWN),
    "a call that hangs": replace(WHOLE, call_cost_us=3_600_000_000),
    "no library": None,
    "no module": refusing(DRIVER_NOT_LOADED),
    "module and library differ": refusing(VERSION_MISMATCH),
    "no GPU": replace(WHOLE, gpus=()),
    RELEASED: WHOLE,
}


def spent(pid: int) -> tuple[int, float]:
    """Return how often the process's threads have gone to sleep, and its CPU time in seconds."""
    return switches(pid), cpu_s(pid)


def start(folder: Path, machine: Machine | None, *, is_released: bool) -> subprocess.Popen[bytes]:
    """Start the daemon as installed on nodes, with its state below a folder."""
    for name in ("lib", "dev", "state"):
        (folder / name).mkdir(parents=True)
    for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", *(f"nvidia{minor}" for minor in range(8))):
        (folder / "dev" / name).symlink_to("/dev/null")
    if machine is not None:
        install(folder / "lib", "550.163.01", machine)
    if is_released:
        (folder / "state/released.json").write_text("{}")
    config = {"kubeletRoot": "kubelet", "devRoot": "dev", "sysRoot": "sys", "stateFolder": "state"}
    config = {key: str(folder / value) for key, value in config.items()}
    config |= {"hookPath": "/bin/true", "adminSocket": str(folder / "run/node.sock")}
    (folder / "node.json").write_text(json.dumps(config))
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "LD_LIBRARY_PATH": str(folder / "lib")}
    command = [sys.executable, "-c", DAEMON, "run", "--config", str(folder / "node.json")]
    return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=40)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        daemons = {}
        for number, (title, machine) in enumerate(STATES.items()):
            folder = Path(name) / str(number)
            stack.enter_context(Kubelet(folder / "kubelet"))
            daemons[title] = stack.enter_context(start(folder, machine, is_released=title == RELEASED))
            stack.callback(daemons[title].kill)
        time.sleep(SETTLING_S)
        before = {title: spent(daemon.pid) for title, daemon in daemons.items()}
        time.sleep(seconds)
        print("| state | wake-ups a second | CPU of a core |\n|---|---|---|")
        for title, daemon in daemons.items():
            woken, busy_s = (now - then for now, then in zip(spent(daemon.pid), before[title], strict=True))
            print(f"| {title} | {woken / seconds:.1f} | {100 * busy_s / seconds:.2f} % |")


if __name__ == "__main__":
    main()
