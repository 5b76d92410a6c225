"""Gives GPUs away by dynamic resource allocation, where node.json says so or claims of before are still prepared.

In front of `plugin.dra`, which is imported only then. `others` does the same for other devices, `domains` for IMEX
channels.
"""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.base.documents import read_object
from plugin.daemon.optional.domain_claims import DomainClaims
from plugin.daemon.optional.other_claims import OtherClaims, where_of
from plugin.devices.inventory import without_driver
from plugin.kubelet.pod_resources.attribution import CLAIM
from plugin.settings.node_config import BOTH
from plugin.system.durable import read_bounded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from plugin.base.log import Logger
    from plugin.daemon.optional.division import Division
    from plugin.devices.allocation.table import Sharing
    from plugin.devices.inventory import Device, Inventory
    from plugin.devices.resources import OfferPlan
    from plugin.dra.claims import ClaimName
    from plugin.dra.gpus.driver import GpuDriver
    from plugin.dra.gpus.instances import Instances
    from plugin.dra.store import Record
    from plugin.holdings.history.keeper import HistoryKeeper
    from plugin.kubelet.cdi_names import MemoryPart
    from plugin.settings.node_config import NodeConfig
    from plugin.sharing.mps.plan import SharedGpu

_PARTITIONS = "claims/partitions"
_DRIVERS = Path("/var/lib/grapnel/driver")  # docs/contracts/driver-run
_CHANGE = re.compile(r"[0-9a-f]{12}")
_VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,3}")
_MAX_BYTES = 4 * 1024 * 1024
_LOOK_S = 0.05
_FOLDER = "claims"  # in the state folder: there since a first claim, until the device plugin offers again


