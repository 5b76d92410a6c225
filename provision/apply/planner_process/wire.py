"""Defines what goes between the controller and the process that plans: frames of JSON, each behind its length.

First `Setup`, once; then a `Question` and its `PlanAnswer`, again and again.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from provision.apply.errors import PlanningError
from provision.apply.planner_process.limits import Limits
from provision.base import strict_json
from provision.base.strict_json import MalformedError
from provision.declaration.fleet.facts.node import NodeFacts
from provision.declaration.spec.model import StackSpec
from provision.planning.node_plan import NodePlan
from provision.planning.supply.payload.model import Payload

LENGTH: Final = struct.Struct(">I")
_LIMIT_BYTES: Final = 64 << 20


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What is the same for every node."""

    payload: Payload
    limits: Limits


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One node: its name in the inventory, its declaration, why its driver has this version, what is true of it."""

    node: str
    stack: StackSpec
    version_reason: str = ""
    facts: NodeFacts


class PlanAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A plan, or why there is none; ``trace`` belongs to a bug, and after ``is_last`` the worker ends."""

    plan: NodePlan | None = None
    error: str = ""
    trace: str = ""
    is_last: bool = False


def decode_answer(data: bytes) -> PlanAnswer:
    """Return what the worker answered; raises PlanningError for anything else."""
    try:
        return strict_json.decode(data, PlanAnswer, limit_bytes=_LIMIT_BYTES)
    except MalformedError as error:
        raise PlanningError(f"the planner's answer cannot be read: {error}") from error


def encode_frame(message: msgspec.Struct) -> bytes:
    """Return a message as it is sent."""
    body = msgspec.json.encode(message)
    return LENGTH.pack(len(body)) + body
