"""Asks the node daemon's program how GPUs are divided by MIG, and has them divided as the node's layout says.

The program opens NVML itself, within a time limit, and decides who is in the way. What a layout says belongs to it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.daemon.program import LAUNCHER
from ansible_collections.grapnel.node.plugins.module_utils.kernel.modprobe import loaded_version
from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished, Host

_SHOW_TIMEOUT_S = 60.0
_SLACK_S = 30.0  # the program ends its own waiting before we end it
_DONE = 0
_USAGE = 2
_NOT_AS_WANTED = 3
_LONGEST = 2000
_PCI_ID = re.compile(r"(?:0x)?([0-9a-f]{8})", re.IGNORECASE)


class MigError(Exception):
    """GPUs are not divided as declared; the message says which, why and what to do."""


def read_mig(host: Host) -> dict[str, Any] | None:
    """Return the facts ``mig``; None where there is no program that could tell, or no driver that could be asked."""
    if not host.path(LAUNCHER).exists() or loaded_version(host, "nvidia") is None:
        return None
    done = host.run([LAUNCHER, "mig", "show", "--json"], _SHOW_TIMEOUT_S)
    if done.return_code == _USAGE:
        return None  # an older daemon
    try:
        if done.return_code:
            return {"error": done.complaints}
        return {"gpus": [_gpu(gpu) for gpu in json.loads(done.stdout)["gpus"]]}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {"error": "the answer of `grapnel-node mig show --json` cannot be read"}


def _gpu(told: dict[str, Any]) -> dict[str, Any]:
    devices: dict[str, int] = {}
    for instance in told.get("instances") or []:
        for slices in instance["compute"]:
            name = _device(instance["profile"], slices)
            devices[name] = devices.get(name, 0) + 1
    return {
        "index": told["index"],
        "uuid": told["uuid"],
        "device_id": _pci_id(told.get("pciDeviceId")),
        "subsystem_id": _pci_id(told.get("pciSubsystemId")),
        "enabled": told["migEnabled"],
        "devices": devices,
    }


def _device(profile: str, slices: int) -> str:
    """Return the name of a MIG device that has some of the compute slices of its instance."""
    return profile if profile.startswith(f"{slices}g.") else f"{slices}c.{profile}"


def _pci_id(told: object) -> str:
    match = _PCI_ID.fullmatch(told) if isinstance(told, str) else None
    return match.group(1).lower() if match else ""


@dataclass(frozen=True)
class Division:
    """What was done, and what was noticed meanwhile that keeps nobody from using the GPUs; one line each."""

    steps: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def divide(host: Host, verb: str, timeout_s: float) -> Division:
    """Have the GPUs divided (``apply``), or say what would be done (``plan``); raises `MigError`."""
    if not host.path(LAUNCHER).exists():
        if verb == "plan":  # check mode: it would be installed first
            return Division()
        raise MigError(f"this node has no grapnel-node ({LAUNCHER}), which divides GPUs: site.yml installs it")
    done = host.run([LAUNCHER, "mig", verb, "--json", "--timeout", f"{timeout_s:g}"], timeout_s + _SLACK_S)
    if done.return_code == _USAGE:
        raise MigError(f"the grapnel-node of this node is too old for MIG layouts ({done.complaint}): update it first")
    answer = _parse(done)
    if done.return_code == _DONE or (verb == "plan" and done.return_code == _NOT_AS_WANTED):
        return Division(list(_steps(answer)), list(_notes(answer)))
    reasons = "; ".join(_reasons(answer)) or done.complaints
    raise MigError(f"the GPUs are not divided as declared: {printable(reasons, _LONGEST)}")


def _parse(done: Finished) -> dict[str, Any]:
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _steps(answer: dict[str, Any]) -> Iterator[str]:
    """Yield what was done, or for a plan what would be."""
    for one in _mappings(answer.get("changed")):
        yield printable(f"{one.get('uuid')}: {one.get('step')}", _LONGEST)
    if "changed" not in answer:
        for gpu in _mappings(answer.get("gpus")):
            for step in gpu.get("steps") or []:
                yield printable(f"{gpu.get('uuid')}: {step}", _LONGEST)


def _notes(answer: dict[str, Any]) -> Iterator[str]:
    notes = answer.get("notes")
    for note in notes if isinstance(notes, list) else []:
        yield printable(str(note), _LONGEST)


def _reasons(answer: dict[str, Any]) -> Iterator[str]:
    """Yield why GPUs are not as declared, with what helps."""
    waiting = answer.get("waiting")
    hints = {gpu.get("uuid"): gpu.get("hint") for gpu in _mappings(answer.get("gpus"))}
    for uuid, reason in waiting.items() if isinstance(waiting, dict) else ():
        yield f"{uuid}: {reason}{f' ({hints[uuid]})' if hints.get(uuid) else ''}"


def _mappings(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
