"""`grapnel-node explain`: which pod got which devices and why, and what happened to each device."""

from __future__ import annotations

import json
import shutil
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from plugin.admin.client import ask
from plugin.base.errors import HistoryError, NoAnswer
from plugin.cli.holders import LOGS, PROC
from plugin.cli.table import WIDE, WIDEST, clock, fit_table, pods_cell, short_id
from plugin.holdings.history.ledger import Ledger
from plugin.holdings.history.store import read_history
from plugin.holdings.history.view import explain
from plugin.holdings.holders.libraries import without_libraries
from plugin.holdings.holders.processes import ProcessTable
from plugin.kubelet.pod_resources.attribution import PodContainer
from plugin.settings.node_config import find_config
from plugin.system.bounded import call_within

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from types import SimpleNamespace

    from plugin.settings.node_config import NodeConfig

_ASK_S = 10.0
_LOOK_S = 5.0
_NO_DAEMON = "the daemon does not run: what follows is how it was when it ended"
_ALLOCATIONS = ("TIME", "POD", "CONTAINER", "GPUS", "CHOICE")
_DEVICES = ("GPU", "ID", "STATE", "SINCE", "PODS")
_NO_LIBRARIES = (
    "pod {0.namespace}/{0.pod}, container {0.container}: it has the device nodes and none of the driver's libraries, "
    "since no hook has run for it: its pod has to name grapnel's RuntimeClass (kubectl get runtimeclasses)"
)
_HOW = {True: "as preferred", False: "not as preferred", None: "no choice"}


def _explanation(config: NodeConfig, about: str, last: int) -> dict[str, Any]:
    """Return what the daemon says, or the file of one that does not run."""
    answer = ask(config.admin_socket, {"verb": "explain", "about": about, "last": last}, _ASK_S)
    if answer is None:
        ledger = Ledger(time.time())
        ledger.begin_with(read_history(config.state_folder))
        return {**explain(ledger, about, last), "problems": [_NO_DAEMON]}
    if "unknown" in answer:
        raise HistoryError(str(answer["unknown"]), str(answer.get("hint", "")))
    found: dict[str, Any] = answer["explanation"]
    return found


def run(arguments: argparse.Namespace | SimpleNamespace) -> int:
    """Run the verb and return the exit code."""
    return explain_node(arguments.config, arguments.about, last=arguments.last, as_json=arguments.json)


def explain_node(config_path: Path | None, about: str, *, last: int, as_json: bool) -> int:
    """Print it; the daemon need not run."""
    found = _explanation(find_config(config_path), about, last)
    found = {**found, "problems": [*found["problems"], *_missing_libraries(found)]}
    if as_json:
        print(json.dumps(found, indent=2))
        return 0
    width = shutil.get_terminal_size((WIDEST, 24)).columns  # the widest where the output is no terminal
    for line in render_details(found) if about else render_overview(found, width):
        print(line)
    for problem in found["problems"]:
        print(f"note: {problem}", file=sys.stderr)
    return 0


def _missing_libraries(found: Mapping[str, Any], proc: Path = PROC, logs: Path = LOGS) -> list[str]:
    """Return which containers that have GPUs have no libraries for them."""
    wanted = {
        PodContainer(pod["namespace"], pod["pod"], pod["container"]): None
        for one in found["allocations"]
        if len(one["pods"]) == 1 and all(each.startswith(("GPU-", "MIG-")) for each in one["devices"])
        for pod in one["pods"]
        if pod["gone"] is None
    }
    if not wanted or not ProcessTable(proc).has_the_machines_ids():
        return []
    look = partial(without_libraries, proc, logs, tuple(wanted))
    try:
        return [_NO_LIBRARIES.format(each) for each in call_within(_LOOK_S, look, "the processes' files in /proc")]
    except (NoAnswer, OSError):
        return []


