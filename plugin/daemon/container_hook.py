"""Tells the container hook what only NVML knows, and asks it to refresh the host driver inventory in `/run/grapnel`.

Not here: the inventory itself, which is the hook's (contract `docs/contracts/inventory`).
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from plugin.base.errors import os_reason
from plugin.daemon.coalesced import Coalesced
from plugin.daemon.hook_facts import render_facts, write_facts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from plugin.base.log import Logger
    from plugin.devices.inventory import Inventory
    from plugin.settings.node_config import NodeConfig

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


async def refresh_host_inventory(hook_path: Path, timeout_s: float, logger: Logger) -> bool:
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
        problem = os_reason(error)
    else:
        problem = await _finish(process, timeout_s)
    if not problem:
        logger.info("host driver inventory refreshed")
        return True
    logger.warning("host driver inventory was not refreshed", command=shlex.join(command), problem=problem)
    return False


class HookNotifier:
    """Has the hook refresh its inventory when what only NVML knows has changed; one run at a time."""

    def __init__(self, config: NodeConfig, logger: Logger, spawn: Callable[[Awaitable[None]], None]) -> None:
        self._config = config
        self._log = logger
        self._told_of = ""  # a driver's version
        self._facts = ""
        self._refresh_soon = Coalesced(self._refresh, spawn)

    def forget(self) -> None:
        """Take the next driver for another one."""
        self._told_of = ""

    def tell(self, config: NodeConfig, inventory: Inventory) -> None:
        """Tell what is new in this inventory of a driver that answered."""
        self._config = config
        facts, is_new_driver = render_facts(inventory), inventory.driver_version != self._told_of
        if is_new_driver:
            self._told_of = inventory.driver_version
            self._log.info("driver", version=inventory.driver_version, gpus=len(inventory.devices))
        if is_new_driver or facts != self._facts:
            self._facts = facts
            self._refresh_soon()

    async def _refresh(self) -> None:
        config = self._config
        try:
            await asyncio.to_thread(write_facts, config.facts_path, self._facts)
        except OSError as error:
            problem = f"{config.facts_path} cannot be written: {os_reason(error)}"
            self._log.warning(problem, hint="the hook estimates what NVML would say")
        if not config.in_pod:
            await refresh_host_inventory(config.hook_path, config.hook_timeout_s, self._log)
