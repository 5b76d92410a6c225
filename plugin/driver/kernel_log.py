"""XID errors in the kernel's log: what the driver said while no session with it was open. Needs root.

Records are read from /dev/kmsg (Documentation/ABI/testing/dev-kmsg), one a read: `level,sequence,time,flags;text`.
Not here: what an error means for a GPU.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

KMSG = Path("/dev/kmsg")
_DEVICE = os.makedev(1, 11)
_RECORD_BYTES = 8192
_MAX_RECORDS = 100_000  # a kernel that writes faster than we read does not keep us
_TIME = 2  # which of the fields
_LOADED = "NVRM: loading NVIDIA UNIX"
_ADDRESS = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}"
_XID = re.compile(
    rf"NVRM: Xid \((?:PCI:)?({_ADDRESS})(?:\.[0-7])?(?: [^)]*)?\): ([0-9]{{1,5}})"
)  # of a MIG device: GPU-I:05


@dataclass(frozen=True)
class Record:
    """A line of the kernel, `at_s` seconds after it started (CLOCK_MONOTONIC, nearly)."""

    at_s: float
    text: str


@dataclass(frozen=True)
class LoggedXid:
    """An XID error of the GPU at a PCI address, as sysfs writes one."""

    pci_address: str
    xid: int


def read_records(path: Path = KMSG) -> tuple[Record, ...]:
    """Return what the kernel still has in its log, oldest first; raises OSError, also where this is no kernel's log."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        is_log = stat.S_ISREG(status.st_mode) or (stat.S_ISCHR(status.st_mode) and status.st_rdev == _DEVICE)
        if not is_log:
            raise OSError(0, "is not the log of a kernel")
        if stat.S_ISREG(status.st_mode):
            content = os.read(descriptor, _RECORD_BYTES * 1024)
            return tuple(_parsed(content.splitlines()))
        return tuple(_parsed(_read_device(descriptor)))
    finally:
        os.close(descriptor)


def _read_device(descriptor: int) -> Iterator[bytes]:
    for _ in range(_MAX_RECORDS):
        try:
            record = os.read(descriptor, _RECORD_BYTES)
        except BlockingIOError:
            return  # that was the last one
        except BrokenPipeError:
            continue  # overwritten before it was read
        if not record:
            return
        yield record


def _parsed(records: Iterable[bytes]) -> Iterator[Record]:
    for record in records:
        head, found, text = record.decode("utf-8", "replace").partition(";")
        fields = head.split(",")
        if found and len(fields) > _TIME and fields[_TIME].isascii() and fields[_TIME].isdecimal():
            yield Record(int(fields[_TIME]) / 1e6, text.split("\n", 1)[0])


def xids_since(records: Iterable[Record], since_s: float | None) -> tuple[LoggedXid, ...] | None:
    """Return the XID errors after a moment and after the last load of the driver, each once.

    None where neither is known: what is new cannot be told then.
    """
    found: dict[LoggedXid, None] = {}
    is_told = since_s is not None
    for record in records:
        if _LOADED in record.text:
            found.clear()
            is_told = True
        match = _XID.search(record.text)
        if match and (since_s is None or record.at_s >= since_s):
            domain, _, rest = match.group(1).partition(":")
            found[LoggedXid(f"{int(domain, 16):04x}:{rest.lower()}.0", int(match.group(2)))] = None
    return tuple(found) if is_told else None
