"""Asks the node daemon's program what GPUs are set to, and has it set them as the node's file says.

The program opens NVML itself, within a time limit, and knows what each GPU can be set to.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.daemon.program import LAUNCHER
from ansible_collections.grapnel.node.plugins.module_utils.kernel.modprobe import loaded_version
from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished, Host

_FILE = "/etc/grapnel/gpu-settings.json"
_RECORD = "/var/lib/grapnel/node/gpu-settings.json"
_PLAN_TIMEOUT_S = 60.0
_SLACK_S = 30.0  # the program ends its own waiting before we end it
_DONE = 0
_USAGE = 2
_LONGEST = 2000


class GpuSettingsError(Exception):
    """GPUs are not set as declared; the message says which, why and what to do."""


def read_gpu_settings(host: Host) -> dict[str, Any] | None:
    """Return the facts ``gpu_settings``; None without a file, a driver, or a program that could tell."""
    if not (host.path(_FILE).exists() and host.path(LAUNCHER).exists()) or loaded_version(host, "nvidia") is None:
        return None
    done = host.run([LAUNCHER, "gpu-settings", "plan", "--json"], _PLAN_TIMEOUT_S + _SLACK_S)
    if done.return_code == _USAGE:
        return None  # an older daemon
    answer = _parse(done)
    if "gpus" not in answer:
        return {"error": done.complaints}
    try:
        return _differences(answer)
    except (AttributeError, KeyError, TypeError):
        return {"error": "the answer of `grapnel-node gpu-settings plan --json` cannot be read"}


def _differences(answer: dict[str, Any]) -> dict[str, list[str]]:
    changes, refusals = [], [f"there is no GPU {index}" for index in answer["missing"]]
    for gpu in answer["gpus"]:
        name = f"GPU {gpu['index']}"
        changes += [f"{name}: {each}" for each in gpu["changes"]]
        refusals += [f"{name}: {key}: {why}" for key, why in gpu["refusals"].items()]
        refusals += [f"{name} does not answer: {gpu['problem']}"] if gpu["problem"] else []
    return {"changes": changes, "refusals": refusals}


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


def are_set(host: Host) -> bool:
    """Tell whether grapnel has set GPUs, and a driver is loaded that may know of it."""
    remembered = host.path(_RECORD).exists() and host.path(LAUNCHER).exists()
    return remembered and loaded_version(host, "nvidia") is not None


def give_back(host: Host) -> None:
    """Have the GPUs given their former settings, once the file is gone.

    A GPU that cannot be asked keeps its settings until the driver is loaded again, which nobody has to wait for.
    """
    if are_set(host):
        host.run([LAUNCHER, "gpu-settings", "apply", "--json"], _PLAN_TIMEOUT_S + _SLACK_S)


def _parse(done: Finished) -> dict[str, Any]:
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _mappings(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
