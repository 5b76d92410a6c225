"""Defines what a Node says of its machine, for people, and what in that needs an administrator. Pure.

Nodes may write what they like about themselves: it is shown of that node alone, and nothing is decided by it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import DaemonAs, GpuInterface
from provision.rollout.status.situations import NO_REPORT, SHORT_OF_GPUS, SILENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from provision.declaration.spec.model import Plugin, PluginConfig
    from provision.rollout.status.situations import Situation

WHOLE: Final = "nvidia.com/gpu"
CLASS: Final = "gpu.nvidia.com"  # DeviceClasses, by which claims ask for whole GPUs and for MIG devices
MIG_CLASS: Final = "mig.nvidia.com"
_DOMAIN: Final = "nvidia.com/"
_UNITS: Final = "aliyun.com/gpu-mem"


class Daemon(StrEnum):
    """Whether a node daemon writes to its Node."""

    REPORTS = "reports"
    SILENT = "silent"  # it did, and has stopped
    NO_REPORT = "no-report"  # it never did


class Drift(StrEnum):
    """What came of the node's own comparison with what `apply` brought about."""

    NONE = "none"
    DRIFTED = "drifted"
    NOT_COMPARED = "not-compared"
    NOT_KNOWN = "not-known"  # it was not said


@dataclass(frozen=True, slots=True)
class Room:
    """How many devices of a resource a node has, may give, and pods hold; ``held`` is None where that is not known.

    ``are_smallest``: of devices that exclude one another, such as MIG devices that are made for claims, as many count
    as there can be at the same time beside those that are held, which are the smallest.
    """

    has: int
    gives: int
    held: int | None
    are_smallest: bool = False

    @property
    def free(self) -> int:
        """How many can be given now, as far as that is known."""
        return max(0, self.gives - (self.held or 0))


