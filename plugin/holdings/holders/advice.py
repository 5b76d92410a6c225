"""What to do about a process that holds a GPU, in words that can be pasted where there is a command for it. Pure."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plugin.holdings.holders.scan import Holder

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
