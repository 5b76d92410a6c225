"""`grapnel-node holders`: who holds a GPU now. Changes nothing; `release` lists them in the same way."""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.base.errors import NoAnswer
from plugin.holdings.holders.cgroup import Place
from plugin.holdings.holders.pod_names import PodNames
from plugin.holdings.holders.scan import Holder, list_holders, read_dri_nodes
from plugin.settings.node_config import find_config
from plugin.system.bounded import call_within

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from types import SimpleNamespace

    from plugin.holdings.holders.scan import Listing
    from plugin.kubelet.pod_resources.attribution import PodContainer

PROC = Path("/proc")
LOGS = Path("/var/log")
_LISTING_S = 15.0  # milliseconds, but for a process whose memory map is locked by a call that hangs


def run(arguments: argparse.Namespace | SimpleNamespace) -> int:
    """Run the verb and return the exit code."""
    return show_holders(arguments.config, as_json=arguments.json)


def list_now(sys_root: Path, proc: Path = PROC, logs: Path = LOGS) -> Listing:
    """Return all holders but this process; raises NoAnswer where the files of a process cannot be read in time."""
    look = partial(list_holders, proc, os.getpid(), dri_nodes=read_dri_nodes(sys_root))
    listing = call_within(_LISTING_S, look, "the processes' files in /proc")
    return replace(listing, holders=name_pods(listing.holders, logs))


def named_now(sys_root: Path, proc: Path) -> tuple[Holder, ...]:
    """Return holders for their names alone, none where they cannot be read in time."""
    try:
        return list_now(sys_root, proc).holders
    except NoAnswer:
        return ()


def name_pods(holders: Sequence[Holder], logs: Path) -> tuple[Holder, ...]:
    """Return holders with the names of pods and containers, where the kubelet has logs of them below `logs`."""
    places = {holder: Place(holder.unit, holder.pod_uid, holder.container_id) for holder in holders if holder.pod_uid}
    names = PodNames(logs).look_up(places.values())
    return tuple(_named(holder, names.get(places[holder])) if holder in places else holder for holder in holders)


def _named(holder: Holder, name: PodContainer | None) -> Holder:
    if name is None:
        return holder
    return replace(holder, pod_name=f"{name.namespace}/{name.pod}", container_name=name.container or None)


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
        " ".join(filter(None, (f"pod {holder.pod_name or holder.pod_uid}", holder.container_name or "")))
        if holder.pod_uid
        else "",
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


# What systemd.unit(5) lets a name have, without the spaces and shell words that a control group may have.
_UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]{1,240}\.(?:service|scope)")
_SESSION = re.compile(r"session-([A-Za-z0-9]{1,32})\.scope")
_DAEMON_UNIT = "grapnel-node.service"
_MPS_UNIT = re.compile(r"grapnel-mps-GPU-[0-9a-f-]{36}\.service")  # of a GPU that is shared through MPS
# What else runs in them is worth more than the holder: nobody is to stop ssh on a node far away.
_SHARED = (
    *("ssh", "sshd", "containerd", "crio", "docker", "podman", "kubelet", "cron", "crond", "dbus"),
    *("systemd-logind", "user"),
)
_DISPLAYS = ("Xorg", "Xwayland", "gnome-shell", "kwin_wayland", "sddm", "gdm3", "gdm-x-session", "lightdm")
# By command: /proc/PID/comm, which the kernel cuts after 15 characters, and which every process may set. So of those
# that users started themselves it says nothing.
_COMMANDS = {
    "nvidia-cuda-mps": "echo quit | nvidia-cuda-mps-control",
    "nvidia-persiste": "systemctl stop nvidia-persistenced",
    "nv-fabricmanage": "systemctl stop nvidia-fabricmanager",
    "nv-hostengine": "systemctl stop nvidia-dcgm",
    **dict.fromkeys(_DISPLAYS, "systemctl isolate multi-user.target: the display comes back with graphical.target"),
}


def advise(holder: Holder) -> str:
    """Return what ends the holding without losing more than this process. A pod first: whatever runs in it, is its."""
    if holder.pod_name:
        namespace, _, name = holder.pod_name.partition("/")
        return (
            f"kubectl delete pod -n {shlex.quote(namespace)} {shlex.quote(name)} ends it, kubectl drain moves it; "
            "where a DaemonSet runs it, drain leaves it and it comes back: keep that off this node first"
        )
    if holder.pod_uid:
        return f"kubectl get pods -A -o wide, and look for uid {holder.pod_uid}"
    if holder.unit == _DAEMON_UNIT:
        return "systemctl restart grapnel-node: a released daemon never asks the driver"
    if _MPS_UNIT.fullmatch(holder.unit or ""):
        return f"systemctl stop -- {holder.unit} ends it with its clients; grapnel-node does so after the last one"
    if holder.command in _DISPLAYS or (holder.command in _COMMANDS and not _is_users(holder)):
        return _COMMANDS[holder.command]
    return _by_place(holder)


def _is_users(holder: Holder) -> bool:
    """Tell whether a process belongs to a session of somebody's, or to a container, so that its name is theirs."""
    return holder.container_id is not None or (holder.unit or "").startswith(("session-", "user@"))


def _by_place(holder: Holder) -> str:
    unit = holder.unit or ""
    if holder.container_id and not unit.startswith("user@"):  # below that it is somebody's own engine
        engine = "podman" if unit.startswith("libpod-") else "docker"
        return f"{engine} stop {holder.container_id[:12]}"
    session = _SESSION.fullmatch(unit)
    if session:
        return f"somebody's login session: ask them, or loginctl terminate-session {session[1]}"
    is_shared = unit.startswith(("session-", *(f"{name}{end}" for name in _SHARED for end in (".service", "@"))))
    if _UNIT.fullmatch(unit) and not is_shared:
        return f"systemctl stop -- {shlex.quote(unit)}"
    return f"kill {holder.pid}"
