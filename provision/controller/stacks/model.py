"""Defines a GpuStack of a cluster, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from provision.declaration.spec.model import StackSpec
    from provision.declaration.spec.values.label_selector import LabelSelector


class WhenDeleted(StrEnum):
    """What becomes of the Nodes of a stack that is deleted."""

    KEEP = "Keep"  # they stay as they are
    REMOVE = "Remove"  # grapnel is taken off them first, as by `grapnel remove`


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A GpuStack that fits the model.

    ``generation`` grows with each change of its spec. ``selector`` says which Nodes are its own, by their labels. One
    that ``is_going`` has been deleted, and stays until its finalizers are gone. ``warnings`` are what its rules found
    that is no error.
    """

    name: str
    uid: str
    generation: int
    spec: StackSpec
    selector: LabelSelector
    when_deleted: WhenDeleted = WhenDeleted.KEEP
    is_going: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def is_removing(self) -> bool:
        """Whether it has been deleted, and grapnel is to be taken off its Nodes."""
        return self.is_going and self.when_deleted is WhenDeleted.REMOVE


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A GpuStack that this grapnel cannot use, with every reason. Its Nodes stay as they are.

    They stay its own, too: another stack that selects them is not to have them for a mistake in this one. Where not
    even its ``selector`` can be read, it is not known which they are.
    """

    name: str
    uid: str
    generation: int
    reasons: tuple[str, ...]
    selector: LabelSelector | None = None
    is_going: bool = False


class StackMetadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Tolerant: what is not named is ignored."""

    name: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()


class StackObject(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A GpuStack; ``decode`` judges its spec, and its status may be what a later version has written."""

    api_version: str = ""
    kind: str = ""
    metadata: StackMetadata = StackMetadata()
    spec: Any = None
    status: Any = None
