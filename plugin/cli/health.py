"""`grapnel-node health show|set|clear`: look at the health of the GPUs, and decide it by hand."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from plugin.admin.client import ask
from plugin.base.errors import AdminError, HealthError
from plugin.changes.driver_change.release.record import utc
from plugin.changes.driver_change.release.store import sole_change
from plugin.devices.health.judgement import why_unhealthy
from plugin.devices.health.model import NEEDS, GpuHealth, NodeHealth, Verdict
from plugin.devices.health.record import MAX_REASON, finding_to_json, verdict_to_json
from plugin.devices.health.store import read_health, read_verdicts, write_verdicts
from plugin.driver.uuid import is_gpu_uuid
from plugin.settings.node_config import find_config

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path
    from types import SimpleNamespace

    from plugin.settings.node_config import NodeConfig

_STATUS_S = 5.0
_FOLLOW_S = 20.0
_LOCK_S = 30.0


def run(arguments: argparse.Namespace | SimpleNamespace) -> int:
    """Run the verb and return the exit code."""
    if arguments.act == "show":
        return show_health(arguments.config, as_json=arguments.json)
    if arguments.act == "clear":
        return clear_verdict(arguments.config, arguments.gpu)
    is_healthy = arguments.verdict == "healthy"
    return set_verdict(arguments.config, arguments.gpu, is_healthy=is_healthy, reason=arguments.reason)


def read_state(folder: Path) -> NodeHealth:
    """Return what the daemon remembers, under the current verdicts; raises HealthError."""
    state, verdicts = read_health(folder), read_verdicts(folder)
    return NodeHealth(
        {
            uuid: _under_verdict(state.gpus.get(uuid, GpuHealth()), verdicts.get(uuid))
            for uuid in sorted({*state.gpus, *verdicts})
        }
    )


def _under_verdict(gpu: GpuHealth, verdict: Verdict | None) -> GpuHealth:
    return GpuHealth(gpu.findings, verdict, gpu.resets)


def gpu_to_json(gpu: GpuHealth) -> dict[str, object]:
    """Return the health of one GPU as the verbs show it."""
    return {
        "unhealthy": why_unhealthy(gpu),
        "verdict": None if gpu.verdict is None else verdict_to_json(gpu.verdict),
        "findings": [
            {key: value for key, value in finding_to_json(finding).items() if key in _SHOWN}
            | {"needs": NEEDS[finding.kind]}
            for finding in gpu.findings
        ],
    }


_SHOWN = {"cause", "class", "detail", "since"}


def show_health(config_path: Path | None, *, as_json: bool) -> int:
    """Print what is open against each GPU; the daemon need not run."""
    state = read_state(find_config(config_path).state_folder)
    if as_json:
        print(json.dumps({"gpus": {uuid: gpu_to_json(gpu) for uuid, gpu in state.gpus.items()}}, indent=2))
        return 0
    for uuid, gpu in state.gpus.items():
        print(f"{uuid}  {_word(gpu)}")
        if gpu.verdict is not None:
            print(f"  by hand since {gpu.verdict.since}: {gpu.verdict.reason}")
        for finding in gpu.findings:
            print(f"  {finding.cause}: {finding.detail} (since {finding.since}); needs {NEEDS[finding.kind]}")
    return 0


def _word(gpu: GpuHealth) -> str:
    return "unhealthy" if why_unhealthy(gpu) else "healthy"


def set_verdict(config_path: Path | None, gpu: str, *, is_healthy: bool, reason: str) -> int:
    """Decide by hand; the verdict stands over restarts and reboots until it is cleared."""
    if not reason.strip() or len(reason) > MAX_REASON or not reason.isprintable():
        raise HealthError(f"the reason must be one line of 1 to {MAX_REASON} characters", "say why in a few words")
    config = find_config(config_path)
    uuid = _find_gpu(config, gpu)
    verdict = Verdict(is_healthy, reason.strip(), utc(time.time()))
    _change(config, lambda verdicts: {**verdicts, uuid: verdict})
    print(f"{uuid} is {'healthy' if is_healthy else 'unhealthy'} by hand: {verdict.reason}")
    return 0


def clear_verdict(config_path: Path | None, gpu: str) -> int:
    """Forget what was decided by hand; done as well when there was nothing."""
    config = find_config(config_path)
    uuid = _find_gpu(config, gpu)
    _change(config, lambda verdicts: {each: verdict for each, verdict in verdicts.items() if each != uuid})
    print(f"{uuid}: no verdict by hand, evidence counts")
    return 0


def _change(config: NodeConfig, change: Callable[[dict[str, Verdict]], dict[str, Verdict]]) -> None:
    folder = config.state_folder
    with sole_change(folder, _LOCK_S):
        write_verdicts(folder, change(read_verdicts(folder)))
    try:
        answer = ask(config.admin_socket, {"verb": "health", "timeout_s": _FOLLOW_S}, _FOLLOW_S + _STATUS_S)
    except AdminError as error:
        raise AdminError(
            error.message, f"the verdict is remembered, and the daemon follows when it can; {error.hint}"
        ) from error
    problems = ["the daemon does not run: the verdict counts when it starts"] if answer is None else answer["problems"]
    for problem in problems:
        print(f"note: {problem}")


def _find_gpu(config: NodeConfig, gpu: str) -> str:
    """Return the UUID that is meant; an index is what the running daemon knows of it."""
    if is_gpu_uuid(gpu):
        return gpu
    if not gpu.isdecimal():
        hint = "MIG devices have the health of their GPU; UUIDs are in: grapnel-node devices"
        raise HealthError(f"{gpu[:64]!a} is neither the uuid of a gpu nor its index", hint)
    status = ask(config.admin_socket, {"verb": "status"}, _STATUS_S)
    if status is None:
        raise HealthError(f"gpu {gpu[:64]}: the daemon does not run", "name the gpu by its uuid")
    found = [str(each["uuid"]) for each in status["gpus"] if each["index"] == int(gpu[:8])]
    if not found:
        raise HealthError(f"gpu {gpu[:64]}: the daemon knows no such index", "see: grapnel-node devices")
    return found[0]
