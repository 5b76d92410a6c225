"""Defines what a verb answers that notes something for others; the contract is ``docs/contracts/answer``."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec

Time = Annotated[datetime, msgspec.Meta(tz=True)]
SCHEMA: Final = "grapnel.dev/answer/v1alpha1"


class AnswerStep(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that would be changed."""

    action: str
    target: str


class NodeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was said of one node. ``refused``: it makes no sense for it, and nothing was noted.

    ``steps`` are what would be changed, where only that was asked for and nothing was noted; else null.
    """

    node: str
    refused: bool
    says: tuple[str, ...]
    steps: tuple[AnswerStep, ...] | None = None


class AnswerPause(msgspec.Struct, frozen=True, kw_only=True):
    """Who wants no further node to begin, since when and why; null ``since`` is not known."""

    by: str
    since: Time | None
    reason: str


class AnswerDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a verb did. ``pause`` is what holds now, ``before`` what held when the verb was called."""

    schema: Literal["grapnel.dev/answer/v1alpha1"]
    verb: Literal["pause", "resume", "skip", "retry", "abandon", "rollback"]
    exit_code: int
    place: str | None
    pause: AnswerPause | None
    before: AnswerPause | None
    nodes: tuple[NodeAnswer, ...]
    says: tuple[str, ...]
