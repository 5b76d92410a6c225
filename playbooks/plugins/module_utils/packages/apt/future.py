"""Rehearses the way back with apt: on a copy of dpkg's database as a transaction would leave it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.control import read_control
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_STATUS = "/var/lib/dpkg/status"
_MAX_STATUS_BYTES = 64 * 1024 * 1024
_TIMEOUT_S = 120.0
_NAME = re.compile(r"^Package: (\S+)$", re.MULTILINE)
_ARCHITECTURE = re.compile(r"^Architecture: (\S+)$", re.MULTILINE)
_CHANGED = re.compile(r"^(?P<verb>Inst|Remv) (?P<name>\S+)", re.MULTILINE)
_INSTALLED = "Status: install ok installed"
_STANDS_ALONE = re.compile(r"^(?:Package|Status|Version|Architecture|Multi-Arch|Provides): .*$", re.MULTILINE)
# Nothing but the copy and the files counts: neither lists, nor what apt has made of them, nor pins.
ALONE = (
    "Dir::Etc::SourceList=/dev/null", "Dir::Etc::SourceParts=/dev/null", "Dir::Etc::Preferences=/dev/null",
    "Dir::Etc::PreferencesParts=/dev/null", "Dir::Cache::pkgcache=", "Dir::Cache::srcpkgcache=",
    "APT::Get::AutomaticRemove=false",
)  # fmt: skip


def write_future(host: Host, files: Mapping[str, str], gone: Collection[str], place: str) -> None:
    """Write dpkg's database as it is after installing package files (by package name) and removing packages."""
    text = host.read_text(_STATUS, _MAX_STATUS_BYTES)
    if text is None:
        raise PackageError(f"{_STATUS} cannot be read", is_unchanged=True)
    replaced, own = {*files, *gone}, ("all", *_architectures(host))
    kept = (block for block in text.split("\n\n") if block.strip() and not _is_one_of(block, replaced, own))
    new = (_control(host, file) for _, file in sorted(files.items()))
    host.path(place).write_text("\n\n".join([*(block.strip("\n") for block in kept), *new]) + "\n", encoding="utf-8")


def write_assumed(host: Host, offered: Collection[str], place: str) -> None:
    """Write a database of the installed packages that no source offers, each without what it needs."""
    text = host.read_text(_STATUS, _MAX_STATUS_BYTES)
    if text is None:
        raise PackageError(f"{_STATUS} cannot be read", is_unchanged=True)
    blocks = (block for block in text.split("\n\n") if f"{_INSTALLED}\n" in f"{block}\n")
    kept = (block for block in blocks if not _is_one_of(block, offered, ("all", *_architectures(host))))
    host.path(place).write_text(
        "\n\n".join("\n".join(_STANDS_ALONE.findall(block)) for block in kept) + "\n", encoding="utf-8"
    )


def _architectures(host: Host) -> list[str]:
    """Return the machine's own architecture."""
    return host.run(["dpkg", "--print-architecture"], _TIMEOUT_S).stdout.split()


def rehearse_future(host: Host, status: str, files: Sequence[str], remove: Sequence[str]) -> tuple[set[str], set[str]]:
    """Return the names that a transaction would install and remove, where that database is the machine's."""
    options = [word for option in (*ALONE, f"Dir::State::status={status}") for word in ("-o", option)]
    words = ["--allow-downgrades", "--allow-change-held-packages", "--no-install-recommends"]
    asked = ["apt-get", "-q", "-y", "--simulate", *options, *words, "install", *files, *(f"{one}-" for one in remove)]
    done = host.run(asked, _TIMEOUT_S)
    if done.return_code:
        raise PackageError(done.complaints, is_unchanged=True)
    changed = list(_CHANGED.finditer(done.stdout))
    return (
        {each["name"] for each in changed if each["verb"] == "Inst"},
        {each["name"] for each in changed if each["verb"] == "Remv"},
    )


def _is_one_of(block: str, names: Collection[str], architectures: Collection[str]) -> bool:
    """Tell whether a paragraph is of one of the packages, and not of its like for another architecture."""
    name, architecture = _NAME.search(block), _ARCHITECTURE.search(block)
    return name is not None and name[1] in names and (architecture is None or architecture[1] in architectures)


def _control(host: Host, file: str) -> str:
    done = read_control(host, file)
    if done.return_code:
        raise PackageError(f"{file} cannot be read: {done.complaint}", is_unchanged=True)
    head, _, rest = done.stdout.strip("\n").partition("\n")
    return f"{head}\n{_INSTALLED}\n{rest}"
