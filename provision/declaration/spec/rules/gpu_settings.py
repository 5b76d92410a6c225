"""Checks rules across the keys of `node.gpus`: settings that nobody could have at once, or that would not last.

Which GPUs a node has, and what they can be set to, is known to the driver alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import Companion, ComputeMode
from provision.declaration.spec.rules.remark import error, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.declaration.spec.model import Clocks, GpuSettings, Plugin, StackSpec
    from provision.declaration.spec.rules.remark import Remark
    from provision.declaration.spec.text.findings import KeyPath

GPUS: Final[KeyPath] = ("node", "gpus")
_MIG: Final = "mig-"


def judge_gpu_settings(spec: StackSpec) -> Iterator[Remark]:
    """Yield every rule that the entries do not keep."""
    entries = spec.node.gpus
    if entries and not spec.plugin.enabled:
        hint = "enable the plugin, or leave node.gpus out and set the GPUs yourself"
        yield error(GPUS, "needs the node daemon, whose program sets the GPUs, and the plugin is disabled", hint)
    for index, entry in enumerate(entries):
        path = (*GPUS, index)
        if not _settings(entry):
            yield error(path, "sets nothing", "write a setting, such as persistenceMode: true")
        yield from _clocks((*path, "graphicsClockMHz"), entry.graphics_clock)
        yield from _clocks((*path, "memoryClockMHz"), entry.memory_clock)
        yield from _persistence(path, entry)
        yield from _exclusive(spec, (*path, "computeMode"), entry)
    yield from _lasting(spec)


def _settings(entry: GpuSettings) -> list[object]:
    return [each for each in (entry.persistence_mode, *_fleeting(entry)) if each is not None]


def _fleeting(entry: GpuSettings) -> list[object]:
    """Return what the driver forgets when it lets go of a GPU."""
    given = (entry.compute_mode, entry.power_limit_watts, entry.graphics_clock, entry.memory_clock)
    return [each for each in given if each is not None]


def _clocks(path: KeyPath, clocks: Clocks | None) -> Iterator[Remark]:
    if clocks is not None and clocks.min > clocks.max:
        yield error(path, f"has a min of {clocks.min}, which is above its max of {clocks.max}", "exchange the two")


def _persistence(path: KeyPath, entry: GpuSettings) -> Iterator[Remark]:
    if entry.persistence_mode is False and _fleeting(entry):
        hint = "write persistenceMode: true, or leave the other settings out"
        message = "cannot be off: the driver forgets the other settings when nobody uses the GPU"
        yield error((*path, "persistenceMode"), message, hint)


def _lasting(spec: StackSpec) -> Iterator[Remark]:
    """Yield that nothing keeps the driver from forgetting what is set."""
    entries, companions = spec.node.gpus, spec.driver.companions
    if any(entry.persistence_mode for entry in entries) or not any(_fleeting(entry) for entry in entries):
        return
    if companions is not None and Companion.PERSISTENCED not in companions:
        hint = "write {devices: all, persistenceMode: true} as the first entry"
        yield warning(
            GPUS, "do not last: without persistence mode the driver forgets them while nobody uses a GPU", hint
        )


def _exclusive(spec: StackSpec, path: KeyPath, entry: GpuSettings) -> Iterator[Remark]:
    if entry.compute_mode is None:
        return
    for way, devices in _shares(spec.plugin):
        if not _meets(entry, devices):
            continue
        if way.endswith(".mps"):
            hint = "leave computeMode out for these GPUs, or do not share them"
            yield error(path, f"is set by MPS itself for the GPUs that it shares (plugin.{way})", hint)
        elif entry.compute_mode is ComputeMode.EXCLUSIVE_PROCESS:
            hint = "write DEFAULT, or do not share these GPUs"
            yield error(path, f"lets the second pod of a GPU that is shared (plugin.{way}) fail", hint)
    if entry.compute_mode is ComputeMode.EXCLUSIVE_PROCESS and spec.mig.layout is not None:
        hint = "give the entry the indices of GPUs that are not in MIG mode, or write DEFAULT"
        yield warning(path, "cannot be EXCLUSIVE_PROCESS for a GPU in MIG mode (mig.layout)", hint)


def _shares(plugin: Plugin) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield in which ways whole GPUs are shared, and which of them: empty for all."""
    sharings = {"sharing": plugin.sharing} | {
        f"configs.{n}.sharing": each.sharing for n, each in plugin.configs.items()
    }
    ways = [(f"{at}.mps", each.mps) for at, each in sharings.items()]
    ways += [(f"{at}.timeSlicing", each.time_slicing) for at, each in sharings.items()]
    for way, strategy in ways:
        for share in () if strategy is None else strategy.resources:
            if not share.name.rpartition("/")[2].startswith(_MIG):
                yield way, frozenset(share.devices)
    for units in plugin.memory_units:
        yield "memoryUnits", frozenset(units.devices)


def _meets(entry: GpuSettings, devices: frozenset[str]) -> bool:
    """Tell whether an entry is certainly about one of the devices."""
    if entry.devices != "all":
        return not devices or any(str(index) in devices for index in entry.devices)
    return not devices or not entry.device_filter
