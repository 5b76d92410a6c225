"""Asks the container hook to refresh the host driver inventory in `/run/grapnel`.

Not here: the inventory itself, which is the hook's (contract `docs/contracts/inventory`).
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.log import Journal

_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
_MAX_OUTPUT = 512


def _kill_group(process: asyncio.subprocess.Process) -> None:
    """Kill the hook and whatever it started: one of those could hold the pipe open for ever."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def _finish(process: asyncio.subprocess.Process, timeout_s: float) -> str:
    """Wait for the end and return what was said on the way; "" means success."""
    output = asyncio.ensure_future(process.communicate())
    try:
        done, _ = await asyncio.wait({output}, timeout=timeout_s)
    finally:
        if not output.done():
            _kill_group(process)
    said, _ = await output
    if not done:
        return f"no end after {timeout_s:g} s"
    if process.returncode == 0:
        return ""
    return f"exit code {process.returncode}: {said[-_MAX_OUTPUT:].decode('utf-8', 'replace').strip()}"


async def refresh_host_inventory(hook_path: Path, timeout_s: float, journal: Journal) -> bool:
    """Run `grapnel-hook refresh`. A failure is logged and not fatal: the hook notices a stale one itself."""
    command = [str(hook_path), "refresh"]
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=_ENVIRONMENT,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
    else:
        problem = await _finish(process, timeout_s)
    if not problem:
        journal.info("host driver inventory refreshed")
        return True
    journal.warning("host driver inventory was not refreshed", command=shlex.join(command), problem=problem)
    return False
