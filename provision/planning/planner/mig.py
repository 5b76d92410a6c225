"""Plans how a node's GPUs are divided by MIG: the file of the layout, and the change where a GPU differs from it.

Where instances come to lie, and who is in the way of a change, is the business of the program on the node.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgspec

from provision.declaration.spec.text.excerpt import few
from provision.declaration.spec.values.mig_profiles import can_hold, instances, models_of, parse_profile
from provision.planning.node_plan import Action, Disruption, FileContent, Item, Problem, Role
from provision.planning.planner.drivers.holders import describe_holders, holders, is_offering
from provision.planning.planner.part import plan_files
from provision.planning.render.mig_layout import MIG_LAYOUT_PATH, chosen_entries, render_mig_layout, wanted_devices

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from provision.declaration.fleet.facts.mig import MigGpu
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import MigEntry, StackSpec

Expected = dict[str, list[dict[str, str]] | None]
_UNKNOWN: Final = "how its GPUs are divided is not known"


@dataclass(frozen=True)
class MigPart:
    """What of the node daemon's part is about MIG; ``divides``: the layout is carried out in this pass."""

    items: tuple[Item, ...] = ()
    problems: tuple[Problem, ...] = ()
    files: tuple[FileContent, ...] = ()
    divides: bool = False
    warnings: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class _Gpu:
    """A GPU as far as it is known: before the node daemon is installed, by its PCI id alone."""

    index: int
    device_id: str
    subsystem_id: str
    told: MigGpu | None = None


def plan_mig(facts: NodeFacts, stack: StackSpec, *, driver_loads: bool, deploys: bool) -> MigPart:
    """Return what divides the node's GPUs as declared; a GPU that no entry of the layout is about stays as it is.

    Beside a problem are the changes that would be made without it, as far as they are known.
    ``driver_loads`` and ``deploys``: this pass loads the driver, installs the node daemon and its programs.
    """
    content = render_mig_layout(stack)
    if content is None or not facts.gpus:
        return MigPart()
    chosen = _chosen(facts, stack)
    writes = plan_files(facts, Role.NODE_DAEMON, (FileContent(MIG_LAYOUT_PATH, content),))
    problems = tuple(_problems(facts, stack, chosen))
    files = (FileContent(MIG_LAYOUT_PATH, content),) if writes else ()
    if problems:  # the other GPUs would be divided
        chosen = [(gpu, entry) for gpu, entry in chosen if not _why_not(gpu, entry)]
    part = MigPart(writes, problems, files)
    if not chosen:
        return part
    if not _is_known(facts):
        return _unknown(facts, stack, part, driver_loads=driver_loads, deploys=deploys)
    different = [_difference(gpu.told, entry) for gpu, entry in chosen if gpu.told is not None]
    reason = few([each for each in different if each])
    if not reason:
        return part
    change = _change(facts, stack, reason, drains=_is_in_use(facts))
    return replace(part, items=(*writes, change), divides=True)


def _unknown(facts: NodeFacts, stack: StackSpec, part: MigPart, *, driver_loads: bool, deploys: bool) -> MigPart:
    """Return what is done about GPUs of which nobody says yet how they are divided.

    Where the daemon does not run, nobody can have been given one: the layout is carried out at once, which changes
    nothing that is right. Where it does, and its program is too old to tell, it is a new layout.
    """
    if not _is_in_use(facts):
        if not (facts.module.loaded or driver_loads):
            return part
        change = _change(facts, stack, f"{_UNKNOWN} yet", drains=False)
        return replace(part, items=(*part.items, change), divides=True)
    if deploys:
        change = _change(facts, stack, f"{_UNKNOWN} to the daemon that is installed", drains=True)
        return replace(part, items=(*part.items, msgspec.structs.replace(change, deferred=True)))
    error, told = ("", 0) if facts.mig is None else (facts.mig.error, len(facts.mig.gpus))
    problem = Problem(
        code="mig-unknown",
        message=f"{_UNKNOWN} on {facts.node.hostname}: {error or f'{told} of {len(facts.gpus)} GPUs tell'}",
        hint="run `grapnel-node mig show` on the node",
    )
    return replace(part, problems=(*part.problems, problem)) if part.items else replace(part, warnings=(problem,))


def _is_known(facts: NodeFacts) -> bool:
    """Tell whether each GPU tells how it is divided, and which one it is."""
    if facts.mig is None or facts.mig.error:
        return False
    return len(facts.mig.gpus) == len(facts.gpus) or all(gpu.device_id for gpu in facts.mig.gpus)


def _is_in_use(facts: NodeFacts) -> bool:
    """Tell whether somebody may have been given a GPU, also one that nobody has opened yet."""
    return is_offering(facts) or bool(holders(facts))


def _chosen(facts: NodeFacts, stack: StackSpec) -> list[tuple[_Gpu, MigEntry]]:
    entries = chosen_entries(stack)
    return [(gpu, entry) for gpu in _gpus(facts) if (entry := _entry_for(gpu, entries)) is not None]


