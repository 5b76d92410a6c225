"""Reads a fleet whose nodes belong to several places as one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from provision.rollout.status.model import Seen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from provision.rollout.interface.cluster import NodeProblem
    from provision.rollout.interface.standing import Standing
    from provision.rollout.model import NodeView
    from provision.rollout.status.model import Reader, Tenant


class MixedReader:
    """Several readers, that of a state file first; ``nodes`` are all of their nodes, in the order of showing."""

    def __init__(
        self, readers: Sequence[Reader], nodes: Sequence[str], sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._readers = tuple(readers)
        self._nodes = tuple(nodes)
        self._sleep = sleep

    def look(self) -> Seen:
        """Return what is true now in every place. Raises ClusterError when one of them does not answer."""
        return merge([reader.look() for reader in self._readers], self._nodes)

    def follow(self, timeout_s: float) -> Seen:
        """Look again after a while."""
        self._sleep(timeout_s)
        return self.look()


def merge(parts: Sequence[Seen], nodes: Sequence[str]) -> Seen:
    """Return what was seen in several places as one. Pure.

    One engine tells every place how its rollout stands, and each of them for itself knows who has its lock: the last
    rollout is believed, and whoever is at work in one of them is at work. The state file is the first of the parts.
    """
    found: dict[str, NodeView | NodeProblem] = {}
    for part in parts:
        found |= part.nodes
    return Seen(
        place="; ".join(part.place for part in parts),
        time=max(part.time for part in parts),
        nodes={name: found[name] for name in nodes},
        tenant=_tenant(parts),
        standing=_standing(parts),
        pause=next((part.pause for part in parts if part.pause is not None), None),
        complaints=tuple(complaint for part in parts for complaint in part.complaints),
        is_lease_known=all(part.is_lease_known for part in parts),
        is_leader_known=all(part.is_leader_known for part in parts),
        stacks=tuple(stack for part in parts for stack in part.stacks),
        declared={name: driver for part in parts for name, driver in part.declared.items()},
        daemons={name: plugin for part in parts for name, plugin in part.daemons.items()},
        reported={name: each for part in parts for name, each in part.reported.items()},
        controller=next((part.controller for part in parts if part.controller is not None), None),
    )


def _tenant(parts: Sequence[Seen]) -> Tenant | None:
    tenants = [part.tenant for part in parts if part.tenant is not None]
    return next((tenant for tenant in tenants if tenant.is_at_work), tenants[0] if tenants else None)


def _standing(parts: Sequence[Seen]) -> Standing | None:
    """Return that of the last rollout, and of the same one what the first place has.

    That is the state file, which is written within a second of what is new, and names the nodes of all places. The
    lease is renewed now and then, and only its own nodes are known by what it calls them.
    """
    standings = [part.standing for part in parts if part.standing is not None]
    return max(standings, key=lambda one: one.began, default=None)
