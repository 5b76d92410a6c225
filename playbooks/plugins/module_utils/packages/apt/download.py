"""Finds and downloads Debian packages with apt, into a folder of its own; apt verifies what it fetches by its keys.

Nothing of apt's or dpkg's state is locked or written, so this runs beside an unattended upgrade. Packages of a source
on this machine's own disk (``file:``) are copied, which apt itself does not do.
"""

from __future__ import annotations

import errno
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable
from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.control import read_control
from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.dpkg import parse_paragraphs, source_of
from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.future import (
    ALONE,
    rehearse_future,
    write_assumed,
    write_future,
)
from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.lists import names_in
from ansible_collections.grapnel.node.plugins.module_utils.packages.reach import (
    NO_SPACE_REMEDY,
    is_out_of_space,
    sites_of,
    without_passwords,
)
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import (
    Download,
    Header,
    Request,
    Resolution,
    SourceError,
    file_digest,
    has_digest,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished, Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.source import Offered, Step

CACHE = "/var/cache/apt/archives"
_RESOLVE_TIMEOUT_S = 120.0
_UNPACK_TIMEOUT_S = 300.0
_NOWHERE = "/nonexistent/"  # as a cache of archives: apt then counts none as there
_APT = (
    "apt-get", "-q", "-y", "--allow-downgrades", "--allow-change-held-packages", "--no-install-recommends",
    "-o", "Debug::NoLocking=1", "-o", "APT::Get::AutomaticRemove=false",
)  # fmt: skip
# A source that does not answer is given up, and so is one that stops in the middle; the folder is root's alone.
_FETCH = (
    "-o", "Acquire::ForceHash=SHA256", "-o", "Acquire::http::Timeout=30", "-o", "Acquire::https::Timeout=30",
    "-o", "Acquire::Retries=2", "-o", "APT::Sandbox::User=root",
)  # fmt: skip
# What apt has made of its lists includes the machine's own packages.
_UNCACHED = ("-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=")
_INSTALLED = re.compile(r"^Inst (?P<name>\S+)(?: \[(?P<old>[^\]]*)\])? \((?P<new>\S+)", re.MULTILINE)
_REMOVED = re.compile(r"^Remv (?P<name>\S+)(?: \[(?P<old>[^\]]*)\])?", re.MULTILINE)
_URI = re.compile(r"^'(?P<uri>[^']+)' (?P<name>[^/\s]+\.deb) (?P<size>\d+) ?(?P<digest>\S*)$", re.MULTILINE)
_NOT_FOUND = re.compile(
    r"^E: (?:Unable to locate package (\S+)|Version .(\S+). for .(\S+). was not found)", re.MULTILINE
)
_FETCH_FAILED = re.compile(r"^E: Failed to fetch (?P<uri>\S+)\s+(?P<why>.*)$", re.MULTILINE)
_UNMET = re.compile(r"^ (\S+ : \S.*)$", re.MULTILINE)
_PROXY = re.compile(r'^Acquire::(?:http|https)::Proxy(?:::[^ ]+)? "(?P<proxy>[a-z0-9]+://[^"]+)";$', re.MULTILINE)
_REFRESH = (
    "refresh the package lists (apt-get update) and run `grapnel plan` again; a version that the sources no longer "
    "have comes in a bundle"
)
_UNREADABLE = "status file could not be parsed"
_RESTORE = (
    "restore /var/lib/dpkg/status from /var/backups where that is the file that is named; a list of packages is "
    "removed, and fetched again by apt-get update"
)
_REACH = "see that the node reaches its package sources (apt-config dump Acquire shows the proxy), or use a bundle"


@dataclass(frozen=True)
class AptSource:
    """apt as the source of package files; ``options`` go before everything that apt is told.

    ``given`` are package files that the machine has besides those of its sources.
    """

    options: tuple[str, ...] = ()
    given: tuple[str, ...] = ()

    def resolve(self, host: Host, request: Request) -> Resolution:
        """Return what a request comes to; raises `SourceError`."""
        simulated = _ask(host, [*_APT, *self.options, "--simulate", "install", *_words(request)])
        printed = _ask(
            host, [*_APT, *self.options, *_FETCH, *_into(_NOWHERE), "-qq", "--print-uris", *_reinstall(request)]
        )
        found = list(_INSTALLED.finditer(simulated))
        return Resolution(
            downloads=tuple(
                Download(
                    each["name"], each["uri"], int(each["size"]), each["digest"] or self._digest_of(host, each["uri"])
                )
                for each in _URI.finditer(printed)
            ),
            install={each["name"]: each["new"] for each in found},
            replaced={each["name"]: each["old"] or "" for each in found},
            remove={each["name"]: each["old"] or "" for each in _REMOVED.finditer(simulated)},
        )

    def _digest_of(self, host: Host, uri: str) -> str:
        """Return the digest of a given file, for which apt has none; "" for any other."""
        path = unquote(urlsplit(uri).path)
        return f"sha256:{file_digest(host.path(path))}" if path in self.given else ""

    def fetch(self, host: Host, request: Request, downloads: Sequence[Download], folder: str, timeout_s: float) -> None:
        """Download and verify; files that are there already and right are kept; raises `SourceError`."""
        place = host.path(folder)
        _remove_wrong(place, downloads)
        (place / "partial").mkdir(exist_ok=True, mode=0o700)
        command = [*_APT, *self.options, *_FETCH, *_into(f"{folder}/"), "--download-only", *_reinstall(request)]
        done = host.run(command, timeout_s)
        if done.return_code:
            raise _failure(host, done, timeout_s, [one.uri for one in downloads])
        for one in downloads:
            _copy_local(host, one, place)
            if not has_digest(place / one.name, one.digest):
                raise SourceError(
                    "damaged-download",
                    f"{one.name} is missing or does not have the digest that its source's list gives",
                    "a proxy or a mirror that is not in step does this: refresh the lists and stage again",
                )
        shutil.rmtree(place / "partial")
        (place / "lock").unlink(missing_ok=True)

    def find_cached(self, host: Host, name: str, version: str) -> str | None:
        """Return the file in apt's cache; an epoch's colon is written as %3a there."""
        beginning = f"{name}_{version.replace(':', '%3a')}_"
        found = [each for each in host.names(CACHE) if each.startswith(beginning) and each.endswith(".deb")]
        return f"{CACHE}/{found[0]}" if found else None

    def is_newer(self, host: Host, version: str, than: str) -> bool:
        """Compare as dpkg does."""
        return host.run(["dpkg", "--compare-versions", version, "gt", than], _UNPACK_TIMEOUT_S).return_code == 0

    def choose(self, host: Host, request: Request, files: Offered, scratch: str) -> tuple[str, ...]:
        """Have apt choose, which knows the versions that packages need of one another: nothing else is upgraded."""
        lists = f"{scratch}/lists"
        host.path(f"{lists}/partial").mkdir(parents=True, exist_ok=True, mode=0o700)
        options = [*(word for option in ALONE for word in ("-o", option)), "-o", f"Dir::State::lists={lists}"]
        given = [word for file in files.described for word in ("--with-source", file)]
        simulated = _ask(host, [*_APT, *options, "--simulate", *given, "install", *_words(request)])
        wanted = {(each["name"], each["new"]) for each in _INSTALLED.finditer(simulated)} | set(
            request.packages.items()
        )
        return tuple(file for file, described in files.described.items() if described in wanted)

    def read_headers(self, host: Host, files: Sequence[str]) -> tuple[Header, ...]:
        """Return the control fields of package files; raises `SourceError`."""
        return tuple(_read_header(host, file) for file in files)

    def with_files(self, files: Sequence[str]) -> AptSource:
        """Return apt with package files as one more source."""
        given = tuple(word for file in files for word in ("--with-source", file))
        return AptSource((*self.options, *given), (*self.given, *files))

    def for_any_machine(self, host: Host, scratch: str) -> AptSource:
        """Return apt as it is on a machine that has nothing but what no source offers, such as a local package."""
        status = f"{scratch}/assumed"
        listed = _ask(host, ["apt-cache", *self.options, "-o", "Dir::State::status=/dev/null", *_UNCACHED, "pkgnames"])
        write_assumed(host, set(listed.split()), status)
        return AptSource((*self.options, *_UNCACHED, "-o", f"Dir::State::status={status}"), self.given)

    def list_files(self, host: Host, file: str) -> tuple[str, ...]:
        """Return the paths in a package file; raises `SourceError`."""
        done = host.run(["dpkg-deb", "--contents", file], _UNPACK_TIMEOUT_S)
        if done.return_code:
            raise _damaged(file, done)
        places = (line.split(None, 5)[-1].split(" -> ")[0] for line in done.stdout.splitlines() if line)
        return tuple(place[1:] for place in places if place.startswith("./"))

    def rehearse_return(self, host: Host, there: Step, back: Step, scratch: str) -> tuple[set[str], set[str]]:
        """Rehearse on a copy of dpkg's database; raises `PackageError`."""
        write_future(host, there.files, there.remove, f"{scratch}/status")
        return rehearse_future(host, f"{scratch}/status", tuple(back.files.values()), back.remove)

    def unpack(self, host: Host, file: str, folder: str) -> None:
        """Unpack below a folder; raises `SourceError`."""
        done = host.run(["dpkg-deb", "--extract", file, folder], _UNPACK_TIMEOUT_S)
        if done.return_code:
            raise _damaged(file, done)


def _read_header(host: Host, file: str) -> Header:
    done = read_control(host, file)
    fields = next(parse_paragraphs(done.stdout), None)
    if done.return_code or fields is None:
        raise _damaged(file, done)
    depends = names_in(fields.get("Pre-Depends", ""), fields.get("Depends", ""))
    return Header(file, fields["Package"], fields.get("Version", ""), source_of(fields), tuple(depends))


def _words(request: Request) -> list[str]:
    """Return packages as apt-get install takes them: ``name=version``, and ``name-`` for a removal."""
    wanted = (f"{name}={version}" if version else name for name, version in request.packages.items())
    return [*wanted, *(f"{one}-" for one in request.remove)]


def _reinstall(request: Request) -> list[str]:
    """Return the words that make apt fetch what is installed at that very version as well."""
    return ["--reinstall", "install", *_words(request)]


def _into(folder: str) -> list[str]:
    return ["-o", f"Dir::Cache::archives={folder}"]


def _ask(host: Host, command: list[str]) -> str:
    done = host.run(command, _RESOLVE_TIMEOUT_S)
    if done.return_code:
        raise _failure(host, done, _RESOLVE_TIMEOUT_S)
    return done.stdout


def _remove_wrong(place: Path, downloads: Sequence[Download]) -> None:
    """Remove what a killed run left: apt believes a file of the right size."""
    wanted = {one.name: one.digest for one in downloads}
    for path in place.glob("*.deb"):
        if path.name not in wanted or not has_digest(path, wanted[path.name]):
            path.unlink()


def _copy_local(host: Host, one: Download, place: Path) -> None:
    parts = urlsplit(one.uri)
    if parts.scheme != "file" or (place / one.name).exists():
        return
    try:
        shutil.copyfile(host.path(unquote(parts.path)), place / one.name)
    except OSError as error:
        (place / one.name).unlink(missing_ok=True)
        if error.errno == errno.ENOSPC:
            raise SourceError("no-space", f"the disk is full: {one.name} does not fit", NO_SPACE_REMEDY) from error
        raise _gone(one.name, error.strerror or str(error)) from error


def _failure(host: Host, done: Finished, timeout_s: float, uris: Sequence[str] = ()) -> SourceError:
    """Return what went wrong, in the words of the product; apt's own are kept where they say more."""
    if done.is_timed_out:
        where = f", with {sites_of(uris)}" if sites_of(uris) else ""
        said = f"apt did not finish within {timeout_s:g} s{where}{_through(host)}"
        return SourceError("download-timeout", said, _REACH)
    if is_out_of_space(done.stderr):
        return SourceError("no-space", f"the disk is full: {done.complaints}", NO_SPACE_REMEDY)
    if _UNREADABLE in done.stderr:
        return SourceError("packages-unreadable", f"apt cannot read the database: {done.complaints}", _RESTORE)
    missing = _NOT_FOUND.search(done.stderr)
    if missing:
        name, version = missing[1] or missing[3], missing[2] or ""
        return SourceError("package-not-found", f"no source has {f'{name} {version}'.strip()}", _REFRESH)
    failed = _FETCH_FAILED.search(done.stderr)
    if failed:
        return _fetch_failure(host, failed["uri"], printable(failed["why"].strip()))
    if "authenticat" in done.stderr:
        return SourceError(
            "not-authenticated",
            f"apt cannot verify the packages: {done.complaints}",
            "give the source its signing key (Signed-By) and refresh the lists",
        )
    unmet = _UNMET.findall(done.stdout)
    if unmet:
        said = printable("; ".join(" ".join(line.split()) for line in unmet), 1000)
        return SourceError("unresolvable", f"the packages do not go together on this node: {said}", _REFRESH)
    return SourceError("download-failed", f"apt cannot get the packages: {done.complaints}", _REACH)


def _fetch_failure(host: Host, uri: str, why: str) -> SourceError:
    name = unquote(uri.rsplit("/", 1)[-1])
    site = f" from {sites_of([uri])}" if sites_of([uri]) else ""
    if re.match(r"(404|410)\b", why) or "File not found" in why:
        return _gone(f"{name}{site}", why)
    if "Hash Sum mismatch" in why or "unexpected size" in why:
        return SourceError(
            "damaged-download", f"{name}{site}: {why}", "a mirror out of step does this: refresh the lists"
        )
    said = f"{name} cannot be downloaded{site}{_through(host)}: {without_passwords(why)}"
    return SourceError("source-unreachable", said, _REACH)


def _through(host: Host) -> str:
    """Return the proxies that apt is told to use, for a message."""
    done = host.run(["apt-config", "dump"], _RESOLVE_TIMEOUT_S)
    proxies = dict.fromkeys(without_passwords(each["proxy"]) for each in _PROXY.finditer(done.stdout))
    return f" through the proxy {printable(', '.join(proxies))}" if proxies else ""


def _gone(name: str, why: str) -> SourceError:
    return SourceError("package-gone", f"the source that lists {name} no longer has it: {why}", _REFRESH)


def _damaged(file: str, done: Finished) -> SourceError:
    return SourceError("damaged-package", f"{file} cannot be read: {done.complaint}", "remove the file and stage again")
