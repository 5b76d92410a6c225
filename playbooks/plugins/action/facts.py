"""Runs the module `facts`; what it returns comes from the node, and holds the node's configuration files."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.grapnel.node.plugins.plugin_utils.checked import CheckedAction


class ActionModule(CheckedAction):
    RETURNS: ClassVar = {"facts": dict}

    def tell(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Keep the facts out of the output of a play with ``-v``: the files in them may hold passwords."""
        return {} if answer.get("failed") else {"_ansible_verbose_override": True}
