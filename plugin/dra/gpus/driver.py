"""The driver as a whole: what it publishes of an inventory, whom it gives devices, and when it has nothing more to do.

What a pod has by the device plugin is withheld from the slices until it is free, and the device plugin offers nothing
that a claim has: so a node changes from one to the other while pods run.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from plugin.base.errors import ClaimError
from plugin.dra.cdi import FILE, Hook, render_cdi
from plugin.dra.claims import read_claim
from plugin.dra.devices import find_devices, semantic_version
from plugin.dra.driver import ClaimDriver, DriverContext
from plugin.dra.partitions import is_partition
from plugin.dra.slices import announced
from plugin.settings.node_config import LIMITS_REQUIRED
from plugin.sharing.mps.plan import HOST, SharedGpu
from plugin.sharing.time_slices import TimeSlices

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from plugin.devices.allocation.table import Sharing
    from plugin.devices.inventory import ControlNode, Inventory
    from plugin.dra.claims import ClaimName
    from plugin.dra.devices import DraDevice, Share
    from plugin.dra.gpus.instances import Instances
    from plugin.dra.store import PreparedDevice, Record
    from plugin.kubelet.cdi_names import MemoryPart

_TOPIC_CDI = "cdi file of claims"
_SLICES = "time-slices"  # beside the admin socket: the GPUs whose time is divided otherwise
_SHARED_S = 4.0  # until devices are shared as a claim says; the daemon has 10 s for an answer to the kubelet


class GpuDriver(ClaimDriver):
    """A driver of GPUs and their MIG devices.

    `look_again` asks the kubelet who has devices by its device plugins, `holder` says who has one of these UUIDs by
    them, None where that is not known yet. `mps` has the control daemons, `smi` is where nvidia-smi is. `instances`
    makes what keeps MIG devices for claims, of the function that names what they have; None where there are to be none.
    """

    cdi_file = FILE

    def __init__(
        self,
        context: DriverContext,
        *,
        look_again: Callable[[], Awaitable[None]],
        holder: Callable[[tuple[str, ...]], str | None],
        mps: Sharing,
        smi: Path,
        instances: Callable[[Callable[[], Iterable[str]]], Instances] | None = None,
    ) -> None:
        super().__init__(context)
        self._look_again = look_again
        self._find_holder = holder
        self._instances = None if instances is None else instances(self._held)
        self._present: tuple[DraDevice, ...] = ()  # what engines can add: without partitions that are to be made
        self._control: tuple[ControlNode, ...] = ()
        self._offered: tuple[str, ...] = ()
        self.withheld: Mapping[str, str] = {}  # UUIDs of devices that are free soon, and who has them
        self._mps = mps
        self._slices_of_time = TimeSlices(
            context.config.admin_socket.parent / _SLICES, smi, context.changed, context.logger
        )
        self._shown = asyncio.Event()  # another one each time

    @property
    def holders(self) -> Mapping[str, ClaimName]:
        """Which claim has which GPU or MIG device, by UUID; of a shared one any of them."""
        return {each.uuid: claim for claim, each in self.store.held()}

    def _held(self) -> list[str]:
        return [each.device for _, each in self.store.held()]

    @property
    def memory(self) -> frozenset[MemoryPart]:
        """The parts that claims have of GPUs' memory."""
        return frozenset(each.memory_part for _, each in self.store.held() if each.memory_bytes)

    @property
    def published(self) -> int:
        """How many healthy devices were published last."""
        found = (self.devices[name] for name in self._offered if name in self.devices)
        return sum(not each.unhealthy for each in found)

    def show(
        self,
        inventory: Inventory,
        shares: Mapping[str, Share],
        *,
        is_offered: bool,
        gpus: frozenset[str] | None = None,
        next_driver: str = "",
    ) -> None:
        """Publish what there is. `is_offered` False: nothing, as the device plugin offers it; claims are served on.

        `gpus` are those that the device plugin leaves to claims, by UUID; None: all. `next_driver` is the version that
        the node is about to have, "" where no change is to come.
        """
        self._present = find_devices(inventory, shares if self._slices.features.shares else {})
        devices = self._present
        if self._instances is not None:
            devices = self._instances.show(inventory, devices, is_offered=self._config.dynamic_mig)
        self.devices, self._control = {each.name: each for each in devices}, inventory.control
        self._health.show(self._where.node, devices)
        self._share_time()
        if self._present:
            try:
                self.prepare()
            except ClaimError as error:
                self._log.standing(_TOPIC_CDI, error.message, **({"hint": error.hint} if error.hint else {}))
                if is_offered:
                    return  # no claim could be prepared: the slices stay as they are
        own = tuple(each for each in devices if gpus is None or not gpus.isdisjoint(each.parts)) if is_offered else ()
        holders = {each.uuid: self._find_holder(each.parts) for each in own}
        if None in holders.values():
            return  # the kubelet has not said yet who has what: the slices stay as they are
        if is_offered and self._instances is not None and not self._instances.is_known:
            return  # nor has the driver said how its GPUs are cut
        others = {each.uuid: str(claim) for claim, each in self.store.held() if self._is_of_another_kind(each)}
        self.withheld = {uuid: who for uuid in holders if (who := holders[uuid] or others.get(uuid))}
        shown = tuple(each for each in own if each.uuid not in self.withheld)
        if shown and not self.store.note_published(self._where):
            return
        self._offered = tuple(each.name for each in shown)
        self._slices.publish(announced(shown, semantic_version(next_driver)))

    def _share_time(self) -> None:
        """Have GPUs sliced as claims say; one that is ill, or let go by the driver, is left alone."""
        if self.devices:
            intervals = {each.uuid: each.sharing.interval for _, each in self.store.held() if each.sharing.interval}
            self._slices_of_time.want(
                intervals, frozenset(each.uuid for each in self.devices.values() if not each.unhealthy)
            )
        self._shown.set()
        self._shown = asyncio.Event()

    def find_mps(self, inventory: Inventory) -> Iterator[SharedGpu]:
        """Yield the GPUs that claims share through MPS."""
        wanted = {each.uuid: each.sharing.mps for _, each in self.store.held() if each.sharing.mps is not None}
        for device in inventory.devices if wanted and not self._config.in_pod else ():
            gpu, ceilings = device.gpu, wanted.get(device.gpu.uuid)
            if ceilings is not None:
                yield SharedGpu(
                    gpu.uuid,
                    gpu.index,
                    gpu.memory_bytes,
                    1,
                    gpu.compute_capability,
                    bool(gpu.is_cut),
                    ceilings.memory_mib,
                    ceilings.thread_percentage,
                )

    async def shared(self, record: Record) -> None:
        """Wait until its devices are shared as a claim says; raises ClaimError where they are not soon."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _SHARED_S
        while why := next(filter(None, map(self._why_not_shared, record.devices)), ""):
            left_s = deadline - loop.time()
            if left_s <= 0:
                raise ClaimError(f"{record.claim} waits: {why}", "it is asked for again")
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._shown.wait(), left_s)

    def _why_not_shared(self, prepared: PreparedDevice) -> str:
        sharing, root = prepared.sharing, self._config.settings.driver_root
        if prepared.is_admin:
            return ""
        if self._config.in_pod and (sharing.mps is not None or sharing.interval):
            return f"{prepared.uuid} is to have {sharing}, which the daemon cannot do from a pod: plugin.daemon: unit"
        if why := self._why_not_by_mps(prepared):
            return why
        if sharing.interval and root != HOST:
            return f"{prepared.uuid} is to have other time slices, and the driver is in {root}, not in /"
        why = self._slices_of_time.problem(prepared.uuid)
        return f"{prepared.uuid} is to have {sharing}: {why}" if why else ""

    def _why_not_by_mps(self, prepared: PreparedDevice) -> str:
        """Return why a GPU is not shared through MPS yet, or why it still is; no plan has what was just claimed."""
        uuid = prepared.uuid
        if prepared.sharing.mps is None:
            why = self._mps.ending(uuid)
            return f"{uuid} is still shared through MPS: {why}" if why else ""
        _, mounts = self._mps.parts(uuid)
        why = self._mps.problem(uuid) or ("" if mounts else "its control daemon is about to be started")
        return f"{uuid} is to be shared through MPS: {why}" if why else ""

    def without_made(self, inventory: Inventory) -> Inventory:
        """Return an inventory without the MIG devices that are made for claims, or of which that is not known yet."""
        return inventory if self._instances is None else self._instances.without_made(inventory)

    async def ready(self, record: Record) -> Record:
        """Return a record whose MIG devices are made; raises ClaimError."""
        if self._instances is None or not any(is_partition(each.device) for each in record.devices):
            return record
        return await self._instances.ready(record, lambda: self._present)

    def _is_of_another_kind(self, prepared: PreparedDevice) -> bool:
        """Whether a claim has a device whole that is shared by now, or a share of one that is not."""
        device = self.devices.get(prepared.device)
        if device is None:
            return False
        is_by_memory = device.share is not None and bool(device.share.unit_bytes)
        return (device.share is None) == bool(prepared.share_id) or is_by_memory != bool(prepared.memory_bytes)

    def prepare(self) -> None:
        """Have the CDI file say what there is, and be there; raises ClaimError."""
        config = self._config
        if not self._present:  # not asked for yet, or the driver is away: a file of before still says what claims have
            if self._cdi.is_there:
                return
            raise ClaimError("the GPUs of this node are not known", "it is asked for again")
        content = render_cdi(
            self._present,
            self._control,
            Hook(str(config.hook_path), config.hook_timeout_s, config.memory_limits == LIMITS_REQUIRED),
            config.mps_root,
            self.memory,
        )
        self._cdi.write(content)
        self._log.standing(_TOPIC_CDI)

    async def look_again(self) -> None:
        """Ask the kubelet who has devices by its device plugins; raises KubeletError."""
        await self._look_again()

    def holder(self, device: DraDevice) -> str:
        """Return who has a device, or a part of it, by a device plugin; "" where no pod has."""
        return self._find_holder(device.parts) or ""

    def _read_claim(self, claim: ClaimName) -> dict[str, Any]:
        return self._api.ask(read_claim(claim))

    @property
    def is_done(self) -> bool:
        """As of each driver, and no MIG device that was made for a claim is left, nor another time slice."""
        has_made = self._instances is not None and not self._instances.is_empty
        return super().is_done and not has_made and self._slices_of_time.is_settled

    def remove(self) -> None:
        """Take back what engines and the next start would find: no claim is prepared any more."""
        if self._instances is not None:
            self._instances.remove_folder()
        super().remove()

    async def close(self) -> None:
        """End. Claims stay prepared, and slices stay published."""
        self._registration.stop()  # before anything is waited for
        await self._slices_of_time.close()
        await super().close()
