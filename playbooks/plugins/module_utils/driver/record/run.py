"""Keeps what became of the last run, for whoever asks later: the controller may be gone when it ends."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.driver.record.durable import write_durably
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import RUN, current_change, has_origin

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

SCHEMA = "grapnel.dev/driver-run/v1alpha1"
UNIT = "grapnel-driver.service"
RUNNING, FINISHED, FAILED, RETURNED, QUARANTINED = "running", "done", "failed", "returned", "quarantined"
NEEDS_REBOOT = "needs-reboot"
FORWARD, BACKWARD = "forward", "back"
_SINCE_REBOOTS = frozenset({"reboot", "asked_in", "reboots"})
BOOT_ID = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True)
class RunRecord:
    """One run. ``direction`` is ``back`` from the moment in which a swap has failed and the way back has begun.

    ``reason`` says why the run did not end in ``done``; after ``done`` it is a warning. ``change`` is empty where
    nothing was staged, as for the removal of a driver. ``boot`` is the kernel's boot_id: times of the monotonic clock
    can be compared within one boot.

    In the state ``needs-reboot``, ``reboot`` says why the run cannot go on without one, and ``asked_in`` in which boot
    that was found. ``reboots`` counts those that the run has had in its direction.
    """

    run: str
    change: str
    verb: str
    unit: str
    state: str = RUNNING
    direction: str = FORWARD
    step: str = ""
    reason: str = ""
    out_of_service_s: float | None = None
    changed: bool = False
    boot: str = ""
    reboot: str = ""
    asked_in: str = ""
    reboots: int = 0

    @property
    def is_open(self) -> bool:
        """Whether the run has not ended: it goes on now, was cut short, or goes on after a reboot."""
        return self.state in (RUNNING, NEEDS_REBOOT)


def is_reboot_due(host: Host, record: RunRecord) -> bool:
    """Tell whether a run waits for a reboot that has not happened yet."""
    return record.state == NEEDS_REBOOT and record.asked_in == boot_id(host)


def boot_id(host: Host) -> str:
    """Return the name of this boot: the kernel makes another one for each."""
    return host.read_text(BOOT_ID) or ""


def write_run(host: Host, record: RunRecord) -> None:
    """Write the record; raises OSError."""
    write_durably(host.path(RUN), json.dumps({"schema": SCHEMA, **asdict(record)}, indent=1).encode())


def read_run(host: Host) -> RunRecord | None:
    """Return the record of the last run, None when there was none or it cannot be read.

    What an older program did not write has the value that it had then.
    """
    try:
        found: dict[str, Any] = json.loads(host.read_text(RUN) or "")
        if found.get("schema") != SCHEMA:
            return None
        names = [each.name for each in fields(RunRecord) if each.name in found or each.name not in _SINCE_REBOOTS]
        return RunRecord(**{name: found[name] for name in names})
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def is_managed(host: Host) -> bool:
    """Tell whether the node has a driver of grapnel's, or may have half of one."""
    run = read_run(host)
    return has_origin(host) or (run is not None and (run.is_open or run.state == QUARANTINED))


def is_going_back(record: RunRecord | None) -> bool:
    """Tell whether a run was cut short on its way back."""
    return record is not None and record.is_open and record.direction == BACKWARD


def change_to_undo(host: Host) -> str | None:
    """Return the change that `back` leads away from: one that did not come to its end, else the current one."""
    run = read_run(host)
    if run is not None and run.change and run.verb in ("swap", "back") and (run.is_open or run.state == QUARANTINED):
        return run.change
    return current_change(host)
