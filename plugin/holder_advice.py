"""What to do about a process that holds a GPU, in words that can be pasted where there is a command for it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plugin.holders import Holder

_DAEMON_UNIT = "grapnel-node.service"
# What else runs in them is worth more than the holder: nobody is to stop ssh on a node far away.
_SHARED = (
    *("ssh", "sshd", "containerd", "crio", "docker", "podman", "kubelet", "cron", "crond", "dbus"),
    *("systemd-logind", "user"),
)
# By command: /proc/PID/comm, which the kernel cuts after 15 characters.
_COMMANDS = {
    "nvidia-cuda-mps": "echo quit | nvidia-cuda-mps-control",
    "nvidia-persiste": "systemctl stop nvidia-persistenced",
    "nv-fabricmanage": "systemctl stop nvidia-fabricmanager",
    "nv-hostengine": "systemctl stop nvidia-dcgm",
    **dict.fromkeys(
        ("Xorg", "Xwayland", "gnome-shell", "kwin_wayland", "sddm", "gdm3", "gdm-x-session", "lightdm"),
        "systemctl isolate multi-user.target: the display comes back with graphical.target",
    ),
}


def advise(holder: Holder) -> str:
    """Return what ends the holding without losing more than this process. A pod first: whatever runs in it, is its."""
    if holder.pod_name:
        namespace, _, name = holder.pod_name.partition("/")
        return (
            f"kubectl drain moves it; kubectl delete pod -n {namespace} {name} ends it, "
            "but keep a DaemonSet off this node first, or it comes back"
        )
    if holder.pod_uid:
        return f"kubectl get pods -A -o wide, and look for uid {holder.pod_uid}"
    if holder.unit == _DAEMON_UNIT:
        return "systemctl restart grapnel-node: a released daemon never asks the driver"
    if holder.command in _COMMANDS:
        return _COMMANDS[holder.command]
    return _by_place(holder)


def _by_place(holder: Holder) -> str:
    unit = holder.unit or ""
    if holder.container_id:
        engine = "podman" if unit.startswith("libpod-") else "docker"
        return f"{engine} stop {holder.container_id[:12]}"
    if unit.startswith("session-") and unit.endswith(".scope"):
        return f"somebody's login session: ask them, or loginctl terminate-session {unit[8:-6]}"
    is_shared = unit.startswith(tuple(f"{name}{end}" for name in _SHARED for end in (".service", "@")))
    if unit.endswith((".service", ".scope")) and not is_shared:
        return f"systemctl stop {unit}"
    return f"kill {holder.pid}"
