"""`grapnel-node verify`: look at module, library and GPUs from this process, and compare."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.bounded import call_within
from plugin.cli.release import EXIT_NOT_AS_WANTED
from plugin.errors import DriverNotReady, ExpectationError, NoAnswer
from plugin.expectation import MAX_BYTES, Expectation, parse_expectation
from plugin.nvml.library import NvmlSource, library_version
from plugin.nvml.root import HOST
from plugin.release.store import read_release
from plugin.settings.load import Given, load
from plugin.verification import Check, Found, result_to_json, verify, wanted

if TYPE_CHECKING:
    from plugin.snapshot import GpuSource, Snapshot
    from plugin.verification import Value


def _read_expectation(name: str) -> Expectation:
    try:
        if name == "-":
            return parse_expectation(sys.stdin.buffer.read(MAX_BYTES + 1), "standard input")
        with Path(name).open("rb") as file:
            return parse_expectation(file.read(MAX_BYTES + 1), name)
    except OSError as error:
        raise ExpectationError(
            f"{name}: {(error.strerror or str(error)).lower()}", "name a file, or - for standard input"
        ) from error


def _module_version(sys_root: Path) -> str | None:
    try:
        return (sys_root / "module/nvidia/version").read_text().strip()
    except OSError:
        return None


def _snapshot(source: GpuSource) -> Snapshot:
    source.open()
    try:
        return source.snapshot()
    finally:
        source.close()


def find(sys_root: Path, timeout_s: float, driver_root: Path = HOST) -> Found:
    """Look at the node; a driver that refuses or hangs is something that is found."""
    module, library = _module_version(sys_root), library_version(driver_root)
    try:
        return Found(module, library, call_within(timeout_s, lambda: _snapshot(NvmlSource(driver_root)), "nvml"))
    except (DriverNotReady, NoAnswer) as error:
        return Found(module, library, None, f"{error.message}; {error.hint}" if error.hint else error.message)


def _shown(value: Value) -> str:
    return " ".join(value) if isinstance(value, tuple) else str(value)


def _line(check: Check) -> str:
    return f"{'ok' if check.ok else 'failed':6}  {check.name:15}  {check.message or _shown(check.found)}".rstrip()


def verify_node(config_path: Path | None, expectation: str, *, timeout_s: float, as_json: bool) -> int:
    """Print the result; returns 0 when everything is as expected and 3 when it is not."""
    config = load(Given(config_path, {}, os.environ)).config
    want = wanted(_read_expectation(expectation), read_release(config.state_folder))
    checks = verify(want, find(config.sys_root, timeout_s, config.settings.driver_root))
    if as_json:
        print(json.dumps(result_to_json(checks), indent=2))
    else:
        print("\n".join(map(_line, checks)))
    return 0 if all(check.ok for check in checks) else EXIT_NOT_AS_WANTED
