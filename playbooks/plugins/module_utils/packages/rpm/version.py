"""Compares RPM versions, ``[epoch:]version-release``, as rpm itself does (rpmvercmp in rpm's own documentation)."""

from __future__ import annotations

import re

_PARTS = re.compile(r"[0-9]+|[A-Za-z]+|[~^]")


def is_newer(version: str, than: str) -> bool:
    """Tell whether a version is newer than another one."""
    return _compare_all(_split(version), _split(than)) > 0


def _split(version: str) -> tuple[str, str, str]:
    epoch, colon, rest = version.rpartition(":")
    number, _, release = rest.partition("-")
    return (epoch if colon else "0") or "0", number, release


def _compare_all(one: tuple[str, str, str], other: tuple[str, str, str]) -> int:
    return next((found for a, b in zip(one, other) if (found := _compare(a, b))), 0)


def _compare(one: str, other: str) -> int:
    """Compare part by part: a tilde sorts before the end, a caret right after it, and digits after letters."""
    mine, theirs = _PARTS.findall(one), _PARTS.findall(other)
    for index in range(max(len(mine), len(theirs))):
        a = mine[index] if index < len(mine) else ""
        b = theirs[index] if index < len(theirs) else ""
        if a != b:
            found = (_rank(a) > _rank(b)) - (_rank(a) < _rank(b))
            if found:
                return found
    return 0


def _rank(part: str) -> tuple[int, int, str]:
    if part == "~":
        return (0, 0, "")
    if part == "":
        return (1, 0, "")
    if part == "^":
        return (2, 0, "")
    return (4, int(part), "") if part.isdecimal() else (3, 0, part)
