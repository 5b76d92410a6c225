"""Finds and downloads RPM packages with dnf, and checks their signatures before they are believed.

dnf fetches what a transaction lacks into a folder and stops. What is installed at the wanted version already is not
fetched: the transaction does not need it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable
from ansible_collections.grapnel.node.plugins.module_utils.packages.reach import (
    NO_SPACE_REMEDY,
    is_out_of_space,
    without_passwords,
)
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.files import (
    require_signed,
)
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.find import find_package
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.holds import dnf_holds
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.source import RpmFiles, require_unlocked
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import (
    Download,
    Request,
    Resolution,
    SourceError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished, Host

_CACHE = "/var/cache/dnf"
_TIMEOUT_S = 300.0
_MAX_WORDS = 1500  # characters of an error
_DECLINED = 1  # --assumeno ends with this when there was something to decline
# Locks and exclusions keep the driver as it is, and a driver change is about just that; see `require_unlocked`. Not
# quiet: what became of each mirror is said nowhere else. One that sends less than minrate for timeout is given up.
_DNF = (
    "dnf", "--disableplugin=versionlock", "--disableexcludes=all", "--setopt=install_weak_deps=False",
    "--setopt=timeout=30", "--setopt=retries=2", "--setopt=minrate=1000",
    # The stream of the driver's module is enabled with the driver and not before: names are exact without it.
    "--setopt=grapnel-nvidia.module_hotfixes=1",
)  # fmt: skip
# Name, architecture, version with its epoch, repository, size and its unit.
_ROW = re.compile(
    r"^ (?P<name>\S+) +(?P<arch>\S+) +(?P<version>\S+) +(?P<repository>\S+) +(?P<size>[\d.]+) (?P<unit>[kMG]?)B?$",
    re.MULTILINE,
)
_OBSOLETED = re.compile(r"^ +replacing +(?P<name>\S+)\.[^.\s]+ (?P<version>\S+)$", re.MULTILINE)
_BROKEN_ROW = re.compile(r"^( \S+)\n +", re.MULTILINE)
_UNIT_LEFT_OUT = re.compile(r"(?<=\d) +$", re.MULTILINE)
_SECTION = re.compile(r"^(?P<title>[A-Z][A-Za-z ]+):$", re.MULTILINE)
_UNITS = {"": 1, "k": 1024, "M": 1024**2, "G": 1024**3}
_GONE = re.compile(r"(?:No match for argument: (\S+)|Unable to find a match: (.+))")
_LOST = re.compile(
    r"Status code: (?:404|410) for (?P<uri>\S+\.rpm)|Error opening (?P<file>\S+\.rpm): No such file or directory"
)
_UNREACHED = re.compile(r"(?:Status code: \d+|Curl error \(\d+\): .*?) for \S+(?: \[[^\]]*\])?")
_REFRESH = (
    "refresh dnf's metadata (dnf makecache) and run `grapnel plan` again; a version that the repositories no longer "
    "have comes in a bundle"
)
_REACH = "see that the node reaches its repositories (dnf config, proxy), or use a bundle"


class DnfSource(RpmFiles):
    """dnf as the source of package files."""

    def resolve(self, host: Host, request: Request) -> Resolution:
        """Return what a request comes to; raises `SourceError`."""
        done = host.run([*_DNF, "--assumeno", *_words(request)], _TIMEOUT_S)
        table = join_rows(done.stdout)
        if done.return_code not in (0, _DECLINED) or (done.return_code and not _ROW.search(table)):
            raise _failure(done, _TIMEOUT_S)
        installed = installed_versions(host, [each["name"] for each in _ROW.finditer(table)])
        resolution = parse_table(table, installed)
        require_unlocked(host, request, resolution, dnf_holds(host))
        return resolution

    def fetch(self, host: Host, request: Request, downloads: Sequence[Download], folder: str, timeout_s: float) -> None:
        """Download and check signatures; raises `SourceError`."""
        done = host.run([*_DNF, "--assumeyes", "--downloadonly", f"--destdir={folder}", *_words(request)], timeout_s)
        if done.return_code:
            raise _failure(done, timeout_s)
        missing = [one.name for one in downloads if not host.path(f"{folder}/{one.name}").is_file()]
        if missing:
            raise SourceError("package-gone", f"{', '.join(missing)} did not arrive", _REFRESH)
        require_signed(host, [f"{folder}/{one.name}" for one in downloads])

    def find_cached(self, host: Host, name: str, version: str) -> str | None:
        """Return the file in dnf's cache, which keeps packages only with ``keepcache``."""
        return find_package(host, _CACHE, name, version)


