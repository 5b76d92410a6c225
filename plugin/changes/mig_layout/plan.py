"""Decides how each GPU comes to its layout: steps in order, or why nothing is done to it. Pure.

Who is in the way is refused by name, never ended. What is right already stays, whoever uses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.changes.mig_layout.model import Act, GpuPlan, Instance, Step
from plugin.changes.mig_layout.placement import Placed, arrange, group, missing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from plugin.changes.mig_layout.model import Entry, GpuLayout, Layout

_FREE_HINT = "end what uses it, or drain the node, then run this again"


def plan_layout(layout: Layout, gpus: Sequence[GpuLayout]) -> tuple[GpuPlan, ...]:
    """Return what leads every GPU to a declared layout."""
    return (*(_plan(find_entry(layout, gpu), gpu) for gpu in gpus), *_absent(layout, gpus))


def _silent(gpu: GpuLayout) -> GpuPlan:
    hint = "see `dmesg | grep -i nvrm`"
    return GpuPlan(gpu.index, gpu.uuid, refusal=f"it does not answer: {gpu.problem}", hint=hint)


def find_entry(layout: Layout, gpu: GpuLayout) -> Entry | None:
    """Return the entry that counts for a GPU: the last one that is about it, as with mig-parted."""
    return next((entry for entry in reversed(layout.entries) if _is_about(entry, gpu)), None)


def _is_about(entry: Entry, gpu: GpuLayout) -> bool:
    ids = ((gpu.pci_device_id, None), (gpu.pci_device_id, gpu.pci_subsystem_id))
    is_kind = not entry.filters or any(each in entry.filters for each in ids)
    return is_kind and (entry.devices is None or gpu.index in entry.devices)


def _absent(layout: Layout, gpus: Sequence[GpuLayout]) -> Iterator[GpuPlan]:
    """Refuse indices that no GPU has; a filter says that the entry may be about another kind of machine."""
    there = {gpu.index for gpu in gpus}
    named = {index for entry in layout.entries if not entry.filters for index in entry.devices or ()}
    for index in sorted(named - there):
        hint = f"this node has {len(gpus)}: nvidia-smi -L"
        yield GpuPlan(index, "", refusal=f"there is no gpu {index}", hint=hint, is_wrong=True)


def _plan(entry: Entry | None, gpu: GpuLayout) -> GpuPlan:
    if entry is None:
        return GpuPlan(gpu.index, gpu.uuid, is_declared=False)
    if gpu.problem:
        return _silent(gpu)
    if not entry.is_enabled:
        return _plan_whole(gpu)
    if gpu.is_cut is None:
        return _wrong(
            gpu, f"{gpu.model or 'it'} cannot be cut by mig", "leave it out of the layout, or migEnabled: false"
        )
    try:
        wanted = group(entry.wanted, gpu.profiles) if gpu.profiles or gpu.is_cut else None
    except ValueError as error:
        return _wrong(gpu, str(error), "nvidia-smi mig -lgip lists the profiles")
    if wanted is not None and arrange(wanted, (), ignores_holders=True) is None:
        names = ", ".join(sorted(each.name for each in entry.wanted))
        return _wrong(
            gpu, f"there is no room for all of {names}", "nvidia-smi mig -lgipp lists where instances can lie"
        )
    if not gpu.is_cut:
        more = "" if wanted is not None else "its instances are planned when mig mode is on"
        made = () if wanted is None else tuple(_steps(gpu.uuid, (), arrange(wanted, ()) or ()))
        return _mode_changed(gpu, Act.MODE_ON, after=made, more=more)
    arranged = arrange(wanted or (), gpu.instances)
    if arranged is None:
        return _in_use(gpu, (each for each in gpu.instances if each.holders))
    return GpuPlan(gpu.index, gpu.uuid, (*_settled(gpu), *_steps(gpu.uuid, gpu.instances, arranged)))


def _settled(gpu: GpuLayout) -> Iterator[Step]:
    """Take back a change of the mode that was asked for and that waits for a reset."""
    if gpu.is_pending is not gpu.is_cut and gpu.is_cut is not None:
        yield Step(gpu.uuid, Act.MODE_ON if gpu.is_cut else Act.MODE_OFF)


def _plan_whole(gpu: GpuLayout) -> GpuPlan:
    if not gpu.is_cut:
        return GpuPlan(gpu.index, gpu.uuid, tuple(_settled(gpu)))
    used = [each for each in gpu.instances if each.holders]
    if used:
        return _in_use(gpu, used)
    return _mode_changed(gpu, Act.MODE_OFF, before=tuple(_steps(gpu.uuid, gpu.instances, ())))


def _mode_changed(
    gpu: GpuLayout, act: Act, *, before: tuple[Step, ...] = (), after: tuple[Step, ...] = (), more: str = ""
) -> GpuPlan:
    if gpu.holders:
        why = f"mig mode is changed on a free gpu alone, and it is in use by {_names(gpu.holders)}"
        return GpuPlan(gpu.index, gpu.uuid, refusal=why, hint=_FREE_HINT)
    return GpuPlan(gpu.index, gpu.uuid, (*before, Step(gpu.uuid, act), *after), more=more)


def _steps(uuid: str, present: Iterable[Instance], arranged: Sequence[Placed]) -> Iterator[Step]:
    """Yield what makes place first: no instance is made where another one still lies."""
    kept = {placed.instance.id for placed in arranged if placed.instance.id >= 0}
    for instance in present:
        if instance.id not in kept:
            yield Step(uuid, Act.DESTROY, instance)
    for instance, lacks in arranged:
        if instance.id < 0:
            made = Instance(instance.start, instance.size, instance.profile, lacks)
            yield Step(uuid, Act.CREATE, made, lacks)
        elif lacks:
            yield Step(uuid, Act.COMPLETE, instance, lacks)


def _wrong(gpu: GpuLayout, why: str, hint: str) -> GpuPlan:
    return GpuPlan(gpu.index, gpu.uuid, refusal=why, hint=hint, is_wrong=True)


def _in_use(gpu: GpuLayout, instances: Iterable[Instance]) -> GpuPlan:
    used = "; ".join(f"{each} by {_names(each.holders)}" for each in instances)
    return GpuPlan(gpu.index, gpu.uuid, refusal=f"instances that cannot stay are in use: {used}", hint=_FREE_HINT)


def _names(holders: Sequence[str], most: int = 4) -> str:
    more = f" and {len(holders) - most} more" if len(holders) > most else ""
    return f"{', '.join(holders[:most])}{more}"


# Going back


def plan_return(
    before: Mapping[str, tuple[bool, tuple[Instance, ...]]], gpus: Sequence[GpuLayout]
) -> tuple[GpuPlan, ...]:
    """Return what leads GPUs back to how they were cut: whether mig mode was on, and each instance in its place."""
    there = {gpu.uuid: gpu for gpu in gpus}
    plans = [_back(before[uuid], gpu) for uuid, gpu in there.items() if uuid in before]
    lost = [GpuPlan(-1, uuid, refusal="it does not answer, or is gone") for uuid in before if uuid not in there]
    return (*plans, *lost)


def _back(was: tuple[bool, tuple[Instance, ...]], gpu: GpuLayout) -> GpuPlan:
    is_cut, instances = was
    if not is_cut:
        return _plan_whole(gpu)
    if gpu.is_cut is None:
        return _wrong(gpu, "it cannot be cut by mig any more", "is it the same gpu?")
    if not gpu.is_cut:
        made = tuple(_steps(gpu.uuid, (), [_placed(each) for each in instances]))
        return _mode_changed(gpu, Act.MODE_ON, after=made)
    present = {(each.profile, each.start): each for each in gpu.instances}
    arranged = [_placed(each, present.get((each.profile, each.start))) for each in instances]
    kept = {each.instance.id for each in arranged}
    used = [each for each in gpu.instances if each.holders and each.id not in kept]
    if used:
        return _in_use(gpu, used)
    return GpuPlan(gpu.index, gpu.uuid, (*_settled(gpu), *_steps(gpu.uuid, gpu.instances, arranged)))


def _placed(was: Instance, there: Instance | None = None) -> Placed:
    lacks = None if there is None else missing(there.compute, was.compute)
    if there is not None and lacks is not None:
        return Placed(there, lacks)
    return Placed(Instance(was.start, was.size, was.profile), was.compute)
