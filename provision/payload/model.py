"""Defines the payload as values: archives with their digests, and the units of the daemon's part."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec reads the types at run time

import msgspec


class Artifact(msgspec.Struct, frozen=True):
    """One archive on this machine; ``digest`` is the SHA-256 of its content."""

    path: str
    digest: str


class Payload(msgspec.Struct, frozen=True):
    """Everything for nodes: the hook, the driver program, the daemon per Python minor version, the daemon's unit.

    ``units`` are those beside it, text by name: a timer and what it starts.
    """

    hook: Artifact
    driver: Artifact
    node: Mapping[str, Artifact]
    unit: str
    units: Mapping[str, str] = {}
