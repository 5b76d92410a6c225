"""Defines what one build makes, and the archive that came of it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

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
    def answers(self) -> int:
        """How many nodes have to build the same before it is handed on: two, where none is declared as trusted."""
        return 1 if self.builder else 2

    @property
    def place(self) -> str:
        """Where a node's incoming folder has the archive."""
        return f"modules/{self.kernel}.tar.gz"

    def __str__(self) -> str:
        return f"driver {self.version} ({self.flavour}) for kernel {self.kernel}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltModule:
    """An archive on the controller that may be handed on, and the nodes that built what is in it."""

    build: ModuleBuild
    nodes: tuple[str, ...]
    path: Path
    sha256: str
    size_bytes: int


class GivenBuild(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one node gave as its build, in an archive of ours with the digest ``sha256``.

    ``machine`` is what tells the machine from others, as `is_same_machine` compares it. ``content`` are digests of the
    modules, and of what dkms is told of them, by name; empty where nothing is compared.
    """

    schema: Literal["grapnel.dev/built-module/v1alpha2"] = "grapnel.dev/built-module/v1alpha2"
    build: ModuleBuild
    node: str
    machine: tuple[str, ...] = ()
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    content: dict[str, str] = {}
