"""Reads what `grapnel apply` brought about (contract `docs/contracts/declared`). Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from plugin.base.documents import list_of, member, members, optional, read_versioned, text, truth
from plugin.drift.model import Declared, DeclaredFile, DeclaredPackage

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = "grapnel.dev/declared/v1alpha1"
MAX_BYTES = 1 << 20
_MAX_ITEMS = 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,254}")  # of packages and parts: never an option, never a path
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~^_:-]{0,254}")
_UNIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9:_.@-]{0,250}\.(?:service|timer)")
_PATH = re.compile(r"/[^\x00-\x1f\x7f]{1,4094}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MODE = re.compile(r"0[0-7]{3}")
_MARK = re.compile(r"start|end")
_MANAGER = re.compile(r"apt|dnf|zypper")


def parse_declared(content: bytes) -> Declared:
    """Return what a document says; raises ValueError. Keys that are not known are ignored."""
    document = read_versioned(content, MAX_BYTES, SCHEMA)
    software = member(document, "software", members)
    return Declared(
        node=member(document, "node", text(253)),
        manager=member(document, "manager", _matching(_MANAGER, "apt, dnf or zypper")),
        packages=member(document, "packages", list_of(_package, _MAX_ITEMS)),
        files=member(document, "files", list_of(_file, _MAX_ITEMS)),
        units=member(document, "units", list_of(_matching(_UNIT, "the name of a service or timer"), _MAX_ITEMS)),
        module=member(document, "module", optional(_matching(_VERSION, "a version"))) or "",
        software={_name(part): _digest(digest) for part, digest in software.items()},
    )


def _matching(pattern: re.Pattern[str], words: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise ValueError(f"must be {words}")
        return value

    return parse


_name = _matching(_NAME, "the name of a package or part")
_digest = _matching(_DIGEST, "a sha-256 digest")


def _package(value: object) -> DeclaredPackage:
    return DeclaredPackage(
        name=member(value, "name", _name),
        version=member(value, "version", _matching(_VERSION, "a version")),
        hold=member(value, "hold", truth),
    )


def _file(value: object) -> DeclaredFile:
    return DeclaredFile(
        path=member(value, "path", _matching(_PATH, "an absolute path")),
        sha256=member(value, "sha256", _digest),
        mode=member(value, "mode", _matching(_MODE, "four octal digits")),
        mark=member(value, "mark", _matching(_MARK, "start or end")) if _has_mark(value) else "",
    )


def _has_mark(value: object) -> bool:
    return isinstance(value, dict) and value.get("mark", "") != ""
