"""Allocates on every device, side by side, within a time limit: a process that is late is killed, its device named.

Also tells whether there is a libcuda, and of which version.

Not here: CUDA itself (`probe`), which devices, and what a failure means for the node.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plugin.driver.nvml.loading.root import HOST, find_below

if TYPE_CHECKING:
    from collections.abc import Sequence

SONAME = "libcuda.so.1"
PROBE = Path(__file__).with_name("probe.py")
_ASK_S = 10.0
_END_S = 1.0
_LOOK_S = 0.01  # for one that has ended already, when another one took all the time
# What an operator can do about a result of CUDA (cuda.h, CUresult).
_HINTS = {
    2: "who holds its memory? nvidia-smi",
    46: "its compute mode forbids it, or another process has it for itself: nvidia-smi -q -d COMPUTE",
    100: "cuda sees no such gpu",
    802: "the fabric is not ready: systemctl status nvidia-fabricmanager",
    803: "the loaded kernel module is of another version than libcuda.so.1",
}


def path_of(driver_root: Path) -> str:
    """Return what libcuda is loaded by, if it is there."""
    if driver_root == HOST:
        return SONAME
    return str(find_below(driver_root, SONAME) or driver_root / SONAME)


def find_libcuda(driver_root: Path = HOST) -> str | None:
    """Return what to load libcuda by, None where the driver is installed without it."""
    if driver_root == HOST:
        return None if ask_version(SONAME) is None else SONAME
    path = find_below(driver_root, SONAME)
    return None if path is None else str(path)


def ask_version(library: str, timeout_s: float = _ASK_S) -> int | None:
    """Return the CUDA version of a libcuda (12040 is 12.4, 0 not known), None of one that cannot be loaded in time.

    By another process: the library cannot be unloaded, and in this one its name may be taken (`nvml.without_cuda`).
    """
    process = _start("", library, "version")
    try:
        answer = json.loads(process.communicate(timeout=timeout_s)[0])
    except (ValueError, subprocess.TimeoutExpired):
        return None
    finally:
        _end(process)
    version = answer.get("version") if isinstance(answer, dict) else None
    return version if isinstance(version, int) else None


def try_devices(devices: Sequence[str], library: str, timeout_s: float) -> dict[str, str]:
    """Return what is wrong with each device (UUID of a GPU or of a MIG device), "" where memory could be used.

    No process is left when this returns or raises, but for one that even SIGKILL does not end: it is named.
    """
    deadline = time.monotonic() + timeout_s
    processes = {}
    try:
        for device in devices:
            processes[device] = _start(device, library)
        return {device: _outcome(process, deadline, timeout_s) for device, process in processes.items()}
    finally:
        for process in processes.values():
            _end(process)


def _start(device: str, library: str, *words: str) -> subprocess.Popen[bytes]:
    environment = {key: value for key, value in os.environ.items() if key in {"PATH", "LD_LIBRARY_PATH"}}
    environment["CUDA_VISIBLE_DEVICES"] = device
    environment["CUDA_MPS_PIPE_DIRECTORY"] = os.devnull  # never a server of MPS: it would be left behind
    command = [sys.executable, "-I", "-S", str(PROBE), library, str(os.getpid()), *words]
    return subprocess.Popen(
        command,
        env=environment,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _outcome(process: subprocess.Popen[bytes], deadline: float, timeout_s: float) -> str:
    try:
        said, _ = process.communicate(timeout=max(_LOOK_S, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        is_left = not _end(process)
        left = f"; process {process.pid} cannot be ended: reboot" if is_left else ""
        return f"hangs: memory could not be used within {timeout_s:.3g} s{left}"
    return _words(said, process.returncode)


def _end(process: subprocess.Popen[bytes]) -> bool:
    """Kill the process and what it may have started; whether it is gone."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
    if process.stdout is not None:
        process.stdout.close()
    return process.poll() is not None


def _words(said: bytes, code: int) -> str:
    try:
        answer: dict[str, Any] = json.loads(said)
    except ValueError:
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return f"the process that allocates {how}"
    if "call" in answer:
        number = int(answer["code"])
        hint = f": {_HINTS[number]}" if number in _HINTS else ""
        return f"{answer['call'].partition('_v')[0]} fails with {answer['name'] or 'an unknown error'} ({number}){hint}"
    return str(answer.get("problem", ""))
