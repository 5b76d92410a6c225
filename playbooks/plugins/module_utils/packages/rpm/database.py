"""Reads RPM's database: installed packages, what an interrupted transaction left, who holds the lock."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.machine.host import HostError
from ansible_collections.grapnel.node.plugins.module_utils.packages import interest, locks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_TIMEOUT_S = 60.0
_FORMAT = r"%{NAME}\t%{EPOCHNUM}\t%{VERSION}\t%{RELEASE}\t%{ARCH}\t%{SOURCERPM}\n"
_QUERY = ["rpm", "-qa", "--qf", _FORMAT]
_LOCKS = ("/usr/lib/sysimage/rpm/.rpm.lock", "/var/lib/rpm/.rpm.lock")
_ERROR = re.compile(r"^error: ", re.MULTILINE)
_COMPATIBILITY = frozenset({"i386", "i486", "i586", "i686"})  # 32-bit libraries beside those of the machine


@dataclass(frozen=True)
class Rpm:
    """One package: an installed one, or one of a repository."""

    name: str
    epoch: str
    version: str
    release: str
    architecture: str
    source_file: str

    @property
    def edition(self) -> str:
        """``epoch:version-release``, without an epoch of 0."""
        plain = f"{self.version}-{self.release}"
        return plain if self.epoch in ("", "0", "(none)") else f"{self.epoch}:{plain}"

    @property
    def source(self) -> str:
        """Name of the source package; a file name ends in ``-version-release.src.rpm``."""
        parts = self.source_file.rsplit("-", 2)
        return parts[0] if len(parts) == 3 and parts[0] else self.name  # noqa: PLR2004 - name, version, release

    @property
    def is_native(self) -> bool:
        """Whether it is for the machine's own architecture, or for any."""
        return not is_compatibility(self.architecture)

    @property
    def is_of_interest(self) -> bool:
        """Whether the planner decides about it."""
        return self.is_native and interest.is_of_interest(self.name, self.source)

    @property
    def spellings(self) -> tuple[str, ...]:
        """Ways in which a lock or an exclusion may name it (dnf, "Specifying Packages")."""
        plain = f"{self.version}-{self.release}"
        full = f"{self.epoch or 0}:{plain}"
        return (
            self.name,
            f"{self.name}.{self.architecture}",
            f"{self.name}-{self.version}",
            f"{self.name}-{plain}",
            f"{self.name}-{plain}.{self.architecture}",
            f"{self.name}-{full}",
            f"{self.name}-{full}.{self.architecture}",
        )


def is_compatibility(architecture: str) -> bool:
    """Tell whether packages of an architecture are those of 32-bit programs on a 64-bit machine."""
    return architecture in _COMPATIBILITY


def read_database(host: Host, is_held: Callable[[Rpm], bool]) -> tuple[dict[str, Any], bool]:
    """Return the facts ``packages``, and whether a transaction was interrupted.

    RPM installs the new version and then erases the old one: a run that was ended in between leaves both.
    Raises HostError where the database cannot be read: it would look as if nothing was installed.
    """
    done = host.run(_QUERY, _TIMEOUT_S)
    if done.return_code != 0 or _ERROR.search(done.stderr):  # of a damaged one rpm lists a part, and ends with 0
        raise HostError(f"rpm cannot read its database, try `rpm --rebuilddb`: {done.complaints}")
    found: dict[str, list[Rpm]] = defaultdict(list)
    for rpm in parse_query(done.stdout):
        if rpm.is_of_interest:
            found[rpm.name].append(rpm)
    packages = {name: _describe(rpms[-1], is_held) for name, rpms in sorted(found.items())}
    return packages, any(len(rpms) > 1 and not _may_be_twice(name) for name, rpms in found.items())


def parse_query(text: str) -> Iterator[Rpm]:
    """Split what rpm printed."""
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) == 6:  # noqa: PLR2004 - the fields of _FORMAT
            yield Rpm(*fields)


def _may_be_twice(name: str) -> bool:
    """Tell whether several versions may be installed beside each other, as kernels and their modules are."""
    return name.startswith("kmod-") or "-kmp-" in name


def _describe(rpm: Rpm, is_held: Callable[[Rpm], bool]) -> dict[str, Any]:
    return {"version": rpm.edition, "source": rpm.source, "hold": is_held(rpm), "status": "installed"}


def is_owned(host: Host, path: str) -> bool:
    """Tell whether a package has a file."""
    return host.run(["rpm", "-qf", path], _TIMEOUT_S).return_code == 0


def read_lock_holder(host: Host, pid_files: Iterable[str]) -> dict[str, Any] | None:
    """Return the facts ``locked_by``: the process that has RPM's database, or the manager above it, for itself now."""
    pids = [*(locks.locking_pid(host, path) for path in _LOCKS), *(locks.pid_in(host, path) for path in pid_files)]
    return next((locks.describe(host, pid) for pid in pids if pid is not None), None)
