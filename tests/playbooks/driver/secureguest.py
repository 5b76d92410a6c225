"""Runs in the virtual machine with Secure Boot: asks the collection about modules, and then the kernel itself.

Prints `FACTS {...}`, and for each folder of `/candidates` a line `RESULT {...}`.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, "/collection")
from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.loadable import require_loadable
from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.trust import Signer, write_signers
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.steps import StepError
from ansible_collections.grapnel.node.plugins.module_utils.kernel.exchange import (
    Before,
    KernelModuleError,
    load_all,
    read_loaded,
    unload_all,
)
from ansible_collections.grapnel.node.plugins.module_utils.kernel.modprobe import describe_module
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host
from ansible_collections.grapnel.node.plugins.module_utils.preflight.kernels import read_kernels
from ansible_collections.grapnel.node.plugins.module_utils.preflight.secure_boot import read_secure_boot

VERSION = "550.163.01"
KERNEL = os.uname().release
MODULES = Path("/lib/modules", KERNEL)
SET = "/var/lib/grapnel/driver/sets/tried"
FINIT_MODULE = 313  # of x86_64


def say(kind: str, what: dict[str, Any]) -> None:
    sys.stdout.write(f"{kind} {json.dumps(what)}\n")
    sys.stdout.flush()


def sh(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def ask_kernel(file: Path) -> int:
    """Load a module by the kernel's own call and unload it again; return the error's number, 0 for none."""
    libc = ctypes.CDLL(None, use_errno=True)
    with file.open("rb") as stream:
        if libc.syscall(FINIT_MODULE, stream.fileno(), b"", 0):
            return ctypes.get_errno()
    sh("rmmod", file.stem)
    return 0


def judge(host: Host) -> str:
    """Return what the swap's check says of the set, while the former driver is in service."""
    change = SimpleNamespace(module=VERSION, has_module=True)
    try:
        require_loadable(host, SimpleNamespace(folder=SET, change=change, is_way_back=False))
    except StepError as error:
        return str(error)
    return ""


def swap(host: Host) -> tuple[str, str | None]:
    """Load what is on the disk as a swap does, and unload it; return the complaint, and the version that was loaded."""
    try:
        load_all(host, Before(), VERSION)
    except KernelModuleError as error:
        return str(error), None
    loaded = read_loaded(host)
    unload_all(host, loaded, Clock())
    return "", loaded.version


def try_candidate(host: Host, folder: Path) -> None:
    place = MODULES / "updates"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder, place)
    sh("depmod", "--all")
    sh("dmesg", "--clear")
    file = place / "nvidia.ko"
    key_id = (folder / "key_id").read_text()
    write_signers(host, SET, {KERNEL: [Signer(describe_module(host, str(file)).get("signer", ""), key_id)]})
    (kernel,) = read_kernels(host)
    judged, error, log = judge(host), ask_kernel(file), sh("dmesg")
    complaint, version = swap(host)
    say(
        "RESULT",
        {
            "name": folder.name,
            "modules": kernel["modules"],
            "judged": judged,
            "errno": error,
            "log": log,
            "complaint": complaint,
            "loaded": version,
            "left": list(read_loaded(host).loaded),
        },
    )


def main() -> None:
    sh("insmod", "/efivarfs.ko")
    sh("mount", "-t", "efivarfs", "efivarfs", "/sys/firmware/efi/efivars")
    MODULES.mkdir(parents=True, exist_ok=True)
    host = Host()
    host.path(SET).mkdir(parents=True)
    say("FACTS", read_secure_boot(host) | {"log": sh("dmesg")})
    for folder in sorted(Path("/candidates").iterdir()):
        try_candidate(host, folder)


main()
