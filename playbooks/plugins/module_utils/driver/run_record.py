"""Keeps what became of the last run, for whoever asks later: the controller may be gone when it ends."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.driver.durable import write_durably
from ansible_collections.grapnel.node.plugins.module_utils.driver.store import RUN, current_change

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.host import Host

SCHEMA = "grapnel.dev/driver-run/v1alpha1"
RUNNING, FINISHED, FAILED, RETURNED, QUARANTINED = "running", "done", "failed", "returned", "quarantined"
FORWARD, BACKWARD = "forward", "back"


@dataclass(frozen=True)
class RunRecord:
    """One run. ``direction`` is ``back`` from the moment in which a swap has failed and the way back has begun.

    ``reason`` says why the run did not end in ``done``; after ``done`` it is a warning. ``change`` is empty where
    nothing was staged, as for the removal of a driver. ``boot`` is the kernel's boot_id: times of the monotonic clock
    can be compared within one boot.
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

    @property
    def is_open(self) -> bool:
        """Whether the run has not ended: it goes on now, or was cut short."""
        return self.state == RUNNING


def write_run(host: Host, record: RunRecord) -> None:
    """Write the record; raises OSError."""
    write_durably(host.path(RUN), json.dumps({"schema": SCHEMA, **asdict(record)}, indent=1).encode())


def read_run(host: Host) -> RunRecord | None:
    """Return the record of the last run, None when there was none or it cannot be read."""
    try:
        found: dict[str, Any] = json.loads(host.read_text(RUN) or "")
        if found.get("schema") != SCHEMA:
            return None
        return RunRecord(**{field.name: found[field.name] for field in fields(RunRecord)})
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def is_going_back(record: RunRecord | None) -> bool:
    """Tell whether a run was cut short on its way back."""
    return record is not None and record.is_open and record.direction == BACKWARD


def change_to_undo(host: Host) -> str | None:
    """Return the change that `back` leads away from: one that did not come to its end, else the current one."""
    run = read_run(host)
    if run is not None and run.change and run.verb in ("swap", "back") and run.state in (RUNNING, QUARANTINED):
        return run.change
    return current_change(host)
