"""Defines the driver change: everything that the program on a node needs to bring its driver to one version.

Written by the planner, read by ``grapnel-driver``; the contract is ``docs/contracts/driver-change``.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Literal

import msgspec

_ID_LENGTH = 12


class PackageVersion(msgspec.Struct, frozen=True, order=True):
    """One binary package at one exact version."""

    name: str
    version: str


class ChangedFile(msgspec.Struct, frozen=True):
    """One file that comes with the driver; it belongs to root."""

    path: str
    content: str
    mode: Annotated[str, msgspec.Meta(pattern="^0[0-7]{3}$")] = "0644"


class ModuleTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The version that the loaded kernel module must have afterwards."""

    version: str


class Signing(msgspec.Struct, frozen=True, kw_only=True):
    """A key and its certificate on the node, with which modules are signed."""

    key: str
    certificate: str


class DriverChange(msgspec.Struct, frozen=True, kw_only=True):
    """One node's driver as it must be afterwards.

    ``kernels`` are those that must have the module, ``dkms`` its name in DKMS (None for a precompiled one). Without
    ``module`` the loaded module is left alone.
    """

    schema: Literal["grapnel.dev/driver-change/v1alpha1"] = "grapnel.dev/driver-change/v1alpha1"
    version: str
    flavour: Literal["open", "proprietary", "none"]
    manager: Literal["apt", "dnf", "zypper"]
    packages: tuple[PackageVersion, ...]
    remove: tuple[str, ...] = ()
    files: tuple[ChangedFile, ...] = ()
    hold: bool = True
    kernels: tuple[str, ...] = ()
    dkms: str | None = None
    services: tuple[str, ...] = ()
    sign: Signing | None = None
    compile: Literal["stage", "anywhere"] = "stage"
    reboot: bool = False
    module: ModuleTarget | None = None


def change_id(change: DriverChange) -> str:
    """Return the name of a change: 12 hexadecimal digits of its canonical JSON."""
    document = msgspec.to_builtins(change)
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:_ID_LENGTH]
