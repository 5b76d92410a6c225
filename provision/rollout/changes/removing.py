"""Says what `grapnel remove` was told to take away, and what that comes to on each node. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from provision.apply.model import Failure, Status
from provision.apply.removal import ALL_PARTS, NodeRemoval, Part

if TYPE_CHECKING:
    from collections.abc import Mapping

_WORDS: Final = {
    Part.DRIVER: "the driver",
    Part.RUNTIME: "the engine's settings",
    Part.DAEMON: "the node daemon",
    Part.HOOK: "the hook",
    Part.NODE: "the node's settings",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Removing:
    """Takes parts of grapnel away. ``removals`` say what that comes to on each node.

    ``classes`` are the RuntimeClasses that the nodes' handlers have, ``unselected`` the other machines of the inventory
    that need each of them.
    """

    parts: frozenset[Part]
    classes: tuple[str, ...] = ()
    unselected: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    removals: Mapping[str, NodeRemoval | Failure] = field(default_factory=dict)
    value: str = "remove"

    @property
    def command(self) -> str:
        """The command of grapnel that does it."""
        named = [] if self.parts == ALL_PARTS else [f"--{part}" for part in Part if part in self.parts]
        return " ".join(["grapnel remove", *named])

    @property
    def status(self) -> Status:
        """What becomes of a node with which it went well."""
        return Status.REMOVED

    @property
    def has_driver(self) -> bool:
        """Whether the driver is taken away."""
        return Part.DRIVER in self.parts

    @property
    def others(self) -> frozenset[Part]:
        """The parts beside the driver."""
        return self.parts - {Part.DRIVER}

    def is_due(self, node: str) -> bool:
        """Tell whether there is something on a node to take away."""
        found = self.removals.get(node)
        return isinstance(found, NodeRemoval) and bool(found.steps)

    def obstacle(self, node: str) -> Failure | None:
        """Return why nothing may be begun on a node."""
        found = self.removals.get(node)
        if isinstance(found, NodeRemoval) and found.problems:
            return Failure(Status.REFUSED, "; ".join(found.problems))
        return found if isinstance(found, Failure) else None


def named_parts(removing: Removing) -> str:
    """Return what is taken away, in the words of a question."""
    if removing.parts == ALL_PARTS:
        return "grapnel and everything that came with it"
    return ", ".join(_WORDS[part] for part in Part if part in removing.parts)


def left_in_cluster(removing: Removing) -> str:
    """Return what stays in a cluster of Kubernetes afterwards, empty for nothing."""
    if Part.DAEMON not in removing.parts:
        return ""
    return "the Nodes keep the labels, conditions and annotations that grapnel-node and rollouts wrote last"
