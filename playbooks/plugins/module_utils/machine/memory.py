"""Remembers what a slow command has answered as long as no file has changed that it answers from.

The facts of a node are gathered several times in one change. What is remembered lies below ``/run`` and is gone after a
reboot.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from typing import Any, Callable

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_FOLDER = "/run/grapnel"
_FORMAT = "1"  # of what is remembered
_MAX_BYTES = 64 * 1024 * 1024
Answer = TypeVar("Answer")  # of JSON


def remembered(
    host: Host,
    name: str,
    inputs: Callable[[], Iterable[Path]],
    read: Callable[[], Answer],
    is_whole: Callable[[Answer], bool] = bool,
) -> Answer:
    """Return what ``read`` returned when all its inputs were as they are now; only a whole answer is remembered.

    ``inputs`` returns files and folders that decide on the answer, whether they are there or not.
    """
    state, place = _state(inputs()), f"{_FOLDER}/{name}.json"
    known = _load(host, place)
    if known.get("state") == state:
        answer: Answer = known["answer"]
        return answer
    found = read()
    if is_whole(found) and _state(inputs()) == state:
        with contextlib.suppress(OSError):  # it is asked again then
            _store(host, place, {"state": state, "answer": found})
    return found


def _state(inputs: Iterable[Path]) -> str:
    """Return a digest of which of the files there are, and of when each was written."""
    digest = hashlib.sha256(_FORMAT.encode())
    for path in inputs:
        with contextlib.suppress(OSError):  # it is not there, which is a state of its own
            found = path.stat()
            written = (str(path), found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            digest.update(repr(written).encode())
    return digest.hexdigest()


def _load(host: Host, path: str) -> dict[str, Any]:
    try:
        with host.open(path) as stream:
            found = json.loads(stream.read(_MAX_BYTES))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and "answer" in found else {}


def _store(host: Host, path: str, content: dict[str, Any]) -> None:
    place = host.path(path)
    beside = place.with_name(f".{place.name}.{os.getpid()}")
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(content, stream)
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)
