"""Remembers what dnf has answered from its cache as long as nothing that it answers from has changed.

One question is seconds of work on a system with all its repositories, and facts are gathered several times in a change.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Callable

    from ansible_collections.grapnel.node.plugins.module_utils.host import Host

_PLACE = "/run/grapnel/dnf-available.json"
_FORMAT = "1"  # of what is remembered
_MAX_BYTES = 64 * 1024 * 1024
# Options, plugins, variables and enabled streams; repositories; the release that stands in their addresses.
_SETTINGS = ("/etc/dnf", "/etc/yum.repos.d", "/etc/yum", "/etc/os-release")
_CACHE = "/var/cache/dnf"  # beside the metadata it has what dnf computes from them while it answers


def remembered(host: Host, read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what ``read`` returned when everything was as it is now; an empty answer is not remembered."""
    state = _state(host)
    known = _load(host)
    if known.get("state") == state:
        available: dict[str, Any] = known["available"]
        return available
    found = read()
    if found and _state(host) == state:
        with contextlib.suppress(OSError):  # it is asked again then
            _store(host, {"state": state, "available": found})
    return found


def _state(host: Host) -> str:
    """Return a digest of which files there are, and of when each was written."""
    digest = hashlib.sha256(_FORMAT.encode())
    for path in _inputs(host):
        with contextlib.suppress(OSError):  # it is not there, which is a state of its own
            found = path.stat()
            written = (str(path), found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            digest.update(repr(written).encode())
    return digest.hexdigest()


def _inputs(host: Host) -> Iterator[Path]:
    metadata = (f"{_CACHE}/{name}/repodata" for name in host.names(_CACHE))
    for top in (host.path(place) for place in (*_SETTINGS, *metadata)):
        yield top
        yield from sorted(top.rglob("*"))


def _load(host: Host) -> dict[str, Any]:
    try:
        with host.open(_PLACE) as stream:
            found = json.loads(stream.read(_MAX_BYTES))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("available"), dict) else {}


def _store(host: Host, content: dict[str, Any]) -> None:
    place = host.path(_PLACE)
    beside = place.with_name(f".{place.name}.{os.getpid()}")
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(content, stream)
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)
