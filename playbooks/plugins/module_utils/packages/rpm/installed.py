"""Reads which packages RPM's database has, at which versions: before a transaction, after it, and without one."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.database import Rpm
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.holds import dnf_holds, zypper_holds
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import InstalledPackage, PackageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

QUERY_TIMEOUT_S = 60.0
IDENTITY = r"%{NAME}\t%{EPOCHNUM}\t%{VERSION}\t%{RELEASE}\t%{ARCH}\t%{SOURCERPM}"
FIELDS = 6  # of an identity
_INSTALLED = rf"{IDENTITY}\t%{{INSTALLTIME}}\t%{{DBINSTANCE}}\n"
_ERROR = re.compile(r"^error: (?!package )", re.MULTILINE)
# Several versions of these are installed beside each other, one for each kernel.
_MANY = re.compile(r"^(?:gpg-pubkey|kernel(?:-.*)?|kmod-.*-\d.*|.*-kmp-.*)$")


@dataclass(frozen=True)
class Instance:
    """A package in the database: the same name may be there twice after a transaction was ended."""

    rpm: Rpm
    installed_at: int
    number: int

    @property
    def exact(self) -> str:
        """What names this one and no other, on rpm's command line."""
        rpm = self.rpm
        return f"{rpm.name}-{rpm.epoch or 0}:{rpm.version}-{rpm.release}.{rpm.architecture}"


def read_installed(host: Host, names: Collection[str], is_held: Callable[[Rpm], bool]) -> dict[str, InstalledPackage]:
    """Return the packages that are installed, at the version that was installed last; raises `PackageError`."""
    found = defaultdict(list)
    for one in read_instances(host, sorted(names)):
        found[one.rpm.name].append(one)
    return {
        name: InstalledPackage(
            instances[-1].rpm.edition, is_held(instances[-1].rpm), len(instances) == 1 or may_be_many(name)
        )
        for name, instances in found.items()
    }


def read_by_dnf(host: Host, names: Collection[str]) -> dict[str, InstalledPackage]:
    """Return those of the packages that are installed, and whether dnf holds them; raises `PackageError`."""
    return read_installed(host, names, dnf_holds(host)) if names else {}


def read_by_zypper(host: Host, names: Collection[str]) -> dict[str, InstalledPackage]:
    """Return those of the packages that are installed, and whether zypper holds them; raises `PackageError`."""
    return read_installed(host, names, zypper_holds(host)) if names else {}


def may_be_many(name: str) -> bool:
    """Tell whether several versions are installed beside each other, one for each kernel."""
    return _MANY.match(name) is not None


def read_instances(host: Host, names: Sequence[str]) -> list[Instance]:
    """Return packages in the order in which they were installed; all of them without names."""
    done = host.run(["rpm", "--query", *(names or ["--all"]), "--queryformat", _INSTALLED], QUERY_TIMEOUT_S)
    if _ERROR.search(done.stderr):  # rpm then lists a part of the database, or nothing: as if it was not installed
        raise PackageError(
            f"rpm's database is damaged: {done.complaints}; `rpm --rebuilddb` repairs most damages, see that the disk "
            "is well first",
            is_unchanged=True,
        )
    found = [_parse(line.split("\t")) for line in done.stdout.splitlines() if line.count("\t") == FIELDS + 1]
    native = [one for one in found if one.rpm.is_native]
    return sorted(native, key=lambda one: (one.installed_at, one.number))


def _parse(fields: list[str]) -> Instance:
    times = [int(text) if text.isdecimal() else 0 for text in fields[FIELDS:]]
    return Instance(Rpm(*fields[:FIELDS]), *times)
