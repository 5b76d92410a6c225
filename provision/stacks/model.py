"""Defines a GpuStack of a cluster, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from provision.spec.label_selector import LabelSelector
    from provision.spec.model import StackSpec


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
    is_going: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A GpuStack that this grapnel cannot use, with every reason. Its Nodes stay as they are."""

    name: str
    uid: str
    generation: int
    reasons: tuple[str, ...]
    is_going: bool = False
