"""Holds what every step of staging needs: the node, the change, and the folder in which its set is put together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.record import store
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.folder import SCRATCH

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import DriverChange
    from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.trust import Signer
    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import Finding, StageOptions
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageManager
    from ansible_collections.grapnel.node.plugins.module_utils.packages.source import PackageSource


@dataclass(frozen=True)
class PackageSystem:
    """A node's package manager, and where it gets its package files from."""

    manager: PackageManager
    source: PackageSource


@dataclass(frozen=True)
class Work:
    """One run of staging.

    ``findings`` are what became known on the way and keeps nothing from being used; ``signers`` fills with who signed
    the built modules, by kernel, ``own`` with the kernels whose modules this node has built.
    """

    host: Host
    system: PackageSystem
    change: DriverChange
    options: StageOptions
    clock: Clock
    folder: str
    findings: list[Finding] = field(default_factory=list)
    signers: dict[str, tuple[Signer, ...]] = field(default_factory=dict)
    own: set[str] = field(default_factory=set)

    @property
    def manager(self) -> PackageManager:
        """The node's package manager."""
        return self.system.manager

    @property
    def source(self) -> PackageSource:
        """Where package files come from."""
        return self.system.source

    @property
    def before(self) -> str:
        """The folder of the way back."""
        return store.before_folder(self.folder)

    @property
    def packages(self) -> str:
        """The folder of the package files."""
        return f"{self.folder}/{store.PACKAGES}"

    @property
    def scratch(self) -> str:
        """A folder that is gone when the set is sealed."""
        return f"{self.folder}/{SCRATCH}"

    def package_files(self) -> tuple[str, ...]:
        """Return the package files of the set."""
        return store.package_files(self.host, self.folder, self.manager.suffix)

    def package_files_back(self) -> tuple[str, ...]:
        """Return the package files of the way back."""
        return store.package_files(self.host, self.before, self.manager.suffix)

    def archive(self, kernel: str) -> str:
        """Return where the set keeps the module for a kernel."""
        return store.module_archive(self.folder, kernel)
