"""Defines the facts about what GPUs are set to beside the node's file, as the node daemon's program tells them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from provision.declaration.fleet.facts.fact import MESSAGE, Fact, tidy

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
