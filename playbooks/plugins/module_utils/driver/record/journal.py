"""Writes down what a run does: a line per event, on the disk before the step that it announces begins."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.driver.record.durable import sync_folder
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import JOURNALS
from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host

BEGIN, DONE, FAILED, SKIPPED = "begin", "done", "failed", "skipped"
_MAX_DETAIL = 2000
_MAX_BYTES = 4 * 1024 * 1024
_KEPT = 50  # journals of past runs

Event = dict[str, Any]


class Journal:
    """The journal of one run; a run that continues one that was cut short goes on in the same file."""

    def __init__(self, host: Host, run: str, clock: Clock) -> None:
        self._place = host.path(f"{JOURNALS}/{run}.jsonl")
        self._clock = clock
        self._is_new = not self._place.exists()

    def write(self, step: str, state: str, detail: str = "") -> None:
        """Append an event and bring it to the disk; raises OSError."""
        event: Event = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock.now())),
            "monotonic_s": round(self._clock.monotonic(), 3),
            "step": step,
            "state": state,
        }
        if detail:
            event["detail"] = printable(detail, _MAX_DETAIL)
        line = json.dumps(event, ensure_ascii=False).encode() + b"\n"
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._place, flags, 0o600)
        try:
            os.write(descriptor, b"\n" + line if _is_cut_short(descriptor) else line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if self._is_new:
            sync_folder(self._place.parent)
            self._is_new = False


def _is_cut_short(descriptor: int) -> bool:
    """Tell whether a power cut left half a line at the end."""
    end = os.fstat(descriptor).st_size
    return end > 0 and os.pread(descriptor, 1, end - 1) != b"\n"


def read_journal(host: Host, run: str) -> list[Event]:
    """Return the events of a run; a line that was cut short is left out."""
    text = host.read_text(f"{JOURNALS}/{run}.jsonl", _MAX_BYTES) or ""
    return [event for line in text.splitlines() if (event := _parse(line)) is not None]


def _parse(line: str) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and {"step", "state", "monotonic_s"} <= event.keys() else None


def remove_old_journals(host: Host) -> None:
    """Remove the journals of long past runs: their names begin with the time."""
    for name in host.names(JOURNALS)[:-_KEPT]:
        host.path(f"{JOURNALS}/{name}").unlink(missing_ok=True)
