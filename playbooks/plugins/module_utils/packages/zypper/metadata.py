"""Reads the metadata of repositories that zypper has fetched (``primary.xml``): sources, requirements, provisions.

A distribution's own repository is a hundred megabytes of it, so what is not asked for is not parsed.
"""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax.saxutils import unescape

from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.database import Rpm

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_RAW = "/var/cache/zypp/raw"
_ZSTD_TIMEOUT_S = 60.0
_MAX_BYTES = 512 << 20
_CHUNK = 4 << 20
_END = b"</package>"
_NAME = re.compile(rb"<name>([^<]*)</name>")
_ARCH = re.compile(r"<arch>([^<]*)</arch>")
_VERSION = re.compile(r'<version epoch="([^"]*)" ver="([^"]*)" rel="([^"]*)"')
_SOURCE = re.compile(r"<rpm:sourcerpm>([^<]*)</rpm:sourcerpm>")
_LISTS = re.compile(r"<rpm:(provides|requires)>(.*?)</rpm:\1>", re.DOTALL)
_ENTRY = re.compile(r'<rpm:entry name="([^"]*)"')


@dataclass(frozen=True)
class Entry:
    """One package of a repository, with the names of the capabilities that it requires and provides."""

    rpm: Rpm
    requires: tuple[str, ...]
    provides: tuple[str, ...]


def read_metadata(host: Host, names: Collection[str]) -> dict[tuple[str, str], Entry]:
    """Return the packages of these names, by name and edition; what cannot be read is left out."""
    wanted = {name.encode() for name in names}
    found: dict[tuple[str, str], Entry] = {}
    for path in _files(host) if wanted else ():
        for block in _blocks(host, path):
            match = _NAME.search(block)
            if match is not None and match.group(1) in wanted:
                entry = _parse(match.group(1).decode(), block.decode("utf-8", "replace"))
                found.setdefault((entry.rpm.name, entry.rpm.edition), entry)
    return found


def has_metadata(host: Host) -> bool:
    """Tell whether zypper has fetched what any repository has, of whatever type that is."""
    return bool(host.names(_RAW))


def _files(host: Host) -> Iterator[str]:
    for repository in host.names(_RAW):
        folder = f"{_RAW}/{repository}/repodata"
        yield from (f"{folder}/{name}" for name in host.names(folder) if "primary.xml" in name)


def _blocks(host: Host, path: str) -> Iterator[bytes]:
    """Yield the text of each package of a file."""
    rest = b""
    for chunk in _chunks(host, path):
        *blocks, rest = (rest + chunk).split(_END)
        yield from blocks


def _chunks(host: Host, path: str) -> Iterator[bytes]:
    if path.endswith(".zst"):  # Python has no zstd before 3.14
        yield host.run(["zstd", "-dcq", path], _ZSTD_TIMEOUT_S).stdout.encode()
        return
    try:
        with host.open(path) as stream, gzip.open(stream) as unpacked:
            for _ in range(_MAX_BYTES // _CHUNK):
                if not (chunk := unpacked.read(_CHUNK)):
                    return
                yield chunk
    except (OSError, EOFError):
        return


def _parse(name: str, text: str) -> Entry:
    version = _VERSION.search(text)
    epoch, number, release = version.groups() if version else ("", "", "")
    architecture, source = _ARCH.search(text), _SOURCE.search(text)
    lists = {kind: _entries(body) for kind, body in _LISTS.findall(text)}
    rpm = Rpm(
        name, epoch, number, release, architecture.group(1) if architecture else "", source.group(1) if source else ""
    )
    return Entry(rpm, lists.get("requires", ()), lists.get("provides", ()))


def _entries(body: str) -> tuple[str, ...]:
    return tuple(unescape(name, {"&quot;": '"', "&apos;": "'"}) for name in _ENTRY.findall(body))