class Claims:
    """Made and used in the event loop. `on_change` hears that claims come or go, `on_state` what it waits for.

    `ask` has a function called in the driver's thread.
    """

    on_change: Callable[[], None]
    on_state: Callable[[str], None]
    ask: Callable[[Callable[[], None]], None]

    def __init__(
        self,
        history: HistoryKeeper,
        sharing: Sharing,
        smi: Path,
        spawn: Callable[[Awaitable[None]], None],
        logger: Logger,
    ) -> None:
        self._history = history
        self._sharing = sharing
        self._smi = smi
        self._spawn = spawn
        self._log = logger
        self.others = OtherClaims(history, spawn, logger)
        self.domains = DomainClaims(history, smi, spawn, logger)
        self._driver: GpuDriver | None = None
        self._config: NodeConfig | None = None
        self._made_for: tuple[object, ...] = ()
        self._division: Division | None = None  # where the device plugin gives some GPUs, and claims the others
        self._held = 0
        self.divided: frozenset[str] = frozenset()

    @property
    def offered(self) -> int:
        """How many devices a claim could be given."""
        return 0 if self._driver is None else self._driver.published

    @property
    def held(self) -> int:
        """How many devices that claims are to be given wait for whoever has them by the device plugin."""
        return 0 if self._driver is None else len(self._driver.withheld)

    @property
    def still_held(self) -> int:
        """How many devices of the device plugin wait for the claims that have them."""
        return self._held

    async def settled(self) -> None:
        """Wait until claims can be given what there is, or nothing where it is the device plugin's; maybe forever."""
        waits = self.problem
        while waits:
            await asyncio.sleep(_LOOK_S)
            waits = self.problem

    @property
    def problem(self) -> str:
        """What `settled` waits for; "" once it is so."""
        is_offering = self._config is not None and self._config.has_claims
        beside = self.others.problem or self.domains.problem
        if self._driver is None:
            return "claims are not served yet" if is_offering else beside
        return self._driver.problem(is_offered=is_offering) or beside

    @property
    def division_problems(self) -> tuple[str, ...]:
        """What the GPUs that are declared to be given by claims are not on this node."""
        return () if self._division is None else self._division.problems

    @property
    def is_waiting(self) -> bool:
        """Whether devices are withheld until their pods have ended."""
        return (self._driver is not None and bool(self._driver.withheld)) or self.others.is_waiting

    async def follow(self, config: NodeConfig) -> None:
        """Do what this configuration says from now on.

        A driver that is to offer nothing any more goes on as it was started, until no claim is prepared.
        """
        before, self._config = self._config, config
        driver = self._driver
        if driver is not None and before is not None and self._is_another(before, config):
            await driver.close()  # until then it says what is not the device plugin's to give
            self._driver = None
        if self._driver is None and (config.has_claims or (config.state_folder / _FOLDER).is_dir()):
            self._driver = self._start(config)
        self._divide(before, config)
        await self.others.follow(config)
        await self.domains.follow(config)

    def _divide(self, before: NodeConfig | None, config: NodeConfig) -> None:
        """Count the GPUs of a list that is another one by now; forget what is remembered where none is declared."""
        if (division := self._division) is not None and config.interface != BOTH:
            division.forget()
            self._division = None
        is_same = before is not None and before.state_folder == config.state_folder
        if config.interface == BOTH and not (division is not None and is_same and division.declared == config.claims):
            from plugin.daemon.optional.division import Division

            self._division = Division(config.state_folder, config.claims, self._log, config.sys_root)

    def _is_another(self, before: NodeConfig, config: NodeConfig) -> bool:
        """Whether a driver has to be made anew for a configuration."""
        if (before.kubelet_root, before.state_folder) != (config.kubelet_root, config.state_folder):
            return True
        return config.has_claims and self._made_for != _made_for(config, where_of(config))

    def _start(self, config: NodeConfig) -> GpuDriver:
        from plugin.dra.driver import DriverContext
        from plugin.dra.gpus.driver import GpuDriver
        from plugin.dra.store import Published, as_published, published_in

        view, where = self._history.view, Published(*where_of(config))
        if not config.has_claims:
            where = as_published(published_in(config.state_folder), where)
        self._made_for = _made_for(config, where)
        context = DriverContext(
            config,
            where,
            self._log,
            os.environ,
            view.kubelet_came,
            prepared=self._record,
            changed=self.on_change,
            report=self.on_state,
        )
        return GpuDriver(
            context,
            look_again=view.look_again,
            holder=view.holder_of,
            mps=self._sharing,
            smi=self._smi,
            instances=self._instances(config),
        )

    def _instances(self, config: NodeConfig) -> Callable[[Callable[[], Iterable[str]]], Instances] | None:
        """Return what makes the keeper of MIG devices for claims, None where there are to be none, nor are any left."""
        if not config.dynamic_mig and not (config.state_folder / _PARTITIONS).is_dir():
            return None
        from plugin.dra.gpus.instances import Instances
        from plugin.driver.nvml.changes import mig_instances
        from plugin.system.thread_calls import ThreadCalls

        return lambda held: Instances(
            config.state_folder,
            mig_instances,
            config.host_tree,
            ThreadCalls(self.ask),
            self._log,
            held=held,
            spawn=self._spawn,
            changed=self.on_change,
        )

    def memory(self) -> frozenset[MemoryPart]:
        """Return the parts that claims have of GPUs' memory."""
        return frozenset() if self._driver is None else self._driver.memory

    def by_mps(self, inventory: Inventory) -> tuple[SharedGpu, ...]:
        """Return the GPUs that claims share through MPS."""
        return () if self._driver is None else tuple(self._driver.find_mps(inventory))

    def _record(self, record: Record) -> None:
        """Have the history tell which pod got what."""
        is_sole = all(each.parts and not each.share_id for each in record.devices)
        uuids = [each.uuid for each in record.devices]
        self._history.claimed(f"{CLAIM}{record.claim.name}", uuids, is_sole=is_sole)

    def show(self, config: NodeConfig, inventory: Inventory, plan: Callable[[], OfferPlan]) -> Inventory:
        """Publish this for claims; returns what is left to the device plugin. `plan` is what it would offer."""
        self.domains.show(inventory)
        if self._driver is None:
            return inventory
        from plugin.dra.devices import find_shares

        is_offered, division = config.has_claims, self._division
        gpus = None if division is None else division.find(inventory)
        self.divided = gpus or frozenset()
        left = self._driver.without_made(inventory)
        shares, coming = find_shares(plan(), self._sharing), next_driver(inventory.driver_version)
        self._driver.show(inventory, shares, is_offered=is_offered, gpus=gpus, next_driver=coming)
        if is_offered:  # the others are the device plugin's
            given = frozenset(each.gpu.uuid for each in left.devices) if gpus is None else gpus
            left = replace(left, devices=tuple(each for each in left.devices if each.gpu.uuid not in given))
        holders, unknown = self._driver.holders, self._driver.store.unknown
        self._held = sum(not holders.keys().isdisjoint(_uuids(each)) for each in left.devices)
        if unknown:
            return without_driver(left, f"{unknown} cannot be read: a claim may have it")
        if not is_offered and not holders and self._driver.is_done:
            self._end()
            return inventory
        return mark_held(left, holders)

    def _end(self) -> None:
        """Leave the node as it was before: the device plugin offers everything, and no claim is prepared."""
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.remove()
            self._spawn(driver.close())

    async def close(self) -> None:
        """End; claims stay prepared."""
        driver, self._driver = self._driver, None
        if driver is not None:
            await driver.close()
        await self.others.close()
        await self.domains.close()