class _Names:
    """Devices as people call them: by index where it is known, else by the beginning of the id."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self._indices: Mapping[str, int] = found["indices"]

    def of(self, device: str) -> str:
        index = self._indices.get(device)
        return short_id(device) if index is None else str(index)

    def all(self, devices: Iterable[str]) -> str:
        return ",".join(map(self.of, devices)) or "-"


def render_overview(found: Mapping[str, Any], width: int) -> list[str]:
    """Return the last allocations and all devices as two tables."""
    names = _Names(found)
    lines = _release_lines(found)
    allocations = [_allocation_row(one, names) for one in found["allocations"]]
    lines += (
        fit_table([(row, "") for row in (_ALLOCATIONS, *allocations)], width)
        if allocations
        else ["no allocation is recorded"]
    )
    if found["leftOff"]:
        lines.append(f"{found['leftOff']} older ones: --last {len(found['allocations']) + found['leftOff']}")
    lines.append("")
    devices = [(_device_row(device, is_wide=width >= WIDE), _why(device)) for device in found["devices"]]
    return lines + (fit_table([(_DEVICES, ""), *devices], width) if devices else ["no device is known"])


def _release_lines(found: Mapping[str, Any]) -> list[str]:
    node = found["node"]
    return [f"{node[-1]['reason']}: no GPU is offered", ""] if node and node[-1]["what"] == "released" else []


def _allocation_row(one: Mapping[str, Any], names: _Names) -> tuple[str, ...]:
    pods = one["pods"]
    pod = "ambiguous" if len(pods) > 1 else f"{pods[0]['namespace']}/{pods[0]['pod']}" if pods else "not known"
    if one["refused"]:
        return clock(one["time"]), "-", "-", names.all(one["devices"]), f"refused: {one['refused']}"
    container = pods[0]["container"] if len(pods) == 1 else "-"
    choice = one["preference"]
    score = f", score {choice['candidates'][0]['score']}" if choice and choice["candidates"] else ""
    return clock(one["time"]), pod, container, names.all(one["devices"]), _HOW[one["followed"]] + score


def _why(device: Mapping[str, Any]) -> str:
    return str(device["reason"]) if device["state"] == "unhealthy" else ""


def _device_row(device: Mapping[str, Any], *, is_wide: bool) -> tuple[str, ...]:
    index = "-" if device["index"] is None else str(device["index"])
    name = device["id"] if is_wide else short_id(device["id"])
    return index, name, device["state"], clock(device["since"]), pods_cell(device["pods"])


def render_details(found: Mapping[str, Any]) -> list[str]:
    """Return everything of one pod or device, as a text to read."""
    names = _Names(found)
    lines = _release_lines(found)
    for device in found["devices"]:
        lines += _device_lines(device)
    for one in found["allocations"]:
        lines += ["", *_allocation_lines(one, names)]
    if found["leftOff"]:
        lines += ["", f"{found['leftOff']} older allocations: --last {len(found['allocations']) + found['leftOff']}"]
    return lines


def _device_lines(device: Mapping[str, Any]) -> list[str]:
    index = "" if device["index"] is None else f"GPU {device['index']}  "
    reason = f": {_why(device)}" if _why(device) else ""
    lines = [f"{index}{device['id']}  {device['state']} since {clock(device['since'])}{reason}"]
    if device["pods"]:
        lines.append(f"  given to {pods_cell(device['pods'])}")
    return lines + [f"  {clock(change['time'])}  {_change_words(change)}" for change in device["history"]]


def _change_words(change: Mapping[str, Any]) -> str:
    kind = f" ({change['class']})" if change["class"] else ""
    what = " ".join(filter(None, (change["what"], change["cause"])))
    return f"{what}{kind}" + (f": {change['reason']}" if change["reason"] else "")


def _allocation_lines(one: Mapping[str, Any], names: _Names) -> list[str]:
    devices = names.all(one["devices"])
    what = "GPUs" if all(each.startswith(("GPU-", "MIG-")) for each in one["devices"]) else "devices"
    lines = [f"{clock(one['time'])}  {one['resource']}  {what} {devices}"]
    if one["refused"]:
        lines.append(f"  refused: {one['refused']}")
    for pod in one["pods"]:
        until = f", gone {clock(pod['gone'])}" if pod["gone"] else ""
        lines.append(
            f"  pod {pod['namespace']}/{pod['pod']}, container {pod['container']}: listed {clock(pod['listed'])}{until}"
        )
    if one["podsNote"] and not one["refused"]:
        lines.append(f"  {'pod' if not one['pods'] else 'note:'} {one['podsNote']}")
    return lines + _choice_lines(one, names)


def _choice_lines(one: Mapping[str, Any], names: _Names) -> list[str]:
    choice = one["preference"]
    if choice is None:
        return [f"  {one['preferenceNote']}"] if one["preferenceNote"] else []
    required = f", {names.all(choice['required'])} required" if choice["required"] else ""
    lines = [
        f"  asked for {choice['size']} of {choice['free']} free{required}: preferred {names.all(choice['chosen'])}"
    ]
    considered = f"; {choice['considered']} looked at" if choice["considered"] else ""
    lines.append(f"  because: {choice['reason']}{considered}")
    if choice["cutOff"]:
        lines.append(f"  cut off ({choice['cutOff']}): there may be a better one")
    lines += [f"    {names.all(each['devices'])}: score {each['score']}" for each in choice["candidates"]]
    if choice["candidatesLeftOff"]:
        lines.append(f"    and {choice['candidatesLeftOff']} more")
    if one["followed"] is not None:
        lines.append("  the kubelet followed it" if one["followed"] else "  the kubelet took others: it is only advice")
    return lines
