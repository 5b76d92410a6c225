"""Turns RPM's requirements into names of packages: a requirement names a capability, which a package provides.

Only what is unambiguous is turned: a capability that several packages provide, such as the kernel module in its two
flavours, is a choice, and the planner makes it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# "nvidia-driver-libs(x86-64) = 3:580.65.06-1.el9" is about "nvidia-driver-libs"; "libcuda.so.1()(64bit)" stays itself.
_RELATION = re.compile(r"\s*(?:[<>]=?|=)\s.*$")
_ARCHITECTURE = re.compile(r"\((?:x86-64|x86-32|aarch-64|ppc-64|s390-64)\)$")


def plain(capability: str) -> str:
    """Return a capability without version and architecture; empty for a condition ("rich dependency")."""
    if capability.startswith("("):
        return ""
    return _ARCHITECTURE.sub("", _RELATION.sub("", capability.strip()))


def providers(provided: Iterable[tuple[str, Iterable[str]]]) -> dict[str, set[str]]:
    """Return the packages of each capability, from pairs of a package and what it provides."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, capabilities in provided:
        found[name].add(name)
        for capability in capabilities:
            if shorter := plain(capability):
                found[shorter].add(name)
    return found


def resolve(name: str, requirements: Iterable[str], of: Mapping[str, set[str]]) -> list[str]:
    """Return the names of the packages that a package needs, of those that ``of`` knows, sorted, itself left out."""
    needed: set[str] = set()
    for requirement in requirements:
        capability = plain(requirement)
        candidates = of.get(capability, set())
        if capability in candidates:
            needed.add(capability)
        elif len(candidates) == 1:
            needed |= candidates
    return sorted(needed - {name})
