"""`grapnel-node verify`: look at driver and GPUs from this process, and compare."""

from __future__ import annotations

import calendar
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.base.errors import EXIT_NOT_AS_WANTED, EXIT_OK, ExpectationError, os_reason
from plugin.changes.driver_change.expectation import MAX_BYTES, Expectation, parse_expectation
from plugin.changes.driver_change.release.store import BOOT_ID, read_release
from plugin.changes.driver_change.verification.checks import verify
from plugin.changes.driver_change.verification.inspection import Host, find
from plugin.changes.driver_change.verification.model import Check, result_to_json, wanted
from plugin.devices.health.model import Policy
from plugin.driver.kernel_log import KMSG
from plugin.settings.load import Invocation, load

if TYPE_CHECKING:
    import argparse
    from types import SimpleNamespace

    from plugin.changes.driver_change.release.record import Release
    from plugin.changes.driver_change.verification.model import Value


def _read_expectation(name: str) -> Expectation:
    try:
        if name == "-":
            return parse_expectation(sys.stdin.buffer.read(MAX_BYTES + 1), "standard input")
        with Path(name).open("rb") as file:
            return parse_expectation(file.read(MAX_BYTES + 1), name)
    except OSError as error:
        raise ExpectationError(f"{name}: {os_reason(error)}", "name a file, or - for standard input") from error


def _released_at_s(release: Release | None) -> float | None:
    """Return when the node was released by the kernel's clock; 0 for before its start, None for unknown."""
    if release is None or release.problem:
        return None
    if release.boot_id != BOOT_ID.read_text().strip():
        return 0.0
    try:
        since = calendar.timegm(time.strptime(release.since, "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError:
        return None
    return time.clock_gettime(time.CLOCK_MONOTONIC) - (time.time() - since)


def _shown(value: Value) -> str:
    return " ".join(value) if isinstance(value, tuple) else str(value)


def _line(check: Check) -> str:
    return f"{'ok' if check.ok else 'failed':6}  {check.name:15}  {check.message or _shown(check.found)}".rstrip()


def run(arguments: argparse.Namespace | SimpleNamespace) -> int:
    """Run the verb and return the exit code."""
    return verify_node(arguments.config, arguments.expect, timeout_s=arguments.timeout, as_json=arguments.json)


def verify_node(
    config_path: Path | None, expectation: str, *, timeout_s: float, as_json: bool, kernel_log: Path = KMSG
) -> int:
    """Print the result; returns 0 when everything is as expected and 3 when it is not."""
    config = load(Invocation(config_path, {}, os.environ)).config
    release = read_release(config.state_folder)
    want = wanted(_read_expectation(expectation), release)
    host = Host(config.sys_root, config.settings.driver_root, kernel_log, _released_at_s(release))
    checks = verify(want, find(want, host, Policy(), timeout_s))
    if as_json:
        print(json.dumps(result_to_json(checks), indent=2))
    else:
        print("\n".join(map(_line, checks)))
    return EXIT_OK if all(check.ok for check in checks) else EXIT_NOT_AS_WANTED
