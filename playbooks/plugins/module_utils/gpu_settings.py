"""Has the node daemon's program set the GPUs as the node's file says, and give back what is declared no more.

The program opens NVML itself, within a time limit, and knows what each GPU can be set to.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.modprobe import loaded_version
from ansible_collections.grapnel.node.plugins.module_utils.node_daemon import LAUNCHER
from ansible_collections.grapnel.node.plugins.module_utils.printable import printable

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.host import Finished, Host

_SLACK_S = 30.0  # the program ends its own waiting before we end it
_DONE = 0
_USAGE = 2
_LONGEST = 2000


class GpuSettingsError(Exception):
    """GPUs are not set as declared; the message says which, why and what to do."""


def set_gpus(host: Host, timeout_s: float) -> list[str]:
    """Have the GPUs set; returns what was changed, one line each, and raises `GpuSettingsError`.

    Without a loaded driver there is nothing to set: the daemon's unit does it when there is.
    """
    if loaded_version(host, "nvidia") is None:
        return []
    done = host.run([LAUNCHER, "gpu-settings", "apply", "--json", "--timeout", f"{timeout_s:g}"], timeout_s + _SLACK_S)
    if done.return_code == _USAGE:
        raise GpuSettingsError(
            f"the grapnel-node of this node is too old for settings of GPUs ({done.complaint}): update it first"
        )
    answer = _parse(done)
    if done.return_code == _DONE:
        return [
            printable(f"{one.get('uuid')}: {one.get('step')}", _LONGEST) for one in _mappings(answer.get("changed"))
        ]
    problems = answer.get("problems")
    reasons = "; ".join(map(str, problems)) if isinstance(problems, list) else ""
    raise GpuSettingsError(f"the GPUs are not set as declared: {printable(reasons or done.complaints, _LONGEST)}")


def _parse(done: Finished) -> dict[str, Any]:
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _mappings(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
