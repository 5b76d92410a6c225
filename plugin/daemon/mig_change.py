"""Follows a change of how GPUs are cut: no pod is given one of them meanwhile, and the driver is let go where need be.

The change is a file of the state folder, written by `grapnel-node mig`. A file that is left of a process that was
killed still counts, as it is not known how far that came; but the driver is observed again.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from plugin.changes.mig_layout.change.store import is_locked, read_change

if TYPE_CHECKING:
    from collections.abc import Callable

    from plugin.base.log import Logger
    from plugin.changes.mig_layout.change.store import OpenMigChange
    from plugin.devices.inventory import Device, Inventory
    from plugin.settings.node_config import NodeConfig

_UNDER_WAY = "its mig layout is being changed"
_INTERRUPTED = "a change of its mig layout was interrupted"
_HINT = "grapnel-node mig apply goes on with it, grapnel-node mig restore goes back"


class ObservedDriver(Protocol):
    """Who observes the driver."""

    def close_session(self) -> None:
        """Let go of the driver and observe nothing."""


class MigChanges:
    """Reads the file at every occasion, and while there is one at the pace of looks. `config` may be replaced.

    `reopen` has the driver observed again, `changed` is called when other GPUs are held back.
    """

    def __init__(
        self,
        config: NodeConfig,
        driver: ObservedDriver,
        logger: Logger,
        *,
        reopen: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        self.config = config
        self.change: OpenMigChange | None = None
        self.has_closed = False
        self._driver = driver
        self._log = logger
        self._reopen = reopen
        self._changed = changed
        self._is_under_way = False
        self._is_released = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False

    def follow(self, *, is_released: bool) -> None:
        """Do what the file says now. A released node has let go of the driver already."""
        if self._is_stopped:
            return
        self._is_released = is_released
        before = (self.change, self._is_under_way)
        self._read()
        if before != (self.change, self._is_under_way):
            self._tell()
        self._let_go(is_released=is_released)
        if before[0] != self.change:
            self._changed()
        if self.change is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self.config.refresh_s, self._follow_again)

    def _read(self) -> None:
        folder = self.config.state_folder
        self.change = read_change(folder)
        self._is_under_way = self.change is not None and is_locked(folder)

    def _follow_again(self) -> None:
        self._timer = None
        self.follow(is_released=self._is_released)

    def _let_go(self, *, is_released: bool) -> None:
        must_close = self.change is not None and self.change.closes and self._is_under_way and not is_released
        if must_close and not self.has_closed:
            self.has_closed = True
            self._driver.close_session()
        elif self.has_closed and not must_close:
            self.has_closed = False
            if not is_released:
                self._reopen()

    def _tell(self) -> None:
        change = self.change
        interrupted = change is not None and not self._is_under_way
        words = "" if change is None else change.problem or f"{_INTERRUPTED}: {', '.join(sorted(change.uuids))}"
        self._log.standing("mig change", words if interrupted else "", hint=_HINT)
        if change is not None and not interrupted:
            self._log.info("mig layout is being changed", gpus=",".join(sorted(change.uuids)), since=change.since)

    def stop(self) -> None:
        """Follow nothing any more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def marked(self, inventory: Inventory) -> Inventory:
        """Return the inventory with those GPUs given to no pod."""
        if self.change is None:
            return inventory
        return replace(inventory, devices=tuple(map(self._marked, inventory.devices)))

    def _marked(self, device: Device) -> Device:
        change = self.change
        gpu = device.gpu
        is_meant = change is not None and (gpu.is_cut is not None if change.problem else gpu.uuid in change.uuids)
        if device.unhealthy or not is_meant:
            return device
        return replace(device, unhealthy=_UNDER_WAY if self._is_under_way else f"{_INTERRUPTED}; {_HINT}")
