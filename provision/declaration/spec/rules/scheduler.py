"""Checks rules across the keys of the section `scheduler`, and what it has to do with the node daemon."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import SchedulerKind
from provision.declaration.spec.rules.remark import error, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.declaration.spec.model import Scheduler, StackSpec
    from provision.declaration.spec.rules.remark import Remark
    from provision.declaration.spec.text.findings import KeyPath

SECTION: Final[KeyPath] = ("scheduler",)
NODE: Final = "{node}"
_NO_KUBELET: Final = (SchedulerKind.SLURM, SchedulerKind.COMMANDS)


def judge_scheduler(spec: StackSpec) -> Iterator[Remark]:
    """Yield every rule that the section does not keep, errors and warnings."""
    scheduler = spec.scheduler
    return chain(_unused(scheduler), _commands(scheduler), _slurm(scheduler), _two_owners(spec))


def _unused(scheduler: Scheduler) -> Iterator[Remark]:
    for kind, section in ((SchedulerKind.SLURM, scheduler.slurm), (SchedulerKind.COMMANDS, scheduler.commands)):
        if section is not None and scheduler.kind is not kind:
            hint = f"write kind: {kind.value}, or leave the section out"
            message = f"has no effect with kind: {scheduler.kind.value}"
            yield error((*SECTION, kind.value), message, hint)


def _commands(scheduler: Scheduler) -> Iterator[Remark]:
    if scheduler.kind is not SchedulerKind.COMMANDS:
        return
    if scheduler.commands is None:
        yield error((*SECTION, "commands"), "is missing", "kind: commands needs drain, isDrained and resume")
        return
    commands = scheduler.commands
    for key, command in (("drain", commands.drain), ("isDrained", commands.is_drained), ("resume", commands.resume)):
        path: KeyPath = (*SECTION, "commands", key)
        if not command:
            yield error(path, "is missing", "list the program and its arguments")
        elif NODE not in command[0] and all(NODE not in argument for argument in command):
            yield error(path, "is the same for every node", f'write "{NODE}" where the name of the node belongs')
        elif NODE in command[0]:
            yield error((*path, 0), "is a program that differs from node to node", f"{NODE} belongs in an argument")


def _slurm(scheduler: Scheduler) -> Iterator[Remark]:
    if scheduler.kind is SchedulerKind.SLURM and scheduler.slurm is not None:
        for index, argument in enumerate(scheduler.slurm.command):
            if NODE in argument:
                hint = "scontrol and squeue are asked about many nodes at once"
                yield error((*SECTION, "slurm", "command", index), f"{NODE} has no meaning here", hint)


def _two_owners(spec: StackSpec) -> Iterator[Remark]:
    """Two that each give away all GPUs of a node give one GPU to two workloads."""
    if spec.scheduler.kind in _NO_KUBELET and spec.plugin.enabled:
        message = "the node daemon offers the GPUs to a kubelet, while another scheduler gives them to its jobs"
        yield warning(("plugin", "enabled"), message, "declare plugin.enabled: false where no kubelet runs")
