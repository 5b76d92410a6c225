"""Combines what nodes declare into one policy: how many may be out of service, and when the next ones follow. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from provision.spec.model import Rollout

if TYPE_CHECKING:
    from collections.abc import Collection

_WHOLE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How many nodes are changed at once, and how many may be out of service for any reason.

    A changed node has to stay healthy for ``soak`` before the next one begins.
    """

    max_parallel: int = 1
    max_unavailable: int = 1
    soak: timedelta = timedelta(0)


def strictest(declared: Collection[Rollout], nodes: int) -> Policy:
    """Return the policy that keeps what each of the nodes declares; percentages are of ``nodes``, rounded up."""
    declarations = declared or (Rollout(),)
    return Policy(
        max_parallel=min(one.max_parallel for one in declarations),
        max_unavailable=min(_count(one.max_unavailable, nodes) for one in declarations),
        soak=timedelta(minutes=max(one.soak_minutes for one in declarations)),
    )


def _count(limit: int | str, nodes: int) -> int:
    if isinstance(limit, int):
        return limit
    return -(-int(limit.removesuffix("%")) * nodes // _WHOLE)
