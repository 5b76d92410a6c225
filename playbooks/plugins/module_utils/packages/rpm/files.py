"""Looks into package files with rpm, and rehearses on a copy of its database; shared by dnf and zypper."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm import capabilities
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.database import Rpm
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import Header, SourceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished, Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.source import Step

_TIMEOUT_S = 300.0
_NAME = "%{NAME}\n"
_PACKAGE, _PROVIDES = "grapnel-package:", "grapnel-provides:"  # no capability begins like that
_HEADER = (
    rf"{_PACKAGE}\t%{{NAME}}\t%{{EPOCHNUM}}\t%{{VERSION}}\t%{{RELEASE}}\t%{{ARCH}}\t%{{SOURCERPM}}\n[%{{REQUIRENAME}}\n]"
    rf"{_PROVIDES}\n[%{{PROVIDENAME}}\n]"
)
_FIELDS = 6  # of a package
# The script is constant; file and folder are its arguments and never parsed by the shell.
_UNPACK = (
    'set -e; rpm2cpio "$1" > "$3"; cpio --extract --make-directories --quiet --no-absolute-filenames -D "$2" < "$3"'
)


def require_signed(host: Host, files: Sequence[str]) -> None:
    """Raise `SourceError` for a file without a good signature of a key that the node trusts."""
    for file in files:
        done = host.run(["rpmkeys", "--checksig", file], _TIMEOUT_S)
        said = done.stdout.strip().rpartition(": ")[2]
        if done.return_code or said != "digests signatures OK":
            raise SourceError(
                "not-authenticated",
                f"{file.rpartition('/')[2]} has no signature that this node trusts: {said or done.complaint}",
                "import the repository's signing key (rpm --import), then stage again",
            )


def read_headers(host: Host, files: Sequence[str]) -> tuple[Header, ...]:
    """Return what package files say of themselves, what they need as far as it is among them; raises `SourceError`."""
    found = [_read_header(host, file) for file in files]
    of = capabilities.providers((rpm.name, provided) for rpm, _, provided in found)
    return tuple(
        Header(file, rpm.name, rpm.edition, rpm.source, tuple(capabilities.resolve(rpm.name, required, of)))
        for file, (rpm, required, _) in zip(files, found)
    )


def _read_header(host: Host, file: str) -> tuple[Rpm, list[str], list[str]]:
    done = host.run(["rpm", "--query", "--package", "--nosignature", "--queryformat", _HEADER, file], _TIMEOUT_S)
    head, _, rest = done.stdout.partition("\n")
    fields = head.split("\t")[1:]
    if done.return_code or len(fields) != _FIELDS:
        raise _damaged(file, done)
    required, _, provided = rest.partition(f"{_PROVIDES}\n")
    return Rpm(*fields), required.splitlines(), provided.splitlines()


def list_files(host: Host, file: str) -> tuple[str, ...]:
    """Return the paths in a package file; raises `SourceError`."""
    done = host.run(["rpm", "--query", "--package", "--list", "--nosignature", file], _TIMEOUT_S)
    if done.return_code:
        raise _damaged(file, done)
    return tuple(line for line in done.stdout.splitlines() if line.startswith("/"))


def unpack(host: Host, file: str, folder: str) -> None:
    """Unpack below a folder; raises `SourceError`."""
    lacking = [name for name in ("rpm2cpio", "cpio") if host.find_command(name) is None]
    if lacking:
        raise SourceError(
            "build-tools-missing",
            f"{file.rpartition('/')[2]} cannot be unpacked without {' and '.join(lacking)}",
            f"install {' '.join(lacking)} on the node, or hand over a module that was built elsewhere",
        )
    archive = f"{folder}.cpio"
    done = host.run(["sh", "-c", _UNPACK, "sh", file, folder, archive], _TIMEOUT_S)
    host.path(archive).unlink(missing_ok=True)
    if done.return_code:
        raise _damaged(file, done)


def rehearse_return(host: Host, there: Step, back: Step, scratch: str) -> tuple[set[str], set[str]]:
    """Take a copy of rpm's database there and test the way back on it; raises `PackageError`."""
    database = _copy_database(host, scratch)
    rpm = ["rpm", "--dbpath", database, "--nosignature"]
    files = tuple(there.files.values())
    if files:
        _require(
            host.run([*rpm, "--upgrade", "--oldpackage", "--replacepkgs", "--justdb", *_QUIET, *files], _TIMEOUT_S)
        )
    _erase(host, rpm, there.remove, [])
    _erase(host, rpm, back.remove, ["--test"])
    returned = tuple(back.files.values())
    if returned:
        _require(host.run([*rpm, "--upgrade", "--oldpackage", "--test", *returned], _TIMEOUT_S))
    return set(back.files), set(back.remove)


_QUIET = ("--noscripts", "--notriggers", "--nodeps")


def _erase(host: Host, rpm: Sequence[str], names: Sequence[str], options: Sequence[str]) -> None:
    asked = host.run([*rpm, "--query", "--queryformat", _NAME, *names], _TIMEOUT_S).stdout.split() if names else []
    present = sorted(set(names) & set(asked))
    if present:
        how = options or ["--justdb", *_QUIET]
        _require(host.run([*rpm, "--erase", *how, *present], _TIMEOUT_S))


def _copy_database(host: Host, scratch: str) -> str:
    place = host.run(["rpm", "--eval", "%{_dbpath}"], _TIMEOUT_S).stdout.strip()
    if not place.startswith("/") or not host.path(place).is_dir():
        raise PackageError(f"rpm's database is not at {place or 'any place that rpm names'}", is_unchanged=True)
    copy = f"{scratch}/rpmdb"
    shutil.rmtree(host.path(copy), ignore_errors=True)
    shutil.copytree(host.path(place), host.path(copy), ignore=shutil.ignore_patterns(".*lock", "__db*"))
    return copy


def _require(done: Finished) -> None:
    if done.return_code:
        raise PackageError(done.complaints, is_unchanged=True)


def _damaged(file: str, done: Finished) -> SourceError:
    return SourceError("damaged-package", f"{file} cannot be read: {done.complaint}", "remove the file and stage again")
