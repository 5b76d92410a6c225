"""Stops and starts the driver's own services, which keep it open while they run and are of no use without it.

They are stopped for an exchange of the module and started again. Any other process that has a GPU open is doing work,
and is never stopped here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.machine.units import (
    COUNTING_SERVICES,
    DRIVER_SERVICES,
    forget_starts,
    unit_property,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_QUERY_TIMEOUT_S = 20.0
_CHANGE_TIMEOUT_S = 180.0
_RUNNING = ("active", "activating", "reloading")


def running_services(host: Host) -> list[str]:
    """Return what an exchange of the module restarts and that runs: the driver's own services, and what counts GPUs."""
    return _running(host, (*DRIVER_SERVICES, *COUNTING_SERVICES))


def running_own_services(host: Host) -> list[str]:
    """Return the driver's own services that run: all of whose processes may have a GPU open, and do no work with it."""
    return _running(host, DRIVER_SERVICES)


def _running(host: Host, units: tuple[str, ...]) -> list[str]:
    """Return those that run, by their own names: several may be aliases of one."""
    shown = host.run(["systemctl", "show", "--property", "Id,ActiveState", *units], _QUERY_TIMEOUT_S)
    blocks = (dict(line.split("=", 1) for line in block.splitlines()) for block in shown.stdout.strip().split("\n\n"))
    return sorted({block["Id"] for block in blocks if block.get("ActiveState") in _RUNNING})


def still_there(host: Host, services: Iterable[str]) -> list[str]:
    """Return the services whose unit did not go with the package that brought it."""
    return [unit for unit in services if unit_property(host, unit, "LoadState") != "not-found"]


def stop(host: Host, services: list[str]) -> str:
    """Stop services; returns why that failed, empty when they are stopped."""
    return _tell(host, "stop", services)


def start(host: Host, services: list[str]) -> str:
    """Start services; returns why that failed, empty when they run."""
    if services:
        forget_starts(host, *services)
    return _tell(host, "start", services)


def _tell(host: Host, step: str, services: list[str]) -> str:
    if not services:
        return ""
    done = host.run(["systemctl", step, *services], _CHANGE_TIMEOUT_S)
    return f"systemctl {step} {' '.join(services)}: {done.complaints}" if done.return_code else ""
