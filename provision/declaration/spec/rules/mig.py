"""Checks rules across the keys of MIG layouts: no GPU is divided twice, and some GPU has room for what is asked of it.

Which GPUs a node has is known when it is planned for; here a `device-filter` says it, or any known GPU may be meant.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import MigStrategy
from provision.declaration.spec.rules.remark import error, warning
from provision.declaration.spec.validate import nearest
from provision.declaration.spec.values.mig_profiles import (
    LONG_FORM,
    MODELS,
    can_hold,
    instances,
    models_with,
    parse_profile,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from provision.declaration.spec.model import MigConfig, MigEntry, StackSpec
    from provision.declaration.spec.rules.remark import Remark
    from provision.declaration.spec.text.findings import KeyPath
    from provision.declaration.spec.values.mig_profiles import GpuModel

LAYOUT: Final[KeyPath] = ("mig", "layout")
CONFIG: Final[KeyPath] = ("mig", "config")
_KNOWN: Final = frozenset(name for model in MODELS for name in model.kinds)


def judge_mig(spec: StackSpec) -> Iterator[Remark]:
    """Yield the rules that the section does not keep, as far as they need no file beside the declaration."""
    if spec.mig.config is not None:
        yield from judge_config(spec.mig.config, CONFIG)
    if spec.mig.layout is None:
        return
    if not spec.plugin.enabled:
        hint = "enable the plugin, or leave mig.layout out and divide the GPUs yourself"
        yield error(LAYOUT, "needs the node daemon, whose programs divide the GPUs, and the plugin is disabled", hint)
    if spec.mig.config is None and spec.mig.config_file is None:
        hint = "write mig.config, or mig.configFile with a file of mig-parted"
        yield error(LAYOUT, "there are no layouts to choose from", hint)


def judge_config(config: MigConfig, path: KeyPath) -> Iterator[Remark]:
    """Yield what is wrong with layouts; `path` is where they stand."""
    for name, entries in config.mig_configs.items():
        here = (*path, "mig-configs", name)
        for index, entry in enumerate(entries):
            yield from _judge_entry(entry, (*here, index))
        yield from _judge_overlaps(entries, here)


def judge_chosen(spec: StackSpec, entries: Sequence[MigEntry]) -> Iterator[Remark]:
    """Yield what is doubtful about the entries of the chosen layout beside how devices are offered."""
    divided = [entry for entry in entries if entry.mig_enabled and entry.mig_devices]
    strategy = spec.plugin.mig_strategy
    if not divided or not spec.plugin.enabled:
        return
    if spec.plugin.configs or spec.plugin.interface.has_claims:
        return  # a label decides how they are offered; to claims, all that are there
    if strategy is MigStrategy.NONE:
        message = f"{spec.mig.layout} makes MIG devices, and plugin.migStrategy: none offers its GPUs as whole ones"
        yield warning(LAYOUT, message, "write migStrategy: single, or mixed")
    by_filter: dict[tuple[str, ...], set[str]] = {}
    for entry in divided:
        by_filter.setdefault(entry.filters, set()).update(_instances_of(entry))
    if strategy is MigStrategy.SINGLE and any(len(names) > 1 for names in by_filter.values()):
        message = f"{spec.mig.layout} has several profiles, of which plugin.migStrategy: single offers none"
        yield warning(LAYOUT, message, "write migStrategy: mixed")


def unknown_layout(name: str, known: Mapping[str, object]) -> Remark:
    """Return the error about a layout that nothing describes."""
    near = nearest(name, list(known))
    hint = f"did you mean {near}?" if near else f"known: {', '.join(sorted(known)[:8])}"
    return error(LAYOUT, f"there is no layout '{name}'", hint)


def _judge_entry(entry: MigEntry, path: KeyPath) -> Iterator[Remark]:
    here = (*path, "mig-devices")
    if entry.devices != "all" and not entry.devices:
        yield error((*path, "devices"), "names no GPU", "write all, or the indices of GPUs")
    elif entry.devices != "all" and len(set(entry.devices)) < len(entry.devices):
        yield error((*path, "devices"), "names a GPU twice", "name it once")
    if entry.mig_enabled and entry.mig_devices is None:
        yield error(path, "has no mig-devices", "write them; mig-devices: {} for a GPU in MIG mode without any")
    elif not entry.mig_enabled and entry.mig_devices:
        yield error(here, "cannot be made with mig-enabled: false", "write mig-enabled: true, or leave them out")
    elif entry.mig_devices and not any(entry.mig_devices.values()):
        hint = "write how many, or mig-devices: {} for a GPU in MIG mode without any"
        yield error(here, "asks for no device: all numbers are 0", hint)
    elif entry.mig_devices:
        yield from _judge_devices(entry, entry.mig_devices, here)


def _judge_devices(entry: MigEntry, devices: Mapping[str, int], path: KeyPath) -> Iterator[Remark]:
    names: dict[str, str] = {}
    for name in devices:
        profile = parse_profile(name)
        if profile is None:
            yield error(
                (*path, name), f"'{name}' has more slices of compute than its instance", "write 1c.2g, not 2c.1g"
            )
        elif str(profile) in names:
            hint = f"write the sum in one of them: '{LONG_FORM}' and a 'c' that says nothing make no difference"
            yield error((*path, name), f"'{name}' is the same profile as '{names[str(profile)]}'", hint)
        else:
            names[str(profile)] = name
    if len(names) == len(devices):
        yield from _judge_room(entry, devices, path)


def _judge_room(entry: MigEntry, devices: Mapping[str, int], path: KeyPath) -> Iterator[Remark]:
    wanted = _instances_of(entry)
    models = _models(entry)
    unknown = [name for name in wanted if name not in _KNOWN]
    if sum(int(name[0]) * count for name, count in wanted.items()) > max(model.compute for model in MODELS):
        yield error(path, "needs more slices of compute than any GPU has", "7 at most: the sum of the numbers before g")
    elif unknown and not models:
        near = nearest(unknown[0], sorted(_KNOWN))
        hint = f"did you mean {near}?" if near else "grapnel-node mig show prints those of a node"
        yield warning(path, f"no GPU that this version knows has {unknown[0]}", hint)
    else:
        yield from _judge_placement(models, wanted, devices, path)


def _judge_placement(
    models: Sequence[GpuModel] | None, wanted: Mapping[str, int], devices: Mapping[str, int], path: KeyPath
) -> Iterator[Remark]:
    """Yield why the entry's GPUs, or where it names none, any GPU that has the profiles, have no room for them."""
    shown = ", ".join(f"{count} x {name}" for name, count in devices.items())
    if models is None:
        models = models_with(wanted)
        if not models:
            yield error(path, f"no GPU has {shown} side by side", "write an entry with a device-filter for each model")
        elif not any(can_hold(model, wanted) for model in models):
            yield error(path, f"no GPU has room for {shown}", _room(models[0], wanted))
        return
    for model in models:
        missing = next((name for name in wanted if name not in model.kinds), None)
        if missing is not None:
            yield error(path, f"{model.name} has no profile {missing}", f"it has {', '.join(_plain(model))}")
        elif not can_hold(model, wanted):
            yield error(path, f"{model.name} has no room for {shown}", _room(model, wanted))


