"""Defines what the driver's program needs of a package manager; one folder beside this file for each manager.

A transaction is carried out from package files that are on the machine already: it needs no network, and it does not
depend on the lists that the machine has fetched. Finding and downloading those files is no part of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host


class PackageError(Exception):
    """The package manager cannot do what it was asked to; the message says why and what helps.

    ``is_unchanged``: it has not begun, every package is as it was.
    """

    def __init__(self, message: str, *, is_unchanged: bool = False) -> None:
        super().__init__(message)
        self.is_unchanged = is_unchanged


@dataclass(frozen=True)
class Transaction:
    """What is installed from which files, and what is removed, in one go.

    ``scratch`` is a folder for the package manager's own notes on it. With ``purge`` what is removed leaves no
    configuration behind.
    """

    files: tuple[str, ...]
    remove: tuple[str, ...]
    scratch: str
    purge: bool = False


@dataclass(frozen=True)
class Rehearsal:
    """What a transaction would do: versions by name, and names that would go, of which new ones take the place."""

    install: Mapping[str, str] = field(default_factory=dict)
    remove: tuple[str, ...] = ()
    obsoleted: tuple[str, ...] = ()


@dataclass(frozen=True)
class InstalledPackage:
    """A package in the machine's database; ``is_whole`` unless it was left unpacked or half configured."""

    version: str
    is_held: bool
    is_whole: bool = True


class ReadInstalled(Protocol):
    """Reads the machine's database of packages."""

    def __call__(self, host: Host, names: Collection[str], /) -> Mapping[str, InstalledPackage]:
        """Return those of the packages that are installed; raises `PackageError`."""


class PackageManager(Protocol):
    """One package manager of one machine."""

    @property
    def name(self) -> str:
        """As a driver change names it."""

    @property
    def suffix(self) -> str:
        """Of its package files."""

    def installed(self, host: Host, names: Collection[str]) -> dict[str, InstalledPackage]:
        """Return those of the packages that are installed; raises `PackageError`."""

    def require_readable(self, host: Host) -> None:
        """Raise `PackageError` where the database is damaged, also where `installed` would not notice."""

    def describe(self, host: Host, files: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Return name and version in each package file; raises `PackageError` for one that is none."""

    def is_interrupted(self, host: Host) -> bool:
        """Tell whether an earlier transaction, of whatever packages, was left unfinished."""

    def wait(self, host: Host, clock: Clock) -> None:
        """Wait a while until nobody else changes packages; raises `PackageError` that names who still does."""

    def repair(self, host: Host, clock: Clock) -> None:
        """Finish what an interrupted transaction left; what it cannot, the next transaction may."""

    def rehearse(self, host: Host, transaction: Transaction) -> Rehearsal:
        """Return what a transaction would do, without doing it; raises `PackageError`."""

    def apply(self, host: Host, transaction: Transaction, clock: Clock) -> None:
        """Carry a transaction out; raises `PackageError`."""

    def held(self, host: Host, names: Collection[str]) -> set[str]:
        """Return those of the packages that are kept as they are, installed or not; raises `PackageError`."""

    def hold(self, host: Host, names: Sequence[str]) -> None:
        """Keep packages at their versions; raises `PackageError`."""

    def unhold(self, host: Host, names: Sequence[str]) -> None:
        """Let packages change again; raises `PackageError`."""
