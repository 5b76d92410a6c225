"""Runs the module `removal`, and warns of what cannot be given back."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.grapnel.node.plugins.plugin_utils.answer import show
from ansible_collections.grapnel.node.plugins.plugin_utils.checked import CheckedAction


class ActionModule(CheckedAction):
    RETURNS: ClassVar = {"removal": dict}

    def tell(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return a warning for each line."""
        notes = answer.get("removal", {}).get("notes")
        return {"warnings": show([str(note) for note in notes[:50]])} if isinstance(notes, list) else {}
