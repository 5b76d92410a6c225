"""Runs the module `facts`; what it returns are a node's own words, and hold the node's configuration files."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from ansible_collections.grapnel.node.plugins.plugin_utils.checked import CheckedAction

_CHANNEL = "GRAPNEL_EVENTS"  # grapnel reads the facts from its own channel, where nothing is logged


class ActionModule(CheckedAction):
    """The action `grapnel.node.facts`."""

    RETURNS: ClassVar = {"facts": dict}

    def tell(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Keep the facts out of logs and of the output with ``-v``: the files in them may hold passwords."""
        return {} if answer.get("failed") or _CHANNEL in os.environ else {"_ansible_no_log": True}
