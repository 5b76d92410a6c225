"""Tells systemd what the daemon is doing (sd_notify(3)). Not here: anything else of systemd."""

from __future__ import annotations

import os
import socket


def notify(message: str, address: str | None = None) -> None:
    """Send a message such as `READY=1` to the service manager; does nothing without one."""
    target = os.environ.get("NOTIFY_SOCKET", "") if address is None else address
    if not target:
        return
    if target.startswith("@"):
        target = "\0" + target[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as datagram:
        try:
            datagram.sendto(message.encode(), target)
        except OSError:
            return  # a service manager that has gone is not a reason to stop serving GPUs
