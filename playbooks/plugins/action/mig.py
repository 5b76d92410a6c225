"""Runs the module `mig`, and warns of what it noticed."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.grapnel.node.plugins.plugin_utils.answer import show
from ansible_collections.grapnel.node.plugins.plugin_utils.checked import CheckedAction


class ActionModule(CheckedAction):
    RETURNS: ClassVar = {"steps": list, "notes": list}

    def tell(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return a warning for each note."""
        return {"warnings": [f"the GPUs are divided, but {line}" for line in show(answer.get("notes", []))]}
