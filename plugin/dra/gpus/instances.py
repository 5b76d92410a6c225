"""Makes the MIG devices of prepared claims, and destroys those that no claim has any more.

For each partition that is made, or about to be, there is an empty file of its name in `claims/partitions` of the state
folder: written before the driver is asked to make it, removed after it is gone. So what a daemon that was killed had
made is known to the next one, what it had not finished is finished or destroyed, and instances without a file are those
of others, which are never touched. A claim is given back by its own file alone, without the driver; what it had is
destroyed after that, as soon as the driver answers.

Everything that asks the driver is called in its thread, one after the other.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from plugin.base.errors import ClaimError, MigError, NoAnswer
from plugin.changes.mig_layout.nodes import make_nodes
from plugin.dra.devices import name_of
from plugin.dra.partitions import find_partitions, is_partition, partitions_of, set_apart
from plugin.dra.store import PartitionStore
from plugin.driver.capabilities import read_mig_minors

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from plugin.base.log import Logger
    from plugin.changes.mig_layout.carry_out import Cutter
    from plugin.devices.inventory import HostTree, Inventory
    from plugin.dra.devices import DraDevice
    from plugin.dra.store import Record
    from plugin.driver.mig_instances import CuttableGpu, GpuInstance
    from plugin.system.thread_calls import ThreadCalls

_DRIVER_S = 5.0  # the daemon has 10 s for an answer to the kubelet
_SEEN_S = 2.0
_TOPIC = "mig partitions"


class Instances:
    """Of one node. Made and used in the event loop.

    `calls` are made in the driver's thread, which looks at all GPUs before each; `held` are the names of devices that
    claims have. `changed` hears that other partitions are there, or can be made.
    """

    def __init__(
        self,
        state_folder: Path,
        cutter: Cutter,
        tree: HostTree,
        calls: ThreadCalls,
        logger: Logger,
        *,
        held: Callable[[], Iterable[str]],
        spawn: Callable[[Awaitable[None]], None],
        changed: Callable[[], None],
    ) -> None:
        self._partitioner = Partitioner(state_folder, cutter, tree)
        self._calls = calls
        self._log = logger
        self._held = held
        self._spawn = spawn
        self._changed = changed
        # As they were read last, with what is made for claims told apart; also a GPU that does not answer any more.
        self._gpus: Mapping[str, CuttableGpu] = {}
        self._own: Mapping[str, Mapping[str, GpuInstance]] = {}  # by GPU and name
        self._read_of: object = None  # what there was to be seen when they were read
        self.is_known = False  # whether they were read since the start
        self._making: list[str] = []
        self._is_busy = False
        self._shown = asyncio.Event()  # another one each time that GPUs are shown

    @property
    def is_empty(self) -> bool:
        """Whether nothing is made for claims."""
        return not self._partitioner.store.names

    def made(self) -> Mapping[str, str]:
        """Return the partitions that are made by the UUIDs of their MIG devices, as far as was read."""
        return {uuid: name for own in self._own.values() for name, each in own.items() for uuid in each.uuids}

    def others(self) -> frozenset[str]:
        """Return the UUIDs of MIG devices that were not made for claims."""
        return frozenset(uuid for gpu in self._gpus.values() for each in gpu.instances for uuid in each.uuids)

    def show(
        self, inventory: Inventory, present: tuple[DraDevice, ...], *, is_offered: bool = True
    ) -> tuple[DraDevice, ...]:
        """Return what claims can be given of what is present, partitions in the place of MIG devices made of them.

        What claims do not have any more is destroyed meanwhile. `is_offered` False: without partitions.
        """
        seen = tuple((each.gpu.uuid, each.gpu.is_cut, each.gpu.mig) for each in inventory.devices)
        if seen and (seen != self._read_of or self._doomed()) and not self._is_busy:
            self._is_busy, self._read_of = True, seen
            self._spawn(self._look())
        self._shown.set()
        self._shown = asyncio.Event()
        others = self.others()
        ours = {mig.uuid for device in inventory.devices for mig in device.gpu.mig if mig.uuid not in others}
        offered = self._find(inventory) if is_offered else []
        return (*(each for each in present if each.uuid not in ours), *offered)

    def without_made(self, inventory: Inventory) -> Inventory:
        """Return an inventory without the MIG devices that are made for claims, or of which that is not known yet."""
        others = self.others()
        devices = (
            replace(device, slices=tuple(each for each in device.slices if each.facts.uuid in others))
            for device in inventory.devices
        )
        return replace(inventory, devices=tuple(devices))

    def _find(self, inventory: Inventory) -> list[DraDevice]:
        found: list[DraDevice] = []
        made = self.made()
        for device in inventory.devices:
            gpu = self._gpus.get(device.gpu.uuid)
            if gpu is None or not gpu.is_cut or not device.gpu.is_cut:
                continue
            problems = {made[each.facts.uuid]: each.problem for each in device.slices if each.facts.uuid in made}
            found += find_partitions(device, inventory, gpu, gpu.instances, problems)
        return found

    def _doomed(self) -> tuple[str, ...]:
        """Return what no claim has, and none is about to have."""
        return tuple(sorted(self._partitioner.store.names.difference(self._held(), self._making)))

    async def _look(self) -> None:
        doomed = self._doomed()  # now: the next claim may have had one made since there was work here
        try:
            if doomed:
                problems = await self._calls.call(lambda: self._partitioner.destroy(doomed), _DRIVER_S, "the driver")
                self._log.standing(_TOPIC, "; ".join(problems), hint="it is tried again")
            await self._read()
        except (MigError, NoAnswer) as error:
            self._read_of = None
            self._log.standing(_TOPIC, error.message, **({"hint": error.hint} if error.hint else {}))
        finally:
            self._is_busy = False

    async def _read(self) -> None:
        """Read how the GPUs are cut; raises MigError, NoAnswer."""
        gpus, names = await self._calls.call(self._partitioner.read, _DRIVER_S, "the driver")
        apart = {gpu.uuid: gpu for gpu in set_apart(gpus, names) if not gpu.problem}
        if len(apart) < len(gpus):
            self._read_of = None  # what did not answer looks the same when it does
        found = {**self._gpus, **apart}
        if not self.is_known or found != self._gpus:
            self._gpus, self.is_known = found, True
            self._own = {uuid: _named(gpu) for uuid, gpu in found.items()}
            self._changed()

    async def ready(self, record: Record, present: Callable[[], Iterable[DraDevice]]) -> Record:
        """Return a record whose partitions are made, with the UUIDs of their MIG devices; raises ClaimError.

        `present` is asked afterwards what engines can add to a container. Who only looks at a device makes none.
        """
        names = [each.device for each in record.devices if is_partition(each.device)]
        made = await self._make(each.device for each in record.devices if each.parts and each.device in names)
        known = {name: uuid for uuid, name in self.made().items()} | dict(made)
        there = await self._wait_for(present, {known[name] for name in names if name in known})
        for name in names:
            if name not in known:
                raise ClaimError(f"{record.claim} was given {name} to look at, and no claim has it")
            device = there.get(known[name])
            if device is None or device.unhealthy:
                why = "is not seen yet" if device is None else f"is unhealthy: {device.unhealthy}"
                raise ClaimError(f"{record.claim} was given {name}, which {why}", "it is asked for again")
        found = (each._replace(uuid=known[each.device]) if each.device in known else each for each in record.devices)
        return record._replace(devices=tuple(found))

    async def _wait_for(self, present: Callable[[], Iterable[DraDevice]], uuids: set[str]) -> Mapping[str, DraDevice]:
        """Return what is present by UUID, once these are, or after a while: whoever looks at the GPUs does so soon."""
        deadline = asyncio.get_running_loop().time() + _SEEN_S
        while True:
            shown, there = self._shown, {each.uuid: each for each in present()}
            left_s = deadline - asyncio.get_running_loop().time()
            if uuids <= there.keys() or left_s <= 0:
                return there
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(shown.wait(), left_s)
            await asyncio.sleep(0)  # whoever shows them is at the end of it by then

    async def _make(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return the UUIDs of partitions' MIG devices, which are made where they are not there; raises ClaimError.

        What is doomed goes first. The GPUs are read once more afterwards.
        """
        with self._is_making(tuple(names)) as wanted:
            doomed = self._doomed()
            try:
                found = await self._calls.call(lambda: self._partitioner.make(wanted, doomed), _DRIVER_S, "the driver")
                await self._read()
            except (MigError, NoAnswer) as error:
                self._read_of = None  # other programs may have made instances since
                raise ClaimError(error.message, error.hint) from error
        return found

    @contextmanager
    def _is_making(self, names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        self._making += names
        try:
            yield names
        finally:
            for each in names:
                self._making.remove(each)

    def remove_folder(self) -> None:
        """Remove the folder, as there is nothing in it any more."""
        self._partitioner.store.remove_folder()


class _Found(NamedTuple):
    gpu: CuttableGpu
    profile: int
    start: int
    size: int
    slices: int
    instance: GpuInstance | None


class Partitioner:
    """Makes and destroys; in the driver's thread, but for what the store knows, which may be read in any."""

    def __init__(self, state_folder: Path, cutter: Cutter, tree: HostTree) -> None:
        self.cutter = cutter
        self.store = PartitionStore(state_folder)
        self._tree = tree

    def read(self) -> tuple[tuple[CuttableGpu, ...], frozenset[str]]:
        """Return the GPUs, and which partitions are made for claims; raises MigError.

        One that is not there is forgotten: whatever is made in its place from now on is another program's.
        """
        gpus = self.cutter.read_gpus()
        self.store.look_again()
        for name in tuple(self.store.names):
            found = _find(name, gpus)
            if found is not None and found.instance is None:
                self.store.forget(name)
        return gpus, frozenset(self.store.names)

    def make(self, names: Iterable[str], doomed: Iterable[str] = ()) -> Mapping[str, str]:
        """Return the UUID of each partition's MIG device, made where it is not there; raises MigError.

        What is doomed goes first: it may be in the way.
        """
        self.store.look_again()
        self.destroy(doomed)
        return {name: self._make(name) for name in names}

    def _make(self, name: str) -> str:
        found = _find(name, self.cutter.read_gpus())
        if found is None:
            raise MigError(f"no gpu in mig mode has the place {name}", "grapnel-node mig show says what there is")
        if found.instance is not None and name not in self.store.names:
            raise MigError(f"{found.gpu.uuid}: somebody else has made an instance at {found.start}:{found.size}")
        self.store.note(name)
        try:
            number = -1 if found.instance is None else found.instance.id
            if found.instance is None:
                number = self.cutter.create(found.gpu.uuid, found.profile, found.start, found.size)
            if found.instance is None or not found.instance.compute:
                self.cutter.add_compute(found.gpu.uuid, number, found.slices)
        except MigError:
            self.destroy((name,))
            raise
        return self._open(name)

    def _open(self, name: str) -> str:
        """Make the nodes by which containers get a partition; returns its UUID."""
        found = _find(name, self.cutter.read_gpus())
        if found is None or found.instance is None or not found.instance.uuids:
            raise MigError(f"the driver does not list the mig device of {name}", "it is asked for again")
        minors = read_mig_minors(self._tree.proc_root)
        gpu = replace(found.gpu, instances=(found.instance,))
        problems = make_nodes([gpu], minors, self._tree.dev_root, self._tree.proc_root)
        if problems:
            raise MigError(problems[0])
        return found.instance.uuids[0]

    def destroy(self, names: Iterable[str]) -> tuple[str, ...]:
        """Destroy partitions that are there; returns why some are left, in words."""
        problems = []
        for name in names:
            try:
                self._destroy(name)
            except MigError as error:
                problems.append(error.message)
        return tuple(problems)

    def _destroy(self, name: str) -> None:
        gpus = self.cutter.read_gpus()
        found = _find(name, gpus)
        if found is None and any(gpu.problem for gpu in gpus):
            raise MigError(f"{name}: its gpu does not answer")
        if found is not None and found.instance is not None and name in self.store.names:
            self.cutter.destroy(found.gpu.uuid, found.instance.id)
        self.store.forget(name)


def _named(gpu: CuttableGpu) -> dict[str, GpuInstance]:
    """Return the instances of a GPU that are made for claims by the names of their partitions."""
    places = partitions_of(gpu).items()
    return {name: each for each in gpu.for_claims for name, place in places if place.is_at(each)}


def _find(name: str, gpus: Iterable[CuttableGpu]) -> _Found | None:
    """Return where a partition is, and what is there; None where no GPU that answers has such a place."""
    for gpu in gpus:
        place = partitions_of(gpu).get(name) if name.startswith(name_of(gpu.uuid)) else None
        if place is not None:
            profile = next(each for each in gpu.profiles if each.name == place.profile)
            there = next((each for each in gpu.instances if place.is_at(each)), None)
            return _Found(gpu, profile.id, place.start, place.size, profile.slices, there)
    return None
