"""What functions of a running daemon import by themselves is loaded before another release takes its place."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from plugin.daemon.deferred_imports import MODULES

PLUGIN = Path(__file__).resolve().parents[3] / "plugin"
# Loaded where they are switched on, or only for an error that ends nothing: not needed by most daemons.
SWITCHED_ON = (
    "plugin.publication.node_object.",
    "plugin.publication.metrics.",
    "plugin.sharing.memory_limits.",
    "plugin.sharing.overuse.",
    "plugin.sharing.mps.",
    "plugin.dra.",
    "plugin.daemon.optional.division",
    "plugin.gpushare.",
    "plugin.devices.other.",
    "plugin.system.thread_calls",  # of the same
    "plugin.holdings.holders.pod_names",
    "plugin.holdings.holders.processes",
    "plugin.settings.nvidia.document",
    "plugin.settings.nvidia.yaml_file",
    "plugin.driver.nvml.changes",
    "plugin.driver.nvml.instances",
    "plugin.driver.nvml.telemetry",
    "plugin.driver.nvml.loading.library",  # loaded before the daemon starts
)
# In a process of its own: this one has what other tests have loaded.
LOADED = """
import sys
from plugin.daemon import daemon
from plugin.daemon.deferred_imports import load_deferred
load_deferred()
print(*sys.modules)
"""
WITHOUT = (PLUGIN / "cli", PLUGIN / "launcher.py")


@cache
def late_imports() -> frozenset[str]:
    """Return the modules of the daemon that are imported in functions, with where the line is."""
    found = set()
    for path in PLUGIN.rglob("*.py"):
        if any(path.is_relative_to(each) for each in WITHOUT):
            continue
        parsed = ast.walk(ast.parse(path.read_text()))
        for function in (node for node in parsed if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            lines = (node for node in ast.walk(function) if isinstance(node, ast.ImportFrom))
            found.update(str(line.module) for line in lines if str(line.module).startswith("plugin."))
    return frozenset(found)


@pytest.mark.slow
def test_late_imports_are_loaded_early_enough() -> None:
    loaded = set(subprocess.check_output([sys.executable, "-P", "-c", LOADED], text=True, cwd=PLUGIN.parent).split())
    missing = {name for name in late_imports() if name not in loaded and not name.startswith(SWITCHED_ON)}
    assert not missing


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_nothing_is_loaded_for_nobody(name: str) -> None:
    assert name in late_imports()
