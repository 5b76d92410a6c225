"""Defines the status of a GpuStack: what the controller writes, and the schema of the custom resource is made of."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from provision.declaration.spec.model.section import doc

MAX_TROUBLES: Final = 20  # nodes that are named in a status; the others are counted
_Count = Annotated[int, Meta(ge=0)]


class StackState(StrEnum):
    """How a stack stands, in one word."""

    AS_DECLARED = "AsDeclared"  # every node is as declared
    CHANGING = "Changing"  # nodes are being looked at or changed
    WAITING = "Waiting"  # a window, a gate, a budget, a pause or a person is waited for
    DEGRADED = "Degraded"  # nodes failed, and nothing else is under way
    REFUSED = "Refused"  # the declaration cannot be used as it is
    EMPTY = "Empty"  # no Node is selected
    GOING = "Going"  # deleted; what it brought about is left as it is
    NO_CONTROLLER = "NoController"  # uninstalled: how its nodes stand is not known


class ConditionType(StrEnum):
    """The conditions of a stack."""

    ACCEPTED = "Accepted"
    AS_DECLARED = "AsDeclared"
    PROGRESSING = "Progressing"
    DEGRADED = "Degraded"
    TENANCY = "TenancyAsDeclared"  # of stacks that declare quotas, priorities, gangs or queues
    CONTROLLER_APART = "ControllerApart"  # where the controller knows on which Node its pod is


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Tolerant: what a later version has written is ignored."""


class StackCondition(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """A condition as of meta/v1."""

    type: Annotated[str, doc("What it is about.")]
    status: Annotated[Literal["True", "False", "Unknown"], doc("Whether it is so.")]
    reason: Annotated[str, doc("Why, in one word.")]
    message: Annotated[str, doc("Why, for people.")]
    last_transition_time: Annotated[str, doc("Since when it has this status.", format="date-time")]
    observed_generation: Annotated[_Count, doc("The generation of the spec that this is about.")] = 0


class NodeCounts(_Part, frozen=True, kw_only=True):
    """Nodes of a stack, each counted once beside ``total``."""

    total: Annotated[_Count, doc("Nodes that the selector selects and no other stack claims.")] = 0
    as_declared: Annotated[_Count, doc("Nodes that are as declared.")] = 0
    changing: Annotated[_Count, doc("Nodes that are looked at or changed now.")] = 0
    waiting: Annotated[_Count, doc("Nodes whose turn has not come.")] = 0
    failed: Annotated[_Count, doc("Nodes on which something failed, or which are refused.")] = 0
    claimed_twice: Annotated[_Count, doc("Nodes that another stack selects as well: nothing is done about them.")] = 0


class NodeTrouble(_Part, frozen=True, kw_only=True):
    """Why one node is not as declared."""

    node: Annotated[str, doc("The Node.")]
    message: Annotated[str, doc("What is wrong, or what it waits for, and what ends that.")]


class StackStatus(_Part, frozen=True, kw_only=True):
    """How the nodes of a stack stand."""

    observed_generation: Annotated[_Count, doc("The generation of the spec that this is about.")] = 0
    state: Annotated[str, doc("How it stands, in one word.")] = ""
    message: Annotated[str, doc("The same in a sentence.")] = ""
    progress: Annotated[str, doc("How many of its nodes are as declared, such as 37/40.")] = ""
    driver: Annotated[str, doc("The driver that its nodes are to have.")] = ""
    fingerprint: Annotated[
        str, doc("What its nodes are brought to: the beginning of their annotation grapnel.dev/as-declared.")
    ] = ""
    nodes: Annotated[NodeCounts, doc("How many nodes stand how.")] = NodeCounts()
    troubles: Annotated[
        tuple[NodeTrouble, ...], doc(f"Nodes that are not as declared, and why: the first {MAX_TROUBLES}.")
    ] = ()
    conditions: Annotated[tuple[StackCondition, ...], doc("Conditions, as every controller has them.")] = ()
