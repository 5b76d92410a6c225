"""Runs a module of another collection, and passes on only the parts of its answer that the roles use."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.grapnel.node.plugins.plugin_utils.checked import CheckedAction

_ARGUMENTS = {"module": {"type": "str", "required": True}, "args": {"type": "dict", "default": {}}}


class ActionModule(CheckedAction):
    RETURNS: ClassVar = None

    def ask(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        """Run the named module."""
        _, arguments = self.validate_argument_spec(_ARGUMENTS)
        return self.execute(arguments["module"], arguments["args"], task_vars)
