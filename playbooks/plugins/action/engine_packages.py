"""Runs the module `engine_packages`, and warns of what it notes."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.grapnel.node.plugins.plugin_utils.answer import show
from ansible_collections.grapnel.node.plugins.plugin_utils.checked import CheckedAction


class ActionModule(CheckedAction):
    RETURNS: ClassVar = {"coming": list, "note": str}

    def tell(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return what the module notes as a warning."""
        return {"warnings": show([answer["note"]])} if answer.get("note") else {}
