"""Defines the list of a bundle: every file with its digest, and what each is for."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+:~%^_-]{0,254}$")]
# Folders and files of plain names: no part begins with a dot, so none leads out of the folder that it is unpacked in.
# The collection's modules begin with underscores.
_PLACE = r"^[A-Za-z0-9_][A-Za-z0-9.+:~%^_-]*(?:/[A-Za-z0-9_][A-Za-z0-9.+:~%^_-]*)*$(?!\n)"
_PLACE_LENGTH = 500
Place = Annotated[str, msgspec.Meta(pattern=_PLACE, max_length=_PLACE_LENGTH)]
Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Flavour = Literal["open", "proprietary"]
Size = Annotated[int, msgspec.Meta(ge=0)]


def is_place(text: str) -> bool:
    """Tell whether a text has the form of a file's place in a bundle."""
    return len(text) <= _PLACE_LENGTH and re.fullmatch(_PLACE, text) is not None


class BundledFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file, by its place in the bundle."""

    place: Place
    sha256: Digest
    size_bytes: Size


class BundledPackage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One package file, for the nodes of one distribution, with what a plan needs to know of it.

    ``source`` is its source package; ``depends`` are the names of packages that it needs.
    """

    place: Place
    name: Name
    version: Name
    source: Name
    depends: Annotated[tuple[Name, ...], msgspec.Meta(max_length=512)] = ()


class BundledModule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The built modules for one kernel."""

    place: Place
    kernel: Name
    dkms: Name
    version: Name
    flavour: Flavour


class Driver(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one distribution's nodes need for one driver: packages with all they depend on, and modules by kernel."""

    distribution: Name
    version: Name
    flavour: Literal["open", "proprietary", "none"]
    packages: tuple[BundledPackage, ...]
    modules: tuple[BundledModule, ...] = ()


class BundledEngine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one distribution's nodes need for one engine: its ``package`` at a version, with all that it depends on."""

    distribution: Name
    package: Name
    version: Name
    packages: tuple[BundledPackage, ...]


class BundleList(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The list of a bundle, which is its first file and does not list itself.

    ``payload``, ``collection`` and ``keys`` are folders of the bundle; empty where it has none.
    """

    schema: Literal["grapnel.dev/bundle/v1alpha1"] = "grapnel.dev/bundle/v1alpha1"
    grapnel: str
    files: tuple[BundledFile, ...]
    drivers: tuple[Driver, ...]
    engines: tuple[BundledEngine, ...] = ()
    payload: str = ""
    collection: str = ""
    keys: str = ""
