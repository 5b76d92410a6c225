"""Defines a GpuStack as the API server returns it, decoded no further than a watch needs."""

from __future__ import annotations

from typing import Any

import msgspec


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
