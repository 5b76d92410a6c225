"""Runs the module `driver`, and warns of what stands in the way of a swap, or went wrong beside it."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.grapnel.node.plugins.plugin_utils.answer import show
from ansible_collections.grapnel.node.plugins.plugin_utils.checked import CheckedAction

_MAX_FINDINGS = 50


class ActionModule(CheckedAction):
    RETURNS: ClassVar = {"id": str, "status": dict, "staged": dict, "problems": list, "reboot": str, "foreseen": dict}

    def tell(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return a warning for each line."""
        lines = [f"the driver cannot be changed now: {line}" for line in _texts(answer.get("problems"))]
        if answer.get("reboot"):
            lines.append(f"the node has to reboot for its driver: {answer['reboot']}")
        run = _mapping(_mapping(answer.get("status")).get("run"))
        if run.get("state") == "done" and run.get("reason"):
            lines.append(f"the driver's {run.get('verb')} is done: {run['reason']}")
        findings = [one for one in _list(_mapping(answer.get("staged")).get("findings")) if isinstance(one, dict)]
        lines += [f"{one.get('message')} ({one.get('remedy')})" for one in findings if one.get("severity") == "warning"]
        return {"warnings": show(lines[:_MAX_FINDINGS])}


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(value: object) -> list[str]:
    return [str(one) for one in _list(value)]
