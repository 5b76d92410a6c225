"""Checks rules across the keys of `tenancy.kueue`, which Kueue's own webhook would refuse, or which would hold jobs."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import GangScheduler
from provision.declaration.spec.rules.remark import error, warning
from provision.declaration.spec.rules.tenancy import TENANCY, is_extended, whole_devices
from provision.declaration.spec.text.excerpt import few
from provision.declaration.spec.validate import nearest
from provision.declaration.spec.values.quantities import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from provision.declaration.spec.model import Kueue, Queue, Tenancy
    from provision.declaration.spec.rules.remark import Remark
    from provision.declaration.spec.text.findings import KeyPath

KUEUE: Final[KeyPath] = (*TENANCY, "kueue")
_NATIVE: Final = ("cpu", "memory")


def judge_kueue(tenancy: Tenancy) -> Iterator[Remark]:
    """Yield every rule that the section does not keep, errors and warnings."""
    kueue = tenancy.kueue
    return chain(
        _once(kueue),
        _cohorts(kueue),
        _unused(tenancy),
        chain.from_iterable(_queues(kueue)),
    )


def _queues(kueue: Kueue) -> Iterator[Iterator[Remark]]:
    """Yield the rules of each queue: of one that is not known in part, those of the others are judged."""
    for index, queue in enumerate(kueue.queues):
        yield _queue(kueue, queue, (*KUEUE, "queues", index))


def _once(kueue: Kueue) -> Iterator[Remark]:
    lists: tuple[tuple[str, Sequence[str]], ...] = (
        ("flavors", [each.name for each in kueue.flavors]),
        ("cohorts", [each.name for each in kueue.cohorts]),
        ("queues", [each.name for each in kueue.queues]),
    )
    for key, names in lists:
        for index, name in enumerate(names):
            if name in names[:index]:
                yield error((*KUEUE, key, index), f"'{name}' is listed twice", "put it into one entry")


def _cohorts(kueue: Kueue) -> Iterator[Remark]:
    parents = {each.name: each.parent for each in kueue.cohorts}
    for index, each in enumerate(kueue.cohorts):
        seen, name = {each.name}, each.parent
        while name is not None and name not in seen:
            seen.add(name)
            name = parents.get(name)
        if name is not None:
            path: KeyPath = (*KUEUE, "cohorts", index, "parent")
            yield error(path, f"'{each.name}' is part of itself by way of '{each.parent}'", "a cohort has one parent")


def _unused(tenancy: Tenancy) -> Iterator[Remark]:
    used = {quota.flavor for queue in tenancy.kueue.queues for quota in queue.quotas}
    for index, flavor in enumerate(tenancy.kueue.flavors):
        if flavor.name not in used:
            yield warning((*KUEUE, "flavors", index), f"no queue has a quota of '{flavor.name}'", "leave it out")
    asked = {tenant.queue for tenant in tenancy.tenants}
    for index, queue in enumerate(tenancy.kueue.queues):
        if queue.name not in asked:
            message = f"no namespace has the queue '{queue.name}'"
            yield warning((*KUEUE, "queues", index), message, "name it as queue of a tenant")
    if tenancy.gangs is GangScheduler.KUEUE and not tenancy.kueue.queues:
        message = "Kueue places groups of pods of its queues alone, and none are declared"
        yield warning((*TENANCY, "gangs"), message, "declare tenancy.kueue.queues, or make sure that others do")


def _queue(kueue: Kueue, queue: Queue, path: KeyPath) -> Iterator[Remark]:
    flavors, seen = [each.name for each in kueue.flavors], set()
    for index, quota in enumerate(queue.quotas):
        place: KeyPath = (*path, "quotas", index)
        if quota.flavor not in flavors:
            near = nearest(quota.flavor, flavors)
            hint = f"did you mean {near}?" if near else f"flavors: {few(flavors) if flavors else 'none are declared'}"
            yield error((*place, "flavor"), f"no flavor is named '{quota.flavor}'", hint)
        if quota.flavor in seen:
            yield error((*place, "flavor"), f"'{quota.flavor}' is listed twice", "put it into one entry")
        seen.add(quota.flavor)
        if not quota.resources:
            yield error((*place, "resources"), "is empty", "say what the queue has, such as nvidia.com/gpu: 8")
        for key, amounts in (("resources", quota.resources), ("borrow", quota.borrow), ("lend", quota.lend)):
            yield from whole_devices((*place, key), amounts)
            yield from _limits(queue, index, key, place)
    covered = {name for quota in queue.quotas for name in quota.resources}
    if missing := [name for name in _NATIVE if name not in covered]:
        message = f"covers no {' and no '.join(missing)}: a job that requests it is never admitted"
        yield warning((*path, "quotas"), message, "add it, or exclude it in Kueue's own configuration")


def _limits(queue: Queue, index: int, key: str, place: KeyPath) -> Iterator[Remark]:
    """Yield limits of borrowing and lending that say nothing, or more than there is."""
    quota = queue.quotas[index]
    amounts = {"borrow": quota.borrow, "lend": quota.lend}.get(key, {})
    for name, amount in amounts.items():
        path: KeyPath = (*place, key, name)
        if queue.cohort is None:
            yield error(path, f"has no meaning for a queue without a cohort ({queue.name})", "declare its cohort")
        elif name not in quota.resources:
            yield error(path, f"the queue has no {name} of {quota.flavor}", "add it to resources, 0 where it has none")
        elif key == "lend" and (parse_quantity(amount) or 0) > (parse_quantity(quota.resources[name]) or 0):
            yield error(path, f"is {amount}, and the queue's own is {quota.resources[name]}", "lend at most that")
    if key == "resources":
        for name in amounts or quota.resources:
            if name.startswith(("requests.", "limits.")) or ("." in name and not is_extended(name)):
                yield error((*place, key, name), f"'{name}' is nothing that a pod requests", "such as nvidia.com/gpu")