@dataclass(frozen=True, slots=True)
class User:
    """A pod, as NAMESPACE/NAME, and how many devices it was given of each resource, or class, that its node offers."""

    pod: str
    devices: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What a Node says of its machine. Empty or None is what is not known: it was not said lately.

    ``kubelet`` and ``engine`` are versions, ``is_ready`` and ``heard`` are about the kubelet. ``said`` is when the node
    daemon last spoke; ``driver``, ``module``, ``seen`` (GPUs), ``unusable`` of them and ``drift`` are its words, and
    ``driver_trouble``, ``gpu_trouble`` and ``drift_words`` why they are not as they should be. ``offered`` and
    ``capacity`` are numbers of devices by resource, as the kubelet counts them; None where it does not report.
    ``users`` are pods that hold such devices, None where that was not asked; ``unasked`` is why they could not be asked
    for. ``published`` are devices for claims, by class, None where that was not asked; ``unpublished`` is why it could
    not be.
    """

    is_ready: bool = True
    heard: datetime | None = None
    kubelet: str = ""
    engine: str = ""
    daemon: Daemon = Daemon.NO_REPORT
    said: datetime | None = None
    driver: str = ""
    driver_trouble: str = ""
    module: str = ""
    seen: int | None = None
    unusable: int = 0
    gpu_trouble: str = ""
    drift: Drift = Drift.NOT_KNOWN
    drift_words: str = ""
    offered: Mapping[str, int] | None = None
    capacity: Mapping[str, int] = field(default_factory=dict)
    users: tuple[User, ...] | None = None
    unasked: str = ""
    published: Mapping[str, Room] | None = None
    unpublished: str = ""


def gpu_resources(reported: Reported, plugin: Plugin | None) -> dict[str, int]:
    """Return what a node offers of its GPUs, by resource or class; ``plugin``: what is declared, None for not known."""
    published = {name: room.gives for name, room in (reported.published or {}).items()}
    return only_gpus({**(reported.offered or {}), **published}, plugin)


def only_gpus(devices: Mapping[str, int], plugin: Plugin | None) -> dict[str, int]:
    """Return the devices that are GPUs, or parts of them."""
    names = {CLASS, MIG_CLASS, *((_UNITS,) if plugin is None else _declared(plugin))}
    return {name: number for name, number in devices.items() if name.startswith(_DOMAIN) or name in names}


def trouble_of(reported: Reported, plugin: Plugin | None) -> tuple[Situation, str] | None:
    """Return what of a node in service needs an administrator, and why; None where nothing that is known does."""
    if plugin is not None and not plugin.enabled:
        return None
    is_told_to = plugin is not None and plugin.kubernetes_api is not None
    is_pod = plugin is not None and plugin.daemon is DaemonAs.DAEMON_SET
    if reported.daemon is Daemon.SILENT and (plugin is None or is_told_to or is_pod):
        return SILENT, ""
    if reported.daemon is Daemon.NO_REPORT and is_told_to and not is_pod:
        return NO_REPORT, ""
    reason = _short(reported, plugin)
    return (SHORT_OF_GPUS, reason) if reason else None


def knows_offer(reported: Reported, plugin: Plugin | None) -> bool:
    """Tell whether it is known what a node offers: its kubelet reports, and unless it counts all, slices were read."""
    if reported.offered is None or reported.published is not None:
        return reported.offered is not None
    if plugin is None or not plugin.interface.has_claims:
        return True
    return plugin.interface is not GpuInterface.BOTH and _counted(reported.offered) >= (reported.seen or 1)


def may_publish(reported: Reported, plugin: Plugin | None) -> bool:
    """Tell whether a node may give GPUs to claims: it is declared to, or its kubelet does not count just what there is.

    Where it is not known what is declared, a kubelet that counts more has parts of GPUs, which may be some of them
    alone.
    """
    if reported.offered is None:
        return False
    number = _counted(reported.offered)
    is_fewer = number < (reported.seen or 1)
    if plugin is None:
        return is_fewer or (reported.seen is not None and number > reported.seen)
    return is_fewer or plugin.interface.has_claims


def _counted(offered: Mapping[str, int]) -> int:
    return sum(only_gpus(offered, None).values())


def _short(reported: Reported, plugin: Plugin | None) -> str:
    """Return how a node offers fewer GPUs than it has, empty where it does not, or it is not known."""
    if reported.unusable:
        return reported.gpu_trouble
    if not knows_offer(reported, plugin):
        return ""
    offered = gpu_resources(reported, plugin)
    capacity = {**reported.capacity, **{name: room.has for name, room in (reported.published or {}).items()}}
    if not any(offered.values()) and not any(capacity.get(name) for name in offered):
        why = reported.driver_trouble or reported.gpu_trouble
        behind = f": {why}" if why else ""
        if reported.seen:
            return f"it has {reported.seen} GPUs and offers none{behind}"
        return f"it offers no GPU{behind}" if reported.seen is None and (plugin is not None or why) else ""
    if reported.seen and plugin is not None and plugin.interface is GpuInterface.BOTH:
        by_claims = offered.keys() & (reported.published or {}).keys()
        for whom, names in (("claims", by_claims), ("its kubelet", offered.keys() - by_claims)):
            if not any(offered[name] for name in names):
                return f"it has {reported.seen} GPUs and offers none to {whom}"
    whole = WHOLE if plugin is None else plugin.resource
    if reported.seen and offered.keys() == {whole} and offered[whole] < reported.seen:
        return f"it has {reported.seen} GPUs and offers {offered[whole]}"
    lacking = [
        f"{capacity[name] - number} of {capacity[name]} {name}"
        for name, number in offered.items()
        if number < capacity.get(name, 0)
    ]
    return f"pods cannot be given {', '.join(lacking)}" if lacking else ""


def _declared(plugin: Plugin) -> Iterator[str]:
    yield plugin.resource
    yield from (units.resource for units in plugin.memory_units)
    yield from _named(plugin)
    for part in plugin.configs.values():
        yield from _named(part)


def _named(part: Plugin | PluginConfig) -> Iterator[str]:
    """Yield the names of resources that a part of the declaration gives."""
    yield from (each.name for each in (*part.resources.gpus, *part.resources.mig))
    for way in (part.sharing.time_slicing, part.sharing.mps):
        shares = () if way is None else way.resources
        for share in shares:
            name = share.rename or share.name
            yield from (name, f"{name}.shared")
