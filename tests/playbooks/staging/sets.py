"""What tests of staging do with sets: make one, hand something over for one, read one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.change import change_id, parse_change
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.check import check_set
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import file_digest

from tests.playbooks.staging.node import HOME, KERNEL, Node, Packages

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import DriverChange

OLD, NEW = "535.309.01", "550.163.01"


def staged(node: Node, change: DriverChange) -> str:
    """Stage, hold that to success, and return the folder of the set."""
    result = node.stage(change)
    assert result.complete, result.findings
    return f"{HOME}/staged/{change_id(change)}"


def way_back(node: Node, folder: str) -> DriverChange:
    return parse_change(node.path(f"{folder}/before/change.json").read_bytes())


def codes(node: Node, change: DriverChange) -> list[str]:
    return [one.code for one in check_set(node.host, Packages(node), change_id(change))]


def hand_over(node: Node, change: DriverChange, **values: str) -> None:
    """Hand a module over as the controller does."""
    place = f"{HOME}/incoming/{change_id(change)}"
    name = f"modules/{KERNEL}.tar.gz"
    node.write_archive(f"{place}/{name}", KERNEL, change.version, **values)
    node.write(f"{place}/list.json", json.dumps({name: file_digest(node.path(f"{place}/{name}"))}))
