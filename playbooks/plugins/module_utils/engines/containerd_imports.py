"""Follows containerd's configuration: which files it imports, and which base specifications its runtimes name.

Read as text, as a node's Python may have no TOML parser; what the files mean is the planner's business.
"""

from __future__ import annotations

import fnmatch
import os
import re
from types import MappingProxyType
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.engines.table import CONTAINERD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_MAX_FILES = 32
_LIMIT_BYTES = 256 * 1024
_COMMENT = re.compile(r"^\s*#[^\n]*", re.MULTILINE)
_IMPORTS = re.compile(r"""^\s*["']?imports["']?\s*=\s*\[([^\]]*)\]""", re.MULTILINE)
_BASE_SPEC = re.compile(r"""base_runtime_spec["']?\s*=\s*["'](/[^"'\\\x00-\x1f\x7f-\x9f]{1,1023})["']""")
_MAX_SPECS = 8
_ENDLESS = ("dev/", "proc/", "sys/")  # of which some are read without end
_QUOTED = re.compile(r"""["']([^"'\n]+)["']""")


def read_imports(host: Host, instead: Mapping[str, str] = MappingProxyType({})) -> dict[str, list[str]]:
    """Return what every import leads to, as absolute paths and patterns; an empty list where nothing is there.

    ``instead`` are texts that files will have.
    """
    found: dict[str, list[str]] = {}
    pending = [CONTAINERD.main]
    seen: set[str] = set()
    while pending and len(seen) <= _MAX_FILES:
        path = pending.pop(0)
        if path in seen:
            continue
        seen.add(path)
        for pattern in _imports_in(path, instead[path] if path in instead else host.read_text(path, _LIMIT_BYTES)):
            found[pattern] = _matching(host, pattern)
            pending += found[pattern]
    return found


def read_base_specs(host: Host, files: Iterable[str]) -> list[str]:
    """Return the base specifications that files of containerd's name, of many the first; none of the kernel's files."""
    texts = (_COMMENT.sub("", host.read_text(path, _LIMIT_BYTES) or "") for path in files)
    found = dict.fromkeys(path for text in texts for path in _BASE_SPEC.findall(text))
    return [path for path in found if not os.path.normpath(path).lstrip("/").startswith(_ENDLESS)][:_MAX_SPECS]


def _imports_in(path: str, text: str | None) -> Iterator[str]:
    listed = _IMPORTS.search(_COMMENT.sub("", text or ""))
    for pattern in _QUOTED.findall(listed.group(1)) if listed else ():
        yield os.path.normpath(pattern if pattern.startswith("/") else f"{path.rpartition('/')[0]}/{pattern}")


def _matching(host: Host, pattern: str) -> list[str]:
    """Return the files of an import, of many the first; containerd takes it for a pattern if it has a star."""
    if "*" not in pattern:
        return [pattern] if host.path(pattern).is_file() else []
    folders = ["/"]
    *parts, last = pattern.strip("/").split("/")
    for part in parts:
        folders = [f"{folder.rstrip('/')}/{name}" for folder in folders for name in _names(host, folder, part)]
    files = [f"{folder.rstrip('/')}/{name}" for folder in folders for name in _names(host, folder, last)]
    return [path for path in files if host.path(path).is_file()][:_MAX_FILES]


def _names(host: Host, folder: str, part: str) -> list[str]:
    if not any(sign in part for sign in "*?["):
        return [part]
    return [name for name in host.names(folder) if fnmatch.fnmatchcase(name, part)][:_MAX_FILES]