def expected_mig(facts: NodeFacts, stack: StackSpec, *, as_it_is: bool = False) -> Expected:
    """Return how the GPUs of the layout are to be divided, by UUID, for whoever verifies the node.

    MIG devices in the form of ``docs/contracts/expectation``, None without MIG mode; nothing for GPUs that do not tell
    who they are. ``as_it_is``: of those alone that are divided so by now.
    """
    return {
        gpu.told.uuid: _devices(entry) if entry.mig_enabled else None
        for gpu, entry in _chosen(facts, stack)
        if gpu.told is not None and not (as_it_is and _difference(gpu.told, entry))
    }


def _devices(entry: MigEntry) -> list[dict[str, str]]:
    return [{"profile": name} for name, count in wanted_devices(entry).items() for _ in range(count)]


def _gpus(facts: NodeFacts) -> list[_Gpu]:
    """Return the GPUs as NVML counts them: in the order of their addresses, where it does not tell their PCI ids."""
    in_order = sorted(facts.gpus, key=lambda gpu: gpu.address)
    by_bus = [
        _Gpu(index, gpu.device + gpu.vendor, gpu.subsystem_device + gpu.subsystem_vendor)
        for index, gpu in enumerate(in_order)
    ]
    if facts.mig is None or not _is_known(facts):
        return by_bus
    told = sorted(facts.mig.gpus, key=lambda gpu: gpu.index)
    return [
        _Gpu(gpu.index, gpu.device_id, gpu.subsystem_id, gpu)
        if gpu.device_id
        else replace(by_bus[place], index=gpu.index, told=gpu)
        for place, gpu in enumerate(told)
    ]


def _entry_for(gpu: _Gpu, entries: Sequence[MigEntry]) -> MigEntry | None:
    """Return the entry that is about a GPU; a declaration has one at most."""
    ids = {f"0x{gpu.device_id}", f"0x{gpu.device_id}:0x{gpu.subsystem_id}"}
    fitting = (entry for entry in entries if not entry.filters or ids & set(entry.filters))
    return next((entry for entry in fitting if entry.devices == "all" or gpu.index in entry.devices), None)


def _problems(facts: NodeFacts, stack: StackSpec, chosen: Sequence[tuple[_Gpu, MigEntry]]) -> Iterator[Problem]:
    name, node = stack.mig.layout, facts.node.hostname
    present = {gpu.index for gpu in _gpus(facts)}
    named = {index for entry in chosen_entries(stack) if not entry.filters for index in _indices(entry)}
    if missing := sorted(named - present):
        yield Problem(
            code="mig-gpu-missing",
            message=f"mig layout {name} is about GPU {few([*map(str, missing)])}, and {node} has {len(present)}",
            hint="choose another layout for the node, or take the index out of the entry",
        )
    for gpu, entry in chosen:
        if reason := _why_not(gpu, entry):
            yield Problem(
                code="mig-layout-impossible",
                message=f"mig layout {name} cannot be had by GPU {gpu.index} of {node}: {reason}",
                hint="choose another layout for the node, or give the entry a device-filter",
            )


def _indices(entry: MigEntry) -> tuple[int, ...]:
    return () if entry.devices == "all" else entry.devices


def _why_not(gpu: _Gpu, entry: MigEntry) -> str:
    if not entry.mig_enabled:
        return ""
    if gpu.told is not None and gpu.told.enabled is None:
        return "it has no mig mode"
    wanted = _instances(entry)
    for model in models_of(gpu.device_id[:4]):
        if unknown := [name for name in wanted if name not in model.kinds]:
            return f"{model.name} has no profile {few(unknown)}"
        if not can_hold(model, wanted):
            return f"{model.name} has no room for {_shown(wanted_devices(entry))}"
    return ""


def _instances(entry: MigEntry) -> dict[str, int]:
    named = ((parse_profile(name), count) for name, count in wanted_devices(entry).items())
    return instances((profile, count) for profile, count in named if profile is not None)


def _change(facts: NodeFacts, stack: StackSpec, reason: str, *, drains: bool) -> Item:
    return Item(
        role=Role.NODE_DAEMON,
        action=Action.DIVIDE,
        target="GPUs by MIG",
        to=stack.mig.layout,
        reason=reason + describe_holders(facts),
        disruption=Disruption.DRAIN if drains else Disruption.NONE,
    )


def _difference(gpu: MigGpu, entry: MigEntry) -> str:
    """Return in which way a GPU is not as its entry has it, nothing where it is."""
    if not entry.mig_enabled:
        return f"GPU {gpu.index} is in mig mode" if gpu.enabled else ""
    wanted = wanted_devices(entry)
    if not gpu.enabled:
        return f"GPU {gpu.index} is not in mig mode"
    return (
        "" if gpu.devices == wanted else f"GPU {gpu.index} has {_shown(gpu.devices)}, and is to have {_shown(wanted)}"
    )


def _shown(devices: Mapping[str, int]) -> str:
    return " + ".join(f"{count} x {name}" for name, count in sorted(devices.items())) or "no MIG device"
