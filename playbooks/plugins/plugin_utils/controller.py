"""Finds the `provision` package on the controller: it makes the plan, in the Python that runs Ansible."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

_HINT = "install grapnel into the Python that runs ansible-playbook: {python}"


def require_grapnel() -> None:
    """Make `provision` importable; raises AnsibleActionFail with a hint when it is missing.

    In a checkout the package lies beside the collection and need not be installed.
    """
    checkout = Path(__file__).resolve().parents[3]
    if importlib.util.find_spec("provision") is None and (checkout / "provision" / "planner").is_dir():
        sys.path.append(str(checkout))
    missing = next((name for name in ("provision", "msgspec") if importlib.util.find_spec(name) is None), None)
    if missing:
        raise AnsibleActionFail(f"python package {missing} is missing; " + _HINT.format(python=sys.executable))


def failure(error: Exception) -> dict[str, Any]:
    """Return an error of `provision` as the result of an action, with its hint."""
    hint = getattr(error, "hint", "")
    return {"failed": True, "msg": f"{error}{f' ({hint})' if hint else ''}"}
