"""Defines the fleet as values: nodes, their effective declarations, and where each value came from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.declaration.fleet.endpoint import Endpoint
    from provision.declaration.spec.model import GpuStack, StackSpec
    from provision.declaration.spec.text.findings import Finding, Place


class Level(Enum):
    """The levels at which a declaration can be made, the weakest first."""

    DEFAULT = "default"
    FILE = "file"
    GROUP = "group"
    HOST = "host"


@dataclass(frozen=True)
class Origin:
    """Who set a value: the level that won, where it stands, and what it overrode.

    `where` prints as "built in", "grapnel.yaml:12:14" or "group gpu_nodes". `overrode` is the next weaker level
    that had set the same key, and so on down to the default.
    """

    level: Level
    where: Place
    value: object
    overrode: Origin | None = None


@dataclass(frozen=True)
class FleetNode:
    """A machine of the inventory; `groups` in the order in which they are merged, weakest first.

    `origins` maps every dotted key of the effective declaration ("driver.version") to who set it. `endpoint` is where
    Ansible connects to.
    """

    name: str
    groups: tuple[str, ...]
    stack: StackSpec
    origins: Mapping[str, Origin]
    endpoint: Endpoint


@dataclass(frozen=True)
class Fleet:
    """The selected machines in the order of their names, and what they were read from.

    `inventories` are the values for Ansible's `--inventory`: absolute paths, or lists of hosts with a comma.
    """

    declaration: GpuStack
    nodes: tuple[FleetNode, ...]
    inventories: tuple[str, ...]
    warnings: tuple[Finding, ...] = ()
