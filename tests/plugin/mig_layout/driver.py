"""A driver with MIG instances in memory, under the rules of the real one; it can be ended at any of its calls."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from plugin.base.errors import MigError
from plugin.driver.mig_instances import CuttableGpu, GpuInstance
from tests.plugin.mig_layout.gpus import H100

if TYPE_CHECKING:
    from collections.abc import Callable


class Killed(BaseException):
    """The process ends here."""


class MemoryDriver:
    """H100s. `before_call` is called before each change, and may end it; `reset` is why a mode waits."""

    def __init__(self, count: int = 1) -> None:
        self.gpus = {
            f"GPU-{index}": CuttableGpu(index, f"GPU-{index}", index, is_cut=False, is_pending=False, profiles=H100)
            for index in range(count)
        }
        self.before_call: Callable[[], None] = lambda: None
        self.calls = 0
        self.reset = ""

    @property
    def cutter(self) -> MemoryDriver:
        return self

    def read(self) -> tuple[CuttableGpu, ...]:
        return self.read_gpus()

    def reopen(self) -> None:
        """Nothing was closed."""

    def read_gpus(self) -> tuple[CuttableGpu, ...]:
        return tuple(self.gpus.values())

    def use(self, uuid: str, instance: int, pid: int) -> None:
        """Have a process compute on an instance."""
        gpu = self.gpus[uuid]
        used = tuple(replace(each, pids=(pid,)) if each.id == instance else each for each in gpu.instances)
        self.gpus[uuid] = replace(gpu, instances=used)

    def _call(self) -> None:
        self.before_call()
        self.calls += 1

    def set_mode(self, uuid: str, *, is_on: bool) -> str:
        self._call()
        if self.gpus[uuid].instances:
            raise MigError(f"{uuid}: in use")
        now = self.gpus[uuid].is_cut if self.reset else is_on
        self.gpus[uuid] = replace(self.gpus[uuid], is_cut=now, is_pending=is_on)
        return self.reset

    def destroy(self, uuid: str, instance: int) -> None:
        self._call()
        gpu = self.gpus[uuid]
        found = next(each for each in gpu.instances if each.id == instance)
        if found.pids:
            raise MigError(f"{uuid}: in use")
        self.gpus[uuid] = replace(gpu, instances=tuple(each for each in gpu.instances if each.id != instance))

    def create(self, uuid: str, profile: int, start: int, size: int) -> int:
        self._call()
        gpu = self.gpus[uuid]
        found = next(each for each in gpu.profiles if each.id == profile)
        assert gpu.is_cut
        assert (start, size) in found.places
        assert all(start >= each.start + each.size or each.start >= start + size for each in gpu.instances)
        number = max((each.id for each in gpu.instances), default=0) + 1
        self.gpus[uuid] = replace(gpu, instances=(*gpu.instances, GpuInstance(number, found.name, start, size)))
        return number

    def add_compute(self, uuid: str, instance: int, slices: int) -> None:
        self._call()
        gpu = self.gpus[uuid]
        found = next(each for each in gpu.instances if each.id == instance)
        more = replace(
            found,
            compute=(*found.compute, (len(found.compute), slices)),
            uuids=(*found.uuids, f"MIG-{uuid}/{instance}"),
        )
        self.gpus[uuid] = replace(gpu, instances=tuple(more if each.id == instance else each for each in gpu.instances))

    def devices(self, uuid: str) -> list[tuple[str, tuple[int, ...]]]:
        """Return profiles and compute slices, without where they lie."""
        return sorted((each.profile, tuple(sorted(s for _, s in each.compute))) for each in self.gpus[uuid].instances)
