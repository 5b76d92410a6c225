"""Defines the payload as values: archives with their digests, and the units of the daemon's part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

PythonVersion = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,2}\.[0-9]{1,3}$(?!\n)")]


def minor_of(python: str) -> tuple[int, int]:
    """Return "3.10" as numbers, which are in order."""
    major, minor = python.split(".")
    return int(major), int(minor)


class Artifact(msgspec.Struct, frozen=True):
    """One archive on this machine: the SHA-256 of its content, and the oldest Python that its programs run with."""

    path: str
    digest: str
    python: str = "3.9"


class Payload(msgspec.Struct, frozen=True):
    """Everything for nodes: the hook, the driver program, the daemon, its unit.

    ``units`` are those beside it, text by name: a timer and what it starts.
    """

    hook: Artifact
    driver: Artifact
    node: Artifact
    unit: str
    units: Mapping[str, str] = {}
