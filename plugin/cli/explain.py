"""`grapnel-node explain`: which pod got which devices and why, and what happened to each device."""

from __future__ import annotations

import json
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

from plugin.admin.client import ask
from plugin.config import find_config
from plugin.errors import HistoryError
from plugin.history.ledger import Ledger
from plugin.history.store import read_history
from plugin.history.view import explain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from plugin.config import NodeConfig

_ASK_S = 10.0
_WIDE = 120  # columns, from which on a whole UUID has room
_NO_DAEMON = "the daemon does not run: what follows is how it was when it ended"
_SHORT_ID = 12
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


def explain_node(config_path: Path | None, about: str, *, last: int, as_json: bool) -> int:
    """Print it; the daemon need not run."""
    found = _explanation(find_config(config_path), about, last)
    if as_json:
        print(json.dumps(found, indent=2))
        return 0
    width = shutil.get_terminal_size((_WIDE * 2, 24)).columns
    for line in render_details(found) if about else render_overview(found, width):
        print(line)
    for problem in found["problems"]:
        print(f"note: {problem}", file=sys.stderr)
    return 0


def clock(utc: str | None) -> str:
    """Return a time for a table: the whole second, UTC."""
    return "-" if utc is None else f"{utc[:10]} {utc[11:19]}Z"


class _Names:
    """Devices as people call them: by index where it is known, else by the beginning of the id."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self._indices = {device["id"]: device["index"] for device in found["devices"]}

    def of(self, device: str) -> str:
        index = self._indices.get(device)
        return short_id(device) if index is None else str(index)

    def all(self, devices: Iterable[str]) -> str:
        return ",".join(map(self.of, devices)) or "-"


def short_id(device: str) -> str:
    """Return the beginning of an id, which `explain` understands; what tells a share from others stays."""
    head, mark, share = device.partition("::")
    return head[:_SHORT_ID] + mark + share


def render_overview(found: Mapping[str, Any], width: int) -> list[str]:
    """Return the last allocations and all devices as two tables."""
    names = _Names(found)
    lines = _release_lines(found)
    allocations = [_allocation_row(one, names) for one in found["allocations"]]
    lines += _table(("TIME", "POD", "CONTAINER", "GPUS", "CHOICE"), allocations, "no allocation is recorded", width)
    if found["leftOff"]:
        lines.append(f"{found['leftOff']} older ones: --last {len(found['allocations']) + found['leftOff']}")
    lines.append("")
    devices = [_device_row(device, is_wide=width >= _WIDE) for device in found["devices"]]
    return lines + _table(("GPU", "ID", "STATE", "SINCE", "PODS", "REASON"), devices, "no device is known", width)


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


def _device_row(device: Mapping[str, Any], *, is_wide: bool) -> tuple[str, ...]:
    index = "-" if device["index"] is None else str(device["index"])
    name = device["id"] if is_wide else short_id(device["id"])
    return index, name, device["state"], clock(device["since"]), pods_cell(device["pods"]), device["reason"]


def pods_cell(pods: Sequence[Mapping[str, Any]]) -> str:
    """Return who has a device, each pod once."""
    return ",".join(dict.fromkeys(f"{pod['namespace']}/{pod['pod']}" for pod in pods)) or "-"


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]], nothing: str, width: int) -> list[str]:
    return fit_table([header, *rows], width) if rows else [nothing]


def fit_table(rows: Sequence[tuple[str, ...]], width: int) -> list[str]:
    """Return the lines of a table; what the last column has too much for the width goes on below it."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    start = sum(widths) + 2 * len(widths)
    lines = []
    for row in rows:
        head = "".join(f"{cell:{size}}  " for cell, size in zip(row, widths))  # noqa: B905 - strict= needs Python 3.10
        first, *more = _wrap(row[-1], max(20, width - start))
        lines.append((head + first).rstrip())
        lines += [" " * start + line for line in more]
    return lines


def _wrap(text: str, width: int) -> list[str]:
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]


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
    reason = f": {device['reason']}" if device["reason"] else ""
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
    lines = [f"{clock(one['time'])}  {one['resource']}  GPUs {devices}"]
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
