"""What transactions of dnf and zypper have in common: RPM's database before, after, and left by one that was ended."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.database import Rpm
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.installed import (
    FIELDS,
    IDENTITY,
    QUERY_TIMEOUT_S,
    Instance,
    may_be_many,
    read_installed,
    read_instances,
)
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import (
    InstalledPackage,
    PackageError,
    Rehearsal,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished, Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import Transaction

LOCK_WAIT_S = 120.0
TRANSACTION_TIMEOUT_S = 3600.0
_REPAIR_TIMEOUT_S = 600.0
_MAX_WORDS = 1500  # characters of an error
_SAVED = ".rpmsave"
_NO_SPACE = re.compile(
    r"No space left on device|(?:need|needs|requires) .*(?:more space|MB|MiB|inodes)|installing package"
)


def surplus(host: Host) -> list[Instance]:
    """Return what an interrupted transaction has replaced and not yet erased; raises `PackageError`."""
    found = defaultdict(list)
    for one in read_instances(host, ()):
        if not may_be_many(one.rpm.name):
            found[one.rpm.name, one.rpm.architecture].append(one)
    return [one for instances in found.values() for one in instances[:-1]]


def erase_surplus(host: Host) -> None:
    """Erase them, as the transaction would have; what the successor has too stays. Raises `PackageError`."""
    left = surplus(host)
    if left:
        done = host.run(["rpm", "--erase", "--nodeps", *(one.exact for one in left)], _REPAIR_TIMEOUT_S)
        if done.return_code:
            raise PackageError(f"rpm cannot erase what an interrupted transaction left: {done.complaints}")
    host.run(["ldconfig"], QUERY_TIMEOUT_S)  # scripts that the transaction did not come to


def describe(host: Host, file: str) -> tuple[str, str]:
    """Return name and version in a package file; raises `PackageError`."""
    asked = ["rpm", "--query", "--package", "--nosignature", "--queryformat", f"{IDENTITY}\n", file]
    done = host.run(asked, QUERY_TIMEOUT_S)
    fields = done.stdout.rstrip("\n").split("\t")
    if done.return_code or len(fields) != FIELDS:
        raise PackageError(f"{printable(file)} is not an RPM package: {done.complaint}", is_unchanged=True)
    rpm = Rpm(*fields)
    return rpm.name, rpm.edition


def left_to_do(host: Host, transaction: Transaction) -> Rehearsal:
    """Return what of a transaction is not as it should be yet; raises `PackageError`."""
    described = dict(describe(host, file) for file in transaction.files)
    names = {*described, *transaction.remove}
    installed = read_installed(host, names, lambda _: False) if names else {}
    install = {
        name: version
        for name, version in described.items()
        if name not in installed or installed[name].version != version
    }
    return Rehearsal(install, tuple(name for name in transaction.remove if name in installed))


def require_as_asked(asked: Rehearsal, found: Rehearsal) -> None:
    """Raise `PackageError` if a transaction would do anything else than what was asked of it."""
    other = [name for name, version in found.install.items() if asked.install.get(name) != version]
    left_out = [name for name in asked.install if name not in found.install]
    gone = [name for name in found.remove if name not in asked.remove]
    kept = [name for name in asked.remove if name not in found.remove]
    parts = {"would also install": other, "would not install": left_out, "would also remove": gone, "would keep": kept}
    said = "; ".join(f"{text} {', '.join(sorted(names))}" for text, names in parts.items() if names)
    if said:
        raise PackageError(f"the staged packages do not fit the installed ones: {said}", is_unchanged=True)


def require_done(wanted: Rehearsal, installed: dict[str, InstalledPackage], done: Finished) -> None:
    """Raise `PackageError` unless everything has come out as it should: the exit status does not tell of scripts."""
    missing = [
        name
        for name, version in wanted.install.items()
        if name not in installed or installed[name].version != version or not installed[name].is_whole
    ]
    left = [name for name in wanted.remove if name in installed]
    if missing or left:
        names = ", ".join([*missing, *(f"{name} (to be removed)" for name in left)])
        raise PackageError(f"not everything was changed: {names}: {reason(done)}")


def reason(done: Finished) -> str:
    """Return the package manager's own words, and what helps where that is known."""
    lines = [line.strip() for line in (*done.stdout.splitlines(), *done.stderr.splitlines())]
    chosen = [line for line in lines if line.lower().startswith(("error", "problem", "- ", "failed", "warning: %"))]
    said = printable("; ".join(dict.fromkeys(chosen)) or done.complaint, _MAX_WORDS)
    if _NO_SPACE.search(said):
        return f"the disk is full: {said}; make room, the files are staged already"
    return said


def saved_files(host: Host, transaction: Transaction) -> list[str]:
    """Return where changed configuration of the packages that go would be kept, as far as nothing is there yet."""
    if not (transaction.purge and transaction.remove):
        return []
    listed = host.run(["rpm", "--query", "--configfiles", *transaction.remove], QUERY_TIMEOUT_S).stdout.splitlines()
    paths = [f"{line}{_SAVED}" for line in listed if line.startswith("/")]
    return [path for path in paths if not host.path(path).exists()]


def remove_saved(host: Host, paths: Iterable[str]) -> None:
    """Remove what was kept of them."""
    for path in paths:
        host.path(path).unlink(missing_ok=True)


def require_unlocked(holder: dict[str, Any] | None) -> None:
    """Raise `PackageError` that names who changes packages."""
    if holder is not None:
        who = f"{holder['command'] or 'a process'} (pid {holder['pid']})"
        raise PackageError(
            f"rpm's database is locked by {who}, and still is after {LOCK_WAIT_S:g} s: wait for it to end, or stop it",
            is_unchanged=True,
        )
