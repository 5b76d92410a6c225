"""Defines the facts that decide whether a driver can be installed on a node, and come up there after a boot.

All of them are optional: a node whose collection is older does not say them, and what is not said leads to no finding.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from provision.declaration.fleet.facts import grammar
from provision.declaration.fleet.facts.fact import COMMAND, MESSAGE, Fact, tidy


class ModuleFile(Fact, frozen=True, kw_only=True):
    """A file of the module ``nvidia`` that one kernel has; ``signer`` is None where nobody signed it."""

    version: grammar.Version | None = None
    flavour: grammar.Word | None = None
    signer: str | None = None
    path: grammar.AbsolutePath | None = None

    def __post_init__(self) -> None:
        tidy(self, "signer", COMMAND)


class Kernel(Fact, frozen=True, kw_only=True):
    """An installed kernel that may boot next; ``headers``: modules can be built for it.

    ``default``: the boot loader starts it unless somebody chooses another one; the newest where that cannot be read.
    """

    release: grammar.Word
    running: bool = False
    default: bool = False
    headers: bool = False
    modules: Annotated[tuple[ModuleFile, ...], Meta(max_length=32)] = ()


class PendingReboot(Fact, frozen=True, kw_only=True):
    """What the operating system's packages have left: the file ``path``, with the ``packages`` that asked for it."""

    path: grammar.AbsolutePath
    packages: Annotated[tuple[grammar.PackageName, ...], Meta(max_length=256)] = ()


class DkmsBuild(Fact, frozen=True, kw_only=True):
    """One line of ``dkms status``; ``kernel`` is empty while the module is only ``added``.

    ``autoinstall``: its dkms.conf asks for a build for every new kernel.
    """

    module: grammar.Word
    version: grammar.Version
    kernel: grammar.Word = ""
    architecture: grammar.Word = ""
    state: grammar.Word = "added"
    autoinstall: bool = True


class SecureBoot(Fact, frozen=True, kw_only=True):
    """Whether the firmware checks signatures; None where that cannot be known.

    ``enforced``: the kernel refuses modules without a signature that it trusts. ``enrolled`` are the certificates that
    it accepts for modules, None where they cannot be listed.
    """

    enabled: bool | None = None
    enforced: bool = False
    enrolled: Annotated[tuple[str, ...], Meta(max_length=256)] | None = None
    lockdown: grammar.Word | None = None

    def __post_init__(self) -> None:
        tidy(self, "enrolled", COMMAND)


class Nouveau(Fact, frozen=True, kw_only=True):
    """The kernel's own driver for NVIDIA GPUs: two drivers cannot have the same GPU."""

    loaded: bool = False
    blacklisted: bool = False


class ForeignDriver(Fact, frozen=True, kw_only=True):
    """A driver that no package owns; ``kind`` is ``runfile`` where NVIDIA's installer left its traces."""

    kind: grammar.Word
    version: grammar.Version | None = None
    uninstaller: grammar.AbsolutePath | None = None
    files: Annotated[tuple[grammar.AbsolutePath, ...], Meta(max_length=64)] = ()


class Unattended(Fact, frozen=True, kw_only=True):
    """What upgrades packages on its own; ``active``: it runs, or its timer does."""

    unit: grammar.Unit
    active: bool = False


class Initramfs(Fact, frozen=True, kw_only=True):
    """What writes the initial file system that a kernel boots with.

    ``outdated``: kernels whose disk is older than the driver's settings, which are in it.
    """

    tool: grammar.Word = "none"
    outdated: Annotated[tuple[grammar.Word, ...], Meta(max_length=32)] = ()


class BuildTools(Fact, frozen=True, kw_only=True):
    """What a module is built with; ``dkms`` is its version. ``autoinstall``: new kernels get their modules built."""

    dkms: grammar.Version | None = None
    gcc: bool = False
    make: bool = False
    autoinstall: bool = True


class StagingCost(Fact, frozen=True, kw_only=True):
    """What staging took on this node."""

    download_s: grammar.Seconds = 0
    build_s: grammar.Seconds = 0
    bytes: grammar.Bytes = 0
    cpu_s: grammar.Seconds = 0


class StagedChange(Fact, frozen=True, kw_only=True):
    """A driver change in the node's staging area; one that is not complete must be staged again."""

    id: grammar.Word
    version: grammar.Version | None = None
    complete: bool = False
    cost: StagingCost = StagingCost()


class DriverRun(Fact, frozen=True, kw_only=True):
    """The last run of the driver program on the node, as its ``run.json`` says.

    ``reboot`` is why it cannot go on without a reboot, ``reboot_due`` whether that has not happened yet.
    """

    run: grammar.Word = ""
    change: grammar.Word = ""
    verb: grammar.Word = ""
    unit: grammar.Word = ""
    state: Literal["running", "needs-reboot", "done", "failed", "returned", "quarantined"]
    step: grammar.Word = ""
    reason: str | None = None
    reboot: str = ""
    reboot_due: bool = False
    out_of_service_s: grammar.Seconds | None = None

    def __post_init__(self) -> None:
        tidy(self, "reason", MESSAGE)
        tidy(self, "reboot", MESSAGE)

    @property
    def is_open(self) -> bool:
        """Whether it has not ended: it goes on now, was cut short, or waits for a reboot."""
        return self.state in {"running", "needs-reboot"}

    def is_other_than(self, change: str) -> bool:
        """Whether it is open, and leads elsewhere than to a driver change."""
        return self.is_open and (self.verb or "swap", self.change) != ("swap", change)


class DriverState(Fact, frozen=True, kw_only=True):
    """The driver program's folder on the node; ``current`` is the change that the node runs.

    ``back`` is the version that the way back leads to, empty for no driver, None where there is no way back.
    ``managed``: a driver of grapnel's is there to be removed.
    """

    staged: Annotated[tuple[StagedChange, ...], Meta(max_length=64)] = ()
    current: grammar.Word | None = None
    run: DriverRun | None = None
    back: grammar.Word | None = None
    managed: bool = False

    @property
    def to_undo(self) -> str:
        """The change that a way back leads away from: one that was left half-way, else the current one."""
        run = self.run
        is_half_way = run is not None and (run.is_open or run.state == "quarantined")
        if run is not None and is_half_way and run.change and run.verb in {"swap", "back"}:
            return run.change
        return self.current or ""
