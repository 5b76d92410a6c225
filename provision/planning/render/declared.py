"""Renders what `apply` brings about on a node, for the node's own comparison (contract ``docs/contracts/declared``)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Literal

import msgspec

Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]

DECLARED_RECORD = "/etc/grapnel/declared.json"


class DeclaredPackage(msgspec.Struct, frozen=True, kw_only=True):
    """A package of the driver at its version; ``hold``: whether the package manager is kept from changing it."""

    name: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9][A-Za-z0-9.+_-]*$")]
    version: Annotated[str, msgspec.Meta(min_length=1)]
    hold: bool


class DeclaredFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file of root's, by the SHA-256 of its content.

    Where there is a ``mark``, ``apply`` stops at one that was edited after grapnel wrote it, unless it is forced: the
    mark stands at the start of the file, or before grapnel's part at its end.
    """

    path: Annotated[str, msgspec.Meta(pattern="^/")]
    sha256: Digest
    mode: Annotated[str, msgspec.Meta(pattern="^0[0-7]{3}$")]
    mark: Literal["start", "end", ""] = ""


class DeclaredRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What one node is to be. ``module`` is the version of the loaded kernel module, null where none has to be.

    ``node`` is the inventory's name, ``units`` run and start at boot, ``software`` are digests of grapnel's parts.
    """

    schema: Literal["grapnel.dev/declared/v1alpha1"] = "grapnel.dev/declared/v1alpha1"
    node: str
    manager: Literal["apt", "dnf", "zypper"]
    packages: tuple[DeclaredPackage, ...]
    files: tuple[DeclaredFile, ...]
    units: tuple[Annotated[str, msgspec.Meta(pattern=r"\.(service|timer)$")], ...]
    module: str | None
    software: Mapping[str, Digest]


def render_record(record: DeclaredRecord) -> str:
    """Return the text of a record."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1).decode() + "\n"


@lru_cache(maxsize=1024)
def digest_of(content: str) -> str:
    """Return the SHA-256 of a file's text; nodes of a fleet share most of theirs."""
    return hashlib.sha256(content.encode("utf-8", "surrogateescape")).hexdigest()
