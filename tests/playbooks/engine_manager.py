"""A stand-in of a machine's package manager and its sources, for the packages of an engine that runs."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.engines import handed, packages, staged, staging
from ansible_collections.grapnel.node.plugins.module_utils.engines.staged import HOME
from ansible_collections.grapnel.node.plugins.module_utils.engines.trial import PLAIN
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import (
    InstalledPackage,
    PackageError,
    Rehearsal,
)
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import Download, Resolution, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import pytest
    from ansible_collections.grapnel.node.plugins.module_utils.engines.trial import Seen
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import Transaction
    from ansible_collections.grapnel.node.plugins.module_utils.packages.source import Offered, Request, Step


@dataclass
class Packages:
    """A machine's package manager and its source: every version there is, and what is installed.

    A package file says ``name version``.
    """

    there: dict[str, str] = field(default_factory=lambda: {"containerd": "1", "runc": "7"})
    held_ones: set[str] = field(default_factory=set)
    applied: list[list[str]] = field(default_factory=list)  # the files of each transaction
    done: list[dict[str, str]] = field(default_factory=list)  # and what they say
    asked: list[Request] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)  # versions that no source has any more
    unreachable: bool = False
    full: bool = False
    taken: tuple[str, ...] = ()  # off the machine, when it is rehearsed
    obsoleted: tuple[str, ...] = ()
    back: tuple[set[str], set[str]] = field(default_factory=lambda: ({"containerd", "runc"}, set()))
    name: str = "apt"

    def installed(self, _host: Host, names: Collection[str]) -> dict[str, InstalledPackage]:
        return {
            name: InstalledPackage(self.there[name], name in self.held_ones) for name in names if name in self.there
        }

    def held(self, _host: Host, names: Collection[str]) -> set[str]:
        return self.held_ones & {*names}

    def hold(self, _host: Host, names: Sequence[str]) -> None:
        self.held_ones.update(names)

    def unhold(self, _host: Host, names: Sequence[str]) -> None:
        self.held_ones.difference_update(names)

    def describe(self, host: Host, files: Sequence[str]) -> dict[str, tuple[str, str]]:
        said = {file: host.path(file).read_text().split() for file in files}
        if broken := [file for file, words in said.items() if len(words) != 2]:
            raise PackageError(f"{broken[0]} is not a package")
        return {file: (name, version) for file, (name, version) in said.items()}

    def rehearse(self, host: Host, transaction: Transaction) -> Rehearsal:
        found = dict(self.describe(host, transaction.files).values())
        changed = {name: version for name, version in found.items() if self.there.get(name) != version}
        return Rehearsal(changed, self.taken, self.obsoleted)

    def apply(self, host: Host, transaction: Transaction, _clock: Clock) -> None:
        assert all(host.path(file).is_file() for file in transaction.files)
        self.applied.append([file.removeprefix(f"{HOME}/") for file in transaction.files])
        self.done.append(dict(self.describe(host, transaction.files).values()))
        self.there |= self.done[-1]

    def resolve(self, _host: Host, request: Request) -> Resolution:
        self.asked.append(request)
        if self.unreachable:
            raise SourceError("source-unreachable", "no route to the mirror", "see that the node reaches its sources")
        if lost := self.gone.intersection(request.packages.values()):
            raise SourceError("package-not-found", f"no source has {', '.join(lost)}", "refresh the lists")
        files = {**request.packages, "runc": "7" if request.again else "8"}
        downloads = tuple(Download(f"{name}_{version}.deb", "", 1) for name, version in files.items())
        return Resolution(downloads, files, {name: self.there.get(name, "") for name in files})

    def choose(self, _host: Host, request: Request, files: Offered, _scratch: str) -> tuple[str, ...]:
        """Of files that are given, take those that the machine lacks or has in another version."""
        return tuple(
            file
            for file, (name, version) in files.described.items()
            if name in request.packages or files.installed.get(name) != version
        )

    def fetch(self, host: Host, _request: Request, downloads: Sequence[Download], folder: str, _timeout: float) -> None:
        for one in downloads:
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device", f"{folder}/{one.name}")
            host.path(f"{folder}/{one.name}").write_text(one.name.removesuffix(".deb").replace("_", " "))

    def rehearse_return(self, _host: Host, _there: Step, _back: Step, _scratch: str) -> tuple[set[str], set[str]]:
        return self.back


def use(
    monkeypatch: pytest.MonkeyPatch,
    manager: Packages,
    look: Callable[[], Seen] = lambda: {PLAIN: frozenset()},
    engine: str = "containerd",
) -> None:
    """Have an engine's packages managed by the stand-in; `look` is what its containers have at each look at them."""
    for each in (packages, staging):
        monkeypatch.setattr(each, "find_manager", lambda _host: manager)
    for each in (staging, handed):
        monkeypatch.setattr(each, "find_source", lambda _name: manager)
    monkeypatch.setattr(staged, "find_reader", lambda _host: manager.installed)
    monkeypatch.setattr(packages, "unit_state", lambda *_: SimpleNamespace(is_active=engine in manager.there))
    monkeypatch.setattr(packages, "apply_changes", lambda *_, **__: None)
    monkeypatch.setattr(packages, "try_containers", lambda *_: look())
