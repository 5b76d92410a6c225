"""The facts about packages on a node with apt: what is installed, what could be, and in which state the manager is."""

from __future__ import annotations

from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.dpkg import (
    is_owned,
    read_installed,
    read_state,
    wait_for_lock,
)
from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.lists import read_available, refresh_lists

NAME = "apt"

__all__ = ["NAME", "is_owned", "read_available", "read_installed", "read_state", "refresh_lists", "wait_for_lock"]
