"""`grapnel-node holders`: who holds a GPU now. Changes nothing; `release` lists them in the same way."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.bounded import call_within
from plugin.config import find_config
from plugin.holder_advice import advise
from plugin.holders import Holder, list_holders, read_dri_nodes, read_pod_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugin.holders import Listing

PROC = Path("/proc")
_POD_LOGS = Path("/var/log/pods")
_LISTING_S = 15.0  # milliseconds, but for a process whose memory map is locked by a call that hangs


def list_now(sys_root: Path, proc: Path = PROC) -> Listing:
    """Return all holders but this process; raises NoAnswer where the files of a process cannot be read in time."""
    dri_nodes, pods = read_dri_nodes(sys_root), read_pod_names(_POD_LOGS)
    look = partial(list_holders, proc, os.getpid(), dri_nodes=dri_nodes, pods=pods)
    return call_within(_LISTING_S, look, "the processes' files in /proc")


def problems_of(listing: Listing) -> list[str]:
    """Return what the listing may lack."""
    return [f"process {pid} cannot be looked into: it may hold a GPU" for pid in listing.hidden]


def to_json(holders: Sequence[Holder]) -> list[dict[str, object]]:
    """Return holders with what to do about each."""
    return [{**asdict(holder), "advice": advise(holder)} for holder in holders]


def lines_of(holders: Sequence[Holder], problems: Sequence[str]) -> list[str]:
    """Return the same for people."""
    return [*map(_holder_line, holders), *(f"note: {problem}" for problem in problems)]


def _holder_line(holder: Holder) -> str:
    places = (
        f"pod {holder.pod_name or holder.pod_uid}" if holder.pod_uid else "",
        f"container {holder.container_id[:12]}" if holder.container_id else "",
        holder.unit or "",
    )
    where = next((place for place in places if place), "no unit")
    return f"  {holder.pid:>7}  {holder.command:16}  {where}  {' '.join(holder.devices)}\n{'':11}{advise(holder)}"


def show_holders(config_path: Path | None, *, as_json: bool, proc: Path = PROC) -> int:
    """Print who holds a GPU, the daemon included while it is in service; returns 0."""
    listing = list_now(find_config(config_path).sys_root, proc)
    problems = problems_of(listing)
    if as_json:
        print(json.dumps({"holders": to_json(listing.holders), "problems": problems}, indent=2))
    else:
        print("\n".join(lines_of(listing.holders, problems)) or "nobody holds a GPU")
    return 0
