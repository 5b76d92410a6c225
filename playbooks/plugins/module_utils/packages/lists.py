"""Defines when a package manager's lists of what it could install count as old."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host


@dataclass(frozen=True)
class Freshness:
    """When lists count as old, and how long a refresh may take, the wait for the manager's lock included."""

    max_age_s: float
    timeout_s: float


def are_due(host: Host, age_s: int | None, freshness: Freshness, clock: Clock, sources: Iterable[str]) -> bool:
    """Tell whether lists are to be fetched: there are none, they are old, or older than a package source.

    ``sources`` are folders of files that tell the package manager where its packages are.
    """
    if age_s is None or age_s > freshness.max_age_s:
        return True
    places = (host.path(f"{folder}/{name}") for folder in sources for name in host.names(folder))
    changed = max((place.stat().st_mtime for place in places if place.is_file()), default=0.0)
    return clock.now() - changed < age_s + 1  # the age is in whole seconds
