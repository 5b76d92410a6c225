"""Defines the facts about how a node's GPUs are divided by MIG and what they are set to, as the daemon tells them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from provision.declaration.fleet.facts import grammar
from provision.declaration.fleet.facts.fact import MESSAGE, Fact, tidy

_Uuid = Annotated[str, Meta(pattern=r"^GPU-[0-9a-f-]{1,60}$")]
_Ids = Annotated[str, Meta(pattern=r"^([0-9a-f]{8})?$")]
_Profile = Annotated[str, Meta(pattern=r"^[0-9a-z.+,-]{1,40}$")]


class MigGpu(Fact, frozen=True, kw_only=True):
    """One GPU, by the index that NVML gives it.

    ``device_id`` and ``subsystem_id`` are device and vendor in lower-case hexadecimal. ``enabled`` is None for a GPU
    that has no MIG mode; ``devices`` counts MIG devices by the short names of their profiles.
    """

    index: Annotated[int, Meta(ge=0, le=1023)]
    uuid: _Uuid
    device_id: _Ids = ""
    subsystem_id: _Ids = ""
    enabled: bool | None = None
    devices: Annotated[dict[_Profile, grammar.Count], Meta(max_length=64)] = {}


class MigState(Fact, frozen=True, kw_only=True):
    """What the program on the node tells; ``error`` is why it tells nothing, such as that no driver answers."""

    gpus: Annotated[tuple[MigGpu, ...], Meta(max_length=1024)] = ()
    error: str = ""

    def __post_init__(self) -> None:
        tidy(self, "error", MESSAGE)


_Lines = Annotated[tuple[str, ...], Meta(max_length=4096)]


class GpuSettingsState(Fact, frozen=True, kw_only=True):
    """Which settings are not as ``/etc/grapnel/gpu-settings.json`` has them, one line each.

    ``changes`` can be set, ``refusals`` cannot be had; ``error`` is why the program tells nothing.
    """

    changes: _Lines = ()
    refusals: _Lines = ()
    error: str = ""

    def __post_init__(self) -> None:
        tidy(self, "changes", MESSAGE)
        tidy(self, "refusals", MESSAGE)
        tidy(self, "error", MESSAGE)