def join_rows(text: str) -> str:
    """Return dnf's table with a row on each line: a long name stands on a line of its own, a small size has no unit."""
    return _UNIT_LEFT_OUT.sub(" ", _BROKEN_ROW.sub(r"\1 ", text))


def parse_table(text: str, installed: dict[str, str]) -> Resolution:
    """Return what dnf's table of a transaction says: titles of its sections tell what happens to the rows below."""
    downloads, install, replaced, remove = [], {}, {}, {}
    titles = [(match.start(), match["title"]) for match in _SECTION.finditer(text)]
    for row in _ROW.finditer(text):
        title = next((title for start, title in reversed(titles) if start < row.start()), "")
        name, version = row["name"], row["version"]
        if title.startswith("Remov"):
            remove[name] = version
            continue
        release = version.partition(":")[2] or version
        size = int(float(row["size"]) * _UNITS[row["unit"]])
        downloads.append(Download(f"{name}-{release}.{row['arch']}.rpm", row["repository"], size))
        install[name], replaced[name] = version, installed.get(name, "")
    obsoleted = {row["name"]: row["version"] for row in _OBSOLETED.finditer(text)}
    return Resolution(tuple(downloads), install, replaced, remove, obsoleted)


def installed_versions(host: Host, names: Sequence[str]) -> dict[str, str]:
    """Return the versions of those that are installed."""
    form = "%{NAME} %|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\n"
    done = host.run(["rpm", "--query", "--queryformat", form, *names], _TIMEOUT_S) if names else None
    pairs = (line.partition(" ") for line in (done.stdout if done else "").splitlines())
    return {name: version.removeprefix("0:") for name, space, version in pairs if name in names}


def _words(request: Request) -> list[str]:
    """Return what dnf is told to do: an exact version is part of its name of a package."""
    wanted = [f"{name}-{version}" if version else name for name, version in request.packages.items()]
    if request.again:
        return ["reinstall", *wanted]
    return ["install", "--allowerasing", *wanted] if request.remove else ["install", *wanted]


def _failure(done: Finished, timeout_s: float) -> SourceError:
    said = without_passwords(f"{done.stdout}\n{done.stderr}")
    unreached = printable("; ".join(dict.fromkeys(_UNREACHED.findall(said))), _MAX_WORDS)
    if done.is_timed_out:
        return SourceError("download-timeout", f"dnf did not finish within {timeout_s:g} s: {unreached}", _REACH)
    if is_out_of_space(said):
        return SourceError("no-space", f"the disk is full: {without_passwords(done.complaints)}", NO_SPACE_REMEDY)
    lost = _LOST.search(said)
    if lost:
        return SourceError(
            "package-gone", f"the repository no longer has {printable(lost['uri'] or lost['file'])}", _REFRESH
        )
    if unreached:
        return SourceError("source-unreachable", f"dnf cannot get the packages: {unreached}", _REACH)
    gone = _GONE.search(done.stderr)
    if gone:
        return SourceError("package-not-found", f"no repository has {printable(gone[1] or gone[2])}", _REFRESH)
    if "GPG check FAILED" in done.stderr or "is not signed" in done.stderr:
        return SourceError("not-authenticated", done.complaints, "import the repository's signing key")
    if "Problem" in done.stderr or "conflict" in done.stderr:
        return SourceError("unresolvable", f"the packages do not go together: {done.complaints}", _REFRESH)
    said = f"dnf cannot get the packages: {without_passwords(done.complaints)}"
    return SourceError("source-unreachable", said, _REACH)
