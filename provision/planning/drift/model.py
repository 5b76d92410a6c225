"""Defines a difference between a node and its declaration, as a value that is equal on equal nodes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from provision.planning.node_plan import Role


class DriftKind(StrEnum):
    """What it is that differs."""

    VERSION = "version"  # a package: another version, missing, or one too many
    HOLD = "hold"  # nothing keeps a package at its version, or something does that should not
    FILE = "file"  # the engine's configuration, the module's parameters, pins, the daemon's settings
    SERVICE = "service"  # a unit that does not run, does not start at boot, or has not read its files
    MODULE = "kernel-module"  # what is loaded
    SOFTWARE = "software"  # grapnel's own programs
    MIG = "mig"  # how GPUs are divided
    GPUS = "gpu-setting"  # modes, power limits and clocks of GPUs
    KERNEL = "kernel-setting"  # of the running kernel, or what it was started with
    INTERRUPTED = "interrupted"  # a change that was not finished


@dataclass(frozen=True, slots=True)
class Subject:
    """What differs, by its name; ``found`` and ``declared`` are versions or states, or None."""

    name: str
    found: str | None = None
    declared: str | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs on a node for one reason. ``is_edit``: `apply` leaves the file as it is unless it is told to."""

    kind: DriftKind
    role: Role
    reason: str
    subjects: tuple[Subject, ...]
    is_edit: bool = False
