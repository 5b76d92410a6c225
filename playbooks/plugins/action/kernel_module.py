"""Runs the module `kernel_module`, and warns of processes that would be in the way."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.grapnel.node.plugins.plugin_utils.answer import show
from ansible_collections.grapnel.node.plugins.plugin_utils.checked import CheckedAction


class ActionModule(CheckedAction):
    RETURNS: ClassVar = {"previous": str, "modules": list, "obstacles": list}

    def tell(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return a warning for each obstacle."""
        said = f"kernel module {show(answer.get('previous', ''))} cannot be exchanged now"
        return {"warnings": [f"{said}: {line}" for line in show(answer.get("obstacles", []))]}
