"""Gives the node's IMEX channel to claims of ComputeDomains, where node.json says so or such claims are prepared.

In front of `plugin.dra.domains.driver`, which is imported only then.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from plugin.daemon.optional.other_claims import where_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from plugin.base.log import Logger
    from plugin.devices.inventory import Inventory
    from plugin.dra.domains.driver import DomainDriver
    from plugin.holdings.history.keeper import HistoryKeeper
    from plugin.settings.node_config import NodeConfig

_FOLDER = "domain-claims"  # in the state folder: there since slices were published
_CONTROL = "nvidia-imex-ctl"  # of the driver's packages, beside nvidia-smi


class DomainClaims:
    """Made and used in the event loop."""

    def __init__(
        self, history: HistoryKeeper, smi: Path, spawn: Callable[[Awaitable[None]], None], logger: Logger
    ) -> None:
        self._history = history
        self._control = smi.with_name(_CONTROL)
        self._spawn = spawn
        self._log = logger
        self._driver: DomainDriver | None = None
        self._made_for: tuple[object, ...] = ()
        self._is_offering = False

    @property
    def problem(self) -> str:
        """Why claims are not given the channel as declared; "" when they are."""
        return "" if self._driver is None else self._driver.problem(is_offered=self._is_offering)

    async def follow(self, config: NodeConfig) -> None:
        """Do what this configuration says from now on: at the next `show`, but for claims that are prepared."""
        self._is_offering = config.compute_domains
        made_for = _made_for(config)
        is_moved = self._made_for[:3] != made_for[:3] or (self._is_offering and self._made_for != made_for)
        if self._driver is not None and is_moved:
            await self._driver.close()
            self._driver = None
        if self._driver is None and (self._is_offering or (config.state_folder / _FOLDER).is_dir()):
            self._driver = self._start(config)
            self._made_for = made_for

    def _start(self, config: NodeConfig) -> DomainDriver:
        from plugin.dra.domains.driver import DomainDriver
        from plugin.dra.driver import DriverContext
        from plugin.dra.store import Published, as_published, published_in

        where = Published(*where_of(config))
        if not self._is_offering:
            where = as_published(published_in(config.state_folder, _FOLDER), where)
        context = DriverContext(config, where, self._log, os.environ, self._history.view.kubelet_came)
        return DomainDriver(context, self._control)

    def show(self, inventory: Inventory) -> None:
        """Publish the channel as the driver has it now."""
        driver = self._driver
        if driver is None:
            return
        driver.show(inventory, is_offered=self._is_offering)
        if not self._is_offering and driver.is_done:
            self._driver = None
            driver.remove()
            self._spawn(driver.close())

    async def close(self) -> None:
        """End; claims stay prepared."""
        driver, self._driver = self._driver, None
        if driver is not None:
            await driver.close()


def _made_for(config: NodeConfig) -> tuple[object, ...]:
    """Return all that a driver takes from a configuration, and where it publishes."""
    channels = config.settings.answers.imex.channels
    return (config.kubelet_root, config.state_folder, config.cdi_folder, *where_of(config), config.proc_root, channels)
