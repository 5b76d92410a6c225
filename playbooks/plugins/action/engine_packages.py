"""Runs the module `engine_packages`."""

from __future__ import annotations

from typing import ClassVar

from ansible_collections.grapnel.node.plugins.plugin_utils.checked import CheckedAction


class ActionModule(CheckedAction):
    RETURNS: ClassVar = {"coming": list}