def _made_for(config: NodeConfig, where: tuple[str, str]) -> tuple[object, ...]:
    """Return what a driver is made for: all that it, and the file of engines, takes from a configuration."""
    return (
        where,
        config.cdi_folder,
        config.hook_path,
        config.hook_timeout_s,
        config.dynamic_mig,
        config.memory_limits,
        config.mps_root,
        config.admin_socket,
        config.settings.driver_root,
    )


def mark_held(inventory: Inventory, holders: Mapping[str, ClaimName]) -> Inventory:
    """Return an inventory of which nothing is given away by the device plugin that a claim has."""
    return replace(inventory, devices=tuple(_marked(each, holders) for each in inventory.devices))


def _uuids(device: Device) -> tuple[str, ...]:
    return (device.gpu.uuid, *(each.facts.uuid for each in device.slices))


def _marked(device: Device, holders: Mapping[str, ClaimName]) -> Device:
    """Return a GPU that no other pod is given while a claim has it; of a GPU in MIG mode this is so for each device."""
    if device.unhealthy:
        return device
    if device.gpu.uuid in holders:
        return replace(device, unhealthy=f"{holders[device.gpu.uuid]} has it")
    slices = tuple(
        replace(each, problem=f"{holders[each.facts.uuid]} has it") if each.facts.uuid in holders else each
        for each in device.slices
    )
    return replace(device, slices=slices)


def next_driver(loaded: str, home: Path = _DRIVERS) -> str:
    """Return the version of the driver that the node is about to have instead of the `loaded` one; "" for none.

    It is the newest that is staged and that the node neither runs nor had before. What cannot be read is none.
    """
    with suppress(OSError):
        known = {_name(home / "current"), _name(home / "previous")}
        sealed = [each / "complete" for each in (home / "staged").iterdir() if _CHANGE.fullmatch(each.name)]
        ahead = [each for each in sealed if each.parent.name not in known and each.is_file()]
        for seal in sorted(ahead, key=lambda each: each.stat().st_mtime, reverse=True):
            if (version := _version(seal.with_name("change.json"))) not in ("", loaded):
                return version
    return ""


def _name(link: Path) -> str:
    """Return the change that a link names; "" where there is no link."""
    try:
        return link.readlink().name
    except OSError:
        return ""


def _version(path: Path) -> str:
    try:
        version = read_object(read_bounded(path, _MAX_BYTES + 1), _MAX_BYTES).get("version")
    except (OSError, ValueError, RecursionError):
        return ""
    return version if isinstance(version, str) and _VERSION.fullmatch(version) else ""
