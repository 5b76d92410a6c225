"""Runs the module `selinux`."""

from __future__ import annotations

from typing import ClassVar

from ansible_collections.grapnel.node.plugins.plugin_utils.checked import CheckedAction


class ActionModule(CheckedAction):
    RETURNS: ClassVar = {"installed": bool}
