"""What the hook imports on its two hot paths: the prices stand in the module docstring of ``runtime_hook``.

Each module costs 0.1 to 0.3 ms at every container start. Whoever adds one to a list here has measured it.
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.runtime_hook.containers import HOOK, Container

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ALLOCATED = [("/dev/nvidiactl", 62), ("/dev/nvidia-uvm", 60), ("/dev/nvidia0", 16)]
# The interpreter's own: what it starts with, os, and the C halves that are wanted.
STARTED_WITH = {"_abc", "_codecs", "_frozen_importlib_external", "_io", "_signal", "abc", "codecs", "encodings"}
STARTED_WITH |= {"encodings.aliases", "encodings.utf_8", "io", "marshal", "posix", "time", "zipimport"}
OS = {"_collections_abc", "_stat", "genericpath", "os", "posixpath", "stat"}
NOTHING_ASKED = STARTED_WITH | OS | {"__future__", "_json", "errno"}
GPU_GIVEN = NOTHING_ASKED | {"_ctypes", "_struct", "struct", "_socket", "fcntl"}
OWN_WAY_OF_NOTHING = {
    "base", "base.deadline", "base.document", "base.errors", "base.jsonfast", "base.reading", "base.values", "cli",
    "decision", "inputs", "inputs.bundle", "inputs.config", "prestart", "request", "request.claim",
    "request.entitlement",
}  # fmt: skip
# Never on the way of a GPU whose inventory is fresh.
OFF_THE_WAY = {"commands", "release"}
OFF_THE_WAY |= {f"host.{name}" for name in ("devices", "discovery", "files", "gpumodels", "libraries", "nvmlfacts")} | {
    "loader.elf",
    "loader.elfnotes",
}


def imported(report: str) -> tuple[set[str], set[str]]:
    """Return the interpreter's modules and our own, as ``-X importtime`` lists them."""
    names = {line.rpartition("|")[2].strip() for line in report.splitlines() if line.startswith("import time:")}
    names -= {"imported package", "runtime_hook"}
    own = {name.removeprefix("runtime_hook.") for name in names if name.startswith("runtime_hook.")}
    return {name for name in names if not name.startswith("runtime_hook.")}, own


def test_a_container_without_claim_stays_within_the_import_budget(
    configure: Callable[..., list[str]], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text('{"root": {"path": "rootfs"}}')
    state = json.dumps({"id": "c1", "pid": 1, "bundle": str(tmp_path)})
    argv = ["/usr/bin/python3", "-X", "importtime", "-IS", str(HOOK), "prestart", *configure()]
    done = subprocess.run(argv, input=state, capture_output=True, text=True, check=True)

    standard, own = imported(done.stderr)

    assert standard - NOTHING_ASKED == set()
    assert own == OWN_WAY_OF_NOTHING


@pytest.mark.functional
def test_a_container_with_a_gpu_stays_within_the_import_budget(
    container: Callable[..., Container], tmp_path: Path
) -> None:
    assert container(["/bin/busybox", "true"], devices=ALLOCATED).run().returncode == 0  # makes the inventory
    watched = tmp_path / "watched-hook"
    report = tmp_path / "imported"
    words = f'shift; exec /usr/bin/python3 -X importtime -IS {HOOK} prestart "$@" 2>{report}'
    watched.write_text(f"#!/bin/sh\n{words}\n")
    watched.chmod(0o755)

    done = container(["/bin/probe", "libcuda.so.1"], devices=ALLOCATED, hook=watched).run()

    assert done.stdout == "libcuda.so.1 42\n", done.stderr
    standard, own = imported(report.read_text())
    assert standard - GPU_GIVEN == set()
    assert own & OFF_THE_WAY == set()
    assert own > OWN_WAY_OF_NOTHING