def _room(model: GpuModel, wanted: Mapping[str, int]) -> str:
    """Return how many of each profile a GPU has room for, one by one."""
    most = ", ".join(f"{model.kinds[name].most} x {name}" for name in wanted)
    return (
        f"of one profile alone, {model.name} has room for {most}"
        if len(wanted) == 1
        else (f"each alone, {model.name} has room for {most}; together they also have to lie side by side")
    )


def _plain(model: GpuModel) -> list[str]:
    return [name for name in model.kinds if name.endswith("gb")]


def _models(entry: MigEntry) -> Sequence[GpuModel] | None:
    """Return the known GPUs that an entry names; None where it names none."""
    if not entry.filters:
        return None
    devices = {each[2:6] for each in entry.filters}
    return tuple(model for model in MODELS if model.devices & devices)


def _instances_of(entry: MigEntry) -> dict[str, int]:
    """Return the GPU instances that an entry's devices need."""
    found = {name: parse_profile(name) for name in entry.mig_devices or {}}
    devices = entry.mig_devices or {}
    return instances((profile, devices[name]) for name, profile in found.items() if profile is not None)


def _judge_overlaps(entries: Sequence[MigEntry], path: KeyPath) -> Iterator[Remark]:
    for (first, one), (second, other) in combinations(enumerate(entries), 2):
        if _may_meet(one, other):
            message = f"may be for the same GPU as entry {first}"
            hint = "give each other devices, or a device-filter of its own"
            yield error((*path, second), message, hint)


def _may_meet(one: MigEntry, other: MigEntry) -> bool:
    return _same_models(one, other) and _same_indices(one, other)


def _same_models(one: MigEntry, other: MigEntry) -> bool:
    """Tell whether a GPU may fit both filters; one with a subsystem is among those of its device."""
    if not one.filters or not other.filters:
        return True
    return any(
        mine == theirs or mine.startswith(f"{theirs}:") or theirs.startswith(f"{mine}:")
        for mine in one.filters
        for theirs in other.filters
    )


def _same_indices(one: MigEntry, other: MigEntry) -> bool:
    return one.devices == "all" or other.devices == "all" or bool(set(one.devices) & set(other.devices))
