"""Defines what one build makes, and the archive that came of it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

_KEY_LENGTH = 16


class ModuleBuild(msgspec.Struct, frozen=True, kw_only=True, order=True, forbid_unknown_fields=True):
    """The modules of one driver for one kernel. Nodes that need an equal one can use the same archive.

    ``dkms`` is the module's name there, ``certificate`` the path of the certificate that the modules are checked
    against, empty where none is declared, ``builder`` the only host that the nodes take it from, empty for any one.
    """

    distribution: str
    architecture: str
    kernel: str
    dkms: str
    version: str
    flavour: str
    certificate: str = ""
    builder: str = ""

    @property
    def key(self) -> str:
        """16 digits that stand for it in file names."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:_KEY_LENGTH]

    @property
    def place(self) -> str:
        """Where a node's incoming folder has the archive."""
        return f"modules/{self.kernel}.tar.gz"

    def __str__(self) -> str:
        return f"driver {self.version} ({self.flavour}) for kernel {self.kernel}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltModule:
    """An archive on the controller, and the node that built it."""

    build: ModuleBuild
    node: str
    path: Path
    sha256: str
    size_bytes: int
