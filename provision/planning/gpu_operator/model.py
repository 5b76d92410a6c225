"""Defines what becomes of the GPU operator's keys, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from provision.planning.draft.model import Said

Spec = Mapping[str, Any]


class Verdict(Enum):
    """What becomes of a key."""

    CARRIED = "carried over"
    COVERED = "grapnel's own"  # what it is about is done by grapnel in its own way, and needs no key
    MISSING = "without a counterpart"
    IDLE = "asks for nothing"  # it is empty, or of a part that is off


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key of an object of the operator, its value, and what becomes of it; ``became`` are keys of a GpuStack."""

    source: str
    path: str
    value: object
    verdict: Verdict
    why: str = ""
    became: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorObjects:
    """The objects that were read. ``config_maps`` are their data by name, ``others`` what no rule is about.

    ``charts`` are values of the chart of NVIDIA's DRA driver, which is beside the operator or without it.
    """

    policies: Sequence[tuple[str, Spec]] = ()
    drivers: Sequence[tuple[str, Spec]] = ()
    config_maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    others: Sequence[str] = ()
    charts: Sequence[Spec] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftedStack:
    """A GpuStack that is to be written: its name, the labels of its Nodes, and its keys with where they are from."""

    name: str
    labels: Mapping[str, str]
    said: tuple[Said, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """The stacks, and what became of every key."""

    stacks: tuple[DraftedStack, ...]
    keys: tuple[Key, ...]

    def of(self, verdict: Verdict) -> tuple[Key, ...]:
        """Return the keys with a verdict, in the order of the objects."""
        return tuple(key for key in self.keys if key.verdict is verdict)
