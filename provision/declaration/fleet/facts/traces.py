"""Defines the facts about who changed a node, as its own records tell them: logs, times of files, states of units.

They are for people alone: nothing is decided by them, as root of the node may have written anything there.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from provision.declaration.fleet.facts import grammar
from provision.declaration.fleet.facts.fact import Fact, tidy

_COMMAND = 300  # characters
_USER = 64


class PackageTrace(Fact, frozen=True, kw_only=True):
    """The last change of a package; ``version`` is the one after it, empty where it was removed.

    ``command`` and ``user`` are empty where nobody wrote them down.
    """

    action: grammar.Word
    time: grammar.Moment
    version: grammar.Version = ""
    command: str = ""
    user: str = ""

    def __post_init__(self) -> None:
        tidy(self, "command", _COMMAND)
        tidy(self, "user", _USER)


class FileTrace(Fact, frozen=True, kw_only=True):
    """When a file was written, and when its mode, owner or name changed; of one that is gone, its ``folder``."""

    written: grammar.Moment | None = None
    changed: grammar.Moment | None = None
    folder: grammar.Moment | None = None


class ServiceTrace(Fact, frozen=True, kw_only=True):
    """Since when a unit is in its state, and systemd's word for how its last run ended."""

    since: grammar.Moment
    result: grammar.Word = ""


class Traces(Fact, frozen=True, kw_only=True):
    """What a node's records tell, by package, path and unit."""

    packages: Annotated[dict[grammar.PackageName, PackageTrace], Meta(max_length=512)] = {}
    files: Annotated[dict[grammar.AbsolutePath, FileTrace], Meta(max_length=600)] = {}
    services: Annotated[dict[grammar.Unit, ServiceTrace], Meta(max_length=256)] = {}
