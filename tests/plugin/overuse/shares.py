"""Containers with units of a GPU's memory, and processes of theirs, for tests of over-use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.driver.telemetry import GpuProcess, GpuTelemetry
from plugin.kubelet.pod_resources.attribution import DeviceAssignment, PodContainer
from plugin.sharing.overuse.measure import Owner, Use
from tests.plugin.fakes import gpu

if TYPE_CHECKING:
    from collections.abc import Mapping

GIB = 1 << 30
RESOURCE = "aliyun.com/gpu-mem"
FIRST, SECOND = gpu(0).uuid, gpu(1).uuid


def uid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def container(number: int) -> str:
    return f"{number:064x}"


def owner(name: str, number: int = 1, *, of_pod: int | None = None) -> Owner:
    """Return the owner that is container `number` of a pod of that number."""
    return Owner(PodContainer("team", name, "main"), uid(of_pod or number), container(number))


def given(name: str, count: int, uuid: str = FIRST) -> DeviceAssignment:
    """Return units of 1 GiB."""
    return DeviceAssignment(PodContainer("team", name, "main"), RESOURCE, tuple(f"{uuid}/{at}" for at in range(count)))


def working(memory: Mapping[int, int | None], uuid: str = FIRST) -> GpuTelemetry:
    """Return a GPU with these processes."""
    return GpuTelemetry(
        uuid, processes=tuple(GpuProcess(pid, used, None) for pid, used in memory.items()), asked_at_s=50.0
    )


def use(used: int, allowed: int = GIB, *, who: Owner | None = None, uuid: str = FIRST) -> Use:
    return Use(who or owner("a"), uuid, used, allowed)
