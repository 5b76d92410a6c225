"""Defines the section `scheduler`: who gives work to a node, and is told to take it out of service."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from msgspec import Meta

from provision.declaration.spec.model.section import Section, doc
from provision.declaration.spec.model.texts import CommandArgument, SlurmName

TimeoutSeconds = Annotated[int, Meta(ge=1, le=600)]
Command = Annotated[tuple[CommandArgument, ...], Meta(max_length=64)]


class SchedulerKind(Enum):
    """What gives work to a node."""

    AUTO = "auto"
    KUBERNETES = "kubernetes"
    SLURM = "slurm"
    COMMANDS = "commands"
    NONE = "none"


class Slurm(Section, frozen=True, kw_only=True):
    """How Slurm is reached, with scontrol and squeue."""

    command: Annotated[
        Command,
        doc("What scontrol and squeue are run by, such as [ssh, slurm1]; empty: they are run on this machine."),
    ] = ()
    reservation: Annotated[
        SlurmName | None,
        doc("Maintenance reservation in which nodes may be changed; any other holds its nodes. Null: every one does."),
    ] = None
    timeout_seconds: Annotated[TimeoutSeconds, doc("How long one command may take.")] = 30


class Commands(Section, frozen=True, kw_only=True):
    """Programs on this machine that take a node out of service and put it back; {node} stands for its name."""

    drain: Annotated[Command, doc("Has the node take no new work; may be run again.")] = ()
    is_drained: Annotated[
        Command,
        doc("Tells whether work is left on the node: exits with 0 when none is, with 1 while its output names some."),
    ] = ()
    resume: Annotated[Command, doc("Has the node take work again; may be run again.")] = ()
    timeout_seconds: Annotated[TimeoutSeconds, doc("How long one of them may take.")] = 60


class Scheduler(Section, frozen=True, kw_only=True):
    """Who gives work to the node, and is told to take it out of service."""

    kind: Annotated[
        SchedulerKind,
        doc(
            "Who gives work to the node; auto: Kubernetes where a kubeconfig is found, else none; none: nobody is "
            "told, and what still holds a GPU is waited for."
        ),
    ] = SchedulerKind.AUTO
    slurm: Annotated[Slurm | None, doc("How Slurm is reached; null: scontrol of this machine.")] = None
    commands: Annotated[Commands | None, doc("The programs, with kind: commands.")] = None
