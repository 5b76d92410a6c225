"""What kubelets see of an inventory: one resource, registered from the first device on.

Not here: where an inventory comes from, and how a registration is kept.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from plugin.allocation import prepare_table
from plugin.kubelet.link import Link, Timing
from plugin.resources import whole_gpus

if TYPE_CHECKING:
    from collections.abc import Callable

    from plugin.config import NodeConfig
    from plugin.inventory import Inventory
    from plugin.kubelet.counting import KubeletCounter
    from plugin.log import Journal


class Offering:
    """Shows the inventory of now.

    `on_state` hears what the link waits for, "" once it has registered; `crashed` of a bug in it, `counter` of calls.
    """

    def __init__(
        self,
        journal: Journal,
        timing: Timing,
        *,
        on_state: Callable[[str], None],
        crashed: Callable[[BaseException], None],
        counter: KubeletCounter,
    ) -> None:
        self._journal = journal
        self._timing = timing
        self._on_state = on_state
        self._crashed = crashed
        self._counter = counter
        self._link: Link | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def offered(self) -> int:
        """How many devices a pod could be given."""
        return 0 if self._link is None else sum(offer.is_healthy for offer in self._link.board.current.offers)

    def show(self, config: NodeConfig, inventory: Inventory) -> None:
        """Offer this inventory from now on; nothing is registered before there is a device."""
        is_new = self._link is None
        if is_new and not inventory.devices:
            return
        link = self._link = self._link or self._new_link(config)
        link.publish(whole_gpus(inventory), prepare_table(inventory))
        if is_new:
            self._task = asyncio.ensure_future(link.run())
            self._task.add_done_callback(self._on_end)

    async def shown(self, *, to_at_least: int) -> None:
        """Wait until every kubelet that watches has the list of now; forever, if need be."""
        if self._link is not None:
            await self._link.board.shown(to_at_least=to_at_least)

    async def stop(self) -> None:
        """Withdraw everything and stop serving; what is shown meanwhile is a new offer."""
        link, task, self._link, self._task = self._link, self._task, None, None
        if link is not None and task is not None:
            link.stop()
            await asyncio.wait({task})

    def _new_link(self, config: NodeConfig) -> Link:
        return Link(
            resource=config.resource,
            folder=config.kubelet_root / "device-plugins",
            journal=self._journal,
            on_state=self._on_state,
            timing=self._timing,
            counter=self._counter,
        )

    def _on_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._crashed(error)
