"""Runs the module `daemon`, and warns of processes that still hold a GPU."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.grapnel.node.plugins.plugin_utils.answer import show
from ansible_collections.grapnel.node.plugins.plugin_utils.checked import CheckedAction


class ActionModule(CheckedAction):
    RETURNS: ClassVar = {"daemon": dict, "held_by": list, "taken": bool, "installed": bool, "ended": list}

    def tell(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return a warning for each holder."""
        return {"warnings": [f"a GPU is still held: {line}" for line in show(answer.get("held_by", []))]}
