"""Gives other devices than GPUs away by dynamic resource allocation, where GPUs are, or claims of before are prepared.

In front of `plugin.dra.others.driver`, which is imported only then: where a file describes a device that is there.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from plugin.daemon.optional.node_object import node_name
from plugin.kubelet.cdi_names import other_id
from plugin.kubelet.pod_resources.attribution import CLAIM
from plugin.settings.node_config import DRA

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from plugin.base.log import Logger
    from plugin.devices.other.offered import OtherPlan
    from plugin.dra.others.driver import OtherDriver
    from plugin.dra.store import Record
    from plugin.holdings.history.keeper import HistoryKeeper
    from plugin.settings.node_config import NodeConfig

_FOLDER = "other-claims"  # in the state folder: there since slices were published, until the device plugin offers again


class OtherClaims:
    """Made and used in the event loop. `on_change` hears that claims come or go."""

    on_change: Callable[[], None]

    def __init__(self, history: HistoryKeeper, spawn: Callable[[Awaitable[None]], None], logger: Logger) -> None:
        self._history = history
        self._spawn = spawn
        self._log = logger
        self._driver: OtherDriver | None = None
        self._made_for: tuple[object, ...] = ()
        self._is_offering = False
        self._is_awaited = False  # what there is by this configuration

    def is_needed(self, config: NodeConfig) -> bool:
        """Whether there is something to do where no file describes a device."""
        return self._driver is not None or (config.state_folder / _FOLDER).is_dir()

    @property
    def is_serving(self) -> bool:
        """Whether it matters who has what by the device plugin."""
        return self._driver is not None

    @property
    def problem(self) -> str:
        """Why claims are not given what there is, or still are where the device plugin offers; "" when so."""
        if self._is_awaited:
            return "other devices are not looked for yet"
        return "" if self._driver is None else self._driver.problem(is_offered=self._is_offering)

    @property
    def is_waiting(self) -> bool:
        """Whether devices, or shares of them, are withheld until their pods have ended."""
        return self._driver is not None and self._driver.is_waiting

    async def follow(self, config: NodeConfig) -> None:
        """Do what this configuration says from now on: at the next `show`, but for claims that are prepared."""
        self._is_offering = config.interface == DRA
        self._is_awaited = self._is_offering and config.device_classes.is_dir()
        made_for = _made_for(config, where_of(config))
        is_moved = self._made_for[:2] != made_for[:2] or (self._is_offering and self._made_for != made_for)
        if self._driver is not None and is_moved:
            await self._driver.close()
            self._driver = None
        if self._driver is None and self.is_needed(config):
            self._start(config)

    def _start(self, config: NodeConfig) -> OtherDriver:
        from plugin.dra.driver import DriverContext
        from plugin.dra.others.driver import OtherDriver
        from plugin.dra.store import Published, as_published, published_in

        where = Published(*where_of(config))
        if not self._is_offering:
            where = as_published(published_in(config.state_folder, _FOLDER), where)
        self._made_for = _made_for(config, where)
        view = self._history.view
        context = DriverContext(
            config, where, self._log, os.environ, view.kubelet_came, prepared=self._record, changed=self.on_change
        )
        self._driver = OtherDriver(context, view)
        return self._driver

    def show(self, config: NodeConfig, plan: OtherPlan) -> OtherPlan:
        """Publish this for claims where they are to have it; returns it as the device plugin may give it elsewhere."""
        driver, self._is_awaited = self._driver, False
        if driver is None and self._is_offering and plan.resources:
            driver = self._start(config)
        if driver is None:
            return plan
        driver.show(plan, is_offered=self._is_offering)
        if self._is_offering:
            return plan
        if driver.is_done:
            self._driver = None
            driver.remove()
            self._spawn(driver.close())
            return plan
        return driver.left(plan)

    def _record(self, record: Record) -> None:
        """Have the history tell which pod got what."""
        is_sole = all(each.parts and not each.share_id for each in record.devices)
        ids = [other_id(each.device) for each in record.devices]
        self._history.claimed(f"{CLAIM}{record.claim.name}", ids, is_sole=is_sole)

    async def close(self) -> None:
        """End; claims stay prepared."""
        driver, self._driver = self._driver, None
        if driver is not None:
            await driver.close()


def where_of(config: NodeConfig) -> tuple[str, str]:
    """Return through which API, and as which Node, slices are to be published."""
    return config.kubernetes_api, node_name(config, os.environ)


def _made_for(config: NodeConfig, where: tuple[str, str]) -> tuple[object, ...]:
    """Return all that a driver takes from a configuration, and where it publishes."""
    return (config.kubelet_root, config.state_folder, config.cdi_folder, *where)
