"""A daemon that has GPUs in MIG mode, and their driver: one in memory that keeps the real one's rules."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lab.nvml.capabilities import minors
from plugin.base.errors import MigError
from plugin.base.log import Logger
from plugin.devices.inventory import HostTree, Inventory, next_inventory
from plugin.dra.devices import DraDevice, find_devices
from plugin.dra.gpus.instances import Instances
from plugin.dra.service import ClaimService, Health
from plugin.dra.store import ClaimStore, Record
from plugin.driver.mig_instances import CuttableGpu
from plugin.driver.snapshot import LostGpu, MigFacts, MigSize, Snapshot
from plugin.system.thread_calls import ThreadCalls
from tests.plugin.fakes import VERSION, gpu
from tests.plugin.mig_layout.driver import MemoryDriver
from tests.plugin.mig_layout.gpus import H100

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from pathlib import Path

    from plugin.dra.claims import ClaimName

GPUS = 2
PROFILES = tuple(
    replace(each, size=MigSize(each.places[0][1] * 9984, each.slices * 16, each.slices, each.slices, each.slices))
    for each in H100
)


class Cut(MemoryDriver):
    """GPUs in MIG mode, under the daemon's UUIDs; `is_away`: nothing answers."""

    def __init__(self) -> None:
        super().__init__(0)
        self.is_away = False
        self.lost: set[str] = set()
        for index in range(GPUS):
            uuid = gpu(index).uuid
            self.gpus[uuid] = CuttableGpu(index, uuid, index, is_cut=True, is_pending=True, profiles=PROFILES)

    def read_gpus(self) -> tuple[CuttableGpu, ...]:
        if self.is_away:
            raise MigError("nvml does not count the gpus: it is away")
        return tuple(
            CuttableGpu(each.index, f"gpu {each.index}", -1, problem="gpu is lost") if each.uuid in self.lost else each
            for each in super().read_gpus()
        )

    def create(self, uuid: str, profile: int, start: int, size: int) -> int:
        there, found = self.gpus[uuid].instances, next(each for each in PROFILES if each.id == profile)
        is_full = sum(each.profile == found.name for each in there) == found.most
        if is_full or any(start < each.start + each.size and each.start < start + size for each in there):
            raise MigError(f"{uuid}: no gpu instance is made at {start}:{size}: insufficient resources")
        return super().create(uuid, profile, start, size)

    def snapshot(self) -> Snapshot:
        found = []
        lost = tuple(
            LostGpu(each.index, each.uuid, "gpu is lost") for each in self.gpus.values() if each.uuid in self.lost
        )
        for index, each in enumerate(self.gpus.values()):
            if each.uuid in self.lost:
                continue
            pairs = [(instance, uuid) for instance in each.instances for uuid in instance.uuids]
            mig = tuple(MigFacts(uuid, at, found.id, 0, found.profile) for at, (found, uuid) in enumerate(pairs))
            found.append(replace(gpu(index), is_cut=True, mig=mig))
        return Snapshot(VERSION, tuple(found), lost)


class Daemon:
    """What a daemon keeps in memory: it begins with what is on the disk and in the driver."""

    def __init__(self, folder: Path, driver: Cut, read: Callable[[ClaimName], Any]) -> None:
        self.driver = driver
        self.looks_after = False
        self.tree = HostTree(folder / "dev", folder / "sys", folder / "proc")
        self.inventory, self.present, self.devices = Inventory(), (), {}
        self.tasks: list[asyncio.Future[None]] = []
        self.store = ClaimStore(folder, Logger())
        self.store.load()
        self.instances = Instances(
            folder,
            driver,
            self.tree,
            ThreadCalls(self._in_the_thread),
            Logger(),
            held=lambda: [each.device for _, each in self.store.held()],
            spawn=self._spawn,
            changed=self.show,
        )
        self.service = ClaimService(self, self.store, Health(), read, Logger(), patience_s=0.0)

    present: tuple[DraDevice, ...]
    devices: dict[str, DraDevice]

    def _spawn(self, work: Awaitable[None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    def _in_the_thread(self, question: Callable[[], None]) -> None:
        """Look before it, as the thread does; it looks after it where it was still answering the one before."""
        if self.looks_after:
            asyncio.get_running_loop().call_later(0.01, self.observe)
        elif not self.driver.is_away:
            self.observe()
        question()

    def observe(self) -> None:
        self.inventory = next_inventory(self.inventory, self.driver.snapshot(), self.tree)
        self.show()

    def show(self) -> None:
        self.present = find_devices(self.inventory)
        self.devices = {each.name: each for each in self.instances.show(self.inventory, self.present)}

    async def settle(self) -> None:
        """Look until nothing is under way."""
        for _ in range(3):
            if not self.driver.is_away:
                self.observe()
            while self.tasks:
                await self.tasks.pop()

    # What the service asks of the node

    async def look_again(self) -> None:
        """The kubelet knows of nobody."""

    def holder(self, _device: DraDevice) -> str:
        """Return that no device plugin has given it away."""
        return ""

    def prepare(self) -> None:
        """Nothing is written."""

    async def ready(self, record: Record) -> Record:
        return await self.instances.ready(record, lambda: self.present)

    async def shared(self, record: Record) -> None:
        """No claim asks for it."""

    def prepared(self, record: Record) -> None:
        """Nobody keeps a history."""

    def changed(self) -> None:
        self.show()


def make_tree(folder: Path) -> None:
    """Make the files of a node: links to /dev/null are character devices."""
    caps = folder / "dev/nvidia-caps"
    caps.mkdir(parents=True)
    known = minors(GPUS)
    for number in range(GPUS):
        (folder / f"dev/nvidia{number}").symlink_to("/dev/null")
    for minor in known.values():
        (caps / f"nvidia-cap{minor}").symlink_to("/dev/null")
    listed = folder / "proc/driver/nvidia-caps"
    listed.mkdir(parents=True)
    (listed / "mig-minors").write_text("".join(f"{name} {minor}\n" for name, minor in known.items()))


def fits(devices: Iterable[DraDevice]) -> bool:
    """Whether the scheduler's sums allow all of these at the same time."""
    used: dict[tuple[str, str], int] = {}
    left: dict[tuple[str, str], int] = {}
    for each in devices:
        assert each.draw is not None
        for name, amount in each.draw.counters.items():
            key = (each.draw.of.name, name)
            used[key] = used.get(key, 0) + amount_of(amount)
            left[key] = amount_of(each.draw.of.counters[name])
    return all(amount <= left[key] for key, amount in used.items())


def amount_of(text: str) -> int:
    units = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 1000}
    unit = text.lstrip("0123456789")
    return int(text.removesuffix(unit)) * units.get(unit, 1)


def make(driver: Cut, name: str) -> None:
    profile, start = map(int, name.rsplit("-", 2)[1:])
    size = dict(next(each.places for each in PROFILES if each.id == profile))[start]
    driver.create(gpu(0).uuid, profile, start, size)
