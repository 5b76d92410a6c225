"""XID errors in the kernel's log, in the lines that drivers write."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from plugin.driver.kernel_log import LoggedXid, Record, read_records, xids_since

if TYPE_CHECKING:
    from pathlib import Path

LOAD = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.309.01  Release Build  (dvs-builder@U16)"
BUS = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
FAULT = "NVRM: Xid (PCI:0000:AF:00): 31, pid=4711, name=python3, Ch 00000008, intr 00000000."
OLD = "NVRM: Xid (0000:3b:00): 48, DBE (double bit error)"
MIG = "NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 95, pid=4711, name=python3, Uncontained ECC error"
WIDE = "NVRM: Xid (PCI:00000000:3b:00.0): 95, Uncontained: SBE"


@pytest.mark.parametrize(
    ("lines", "since_s", "expected"),
    [
        pytest.param([LOAD, BUS], None, [("0000:3b:00.0", 79)], id="after the driver was loaded"),
        pytest.param([BUS, LOAD], None, [], id="before the driver was loaded"),
        pytest.param([BUS, LOAD, FAULT, BUS, BUS], None, [("0000:af:00.0", 31), ("0000:3b:00.0", 79)], id="each once"),
        pytest.param([BUS, FAULT], 2.0, [("0000:af:00.0", 31)], id="after the release, the driver was not reloaded"),
        pytest.param([BUS, LOAD, BUS], 2.0, [("0000:3b:00.0", 79)], id="after release and load"),
        pytest.param([OLD, WIDE], 0.0, [("0000:3b:00.0", 48), ("0000:3b:00.0", 95)], id="as other drivers write it"),
        pytest.param([MIG], 0.0, [("0000:3b:00.0", 95)], id="of a MIG device: its GPU's"),
        pytest.param(["usb 1-1: new device", "NVRM: Xid of nothing"], 0.0, [], id="something else"),
        pytest.param([BUS], None, None, id="nobody knows since when"),
    ],
)
def test_errors_are_those_since_the_swap(
    lines: list[str], since_s: float | None, expected: list[tuple[str, int]] | None
) -> None:
    records = [Record(float(number), text) for number, text in enumerate(lines, 1)]
    found = xids_since(records, since_s)
    assert found == (None if expected is None else tuple(LoggedXid(*each) for each in expected))


def test_records_have_a_time_and_a_text(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_bytes(
        f"4,1,5140900,-;{BUS}\n SUBSYSTEM=pci\nno record\n6,2,x,-;y\n6,2,²,;y\n30,3,6000000,-,caller=T1;\xff\n".encode()
    )
    assert read_records(log) == (Record(5.1409, BUS), Record(6.0, "\xff"))


@pytest.mark.parametrize("what", ["fifo", "folder", "nothing"])
def test_what_is_no_log_is_an_error_at_once(tmp_path: Path, what: str) -> None:
    place = tmp_path / "kmsg"
    if what == "fifo":
        os.mkfifo(place)
    elif what == "folder":
        place.mkdir()
    with pytest.raises(OSError, match=r"."):
        read_records(place)


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="the kernel's log of this machine may not be read")
def test_the_log_of_this_machine_is_read_to_its_end() -> None:
    try:
        records = read_records()
    except OSError:
        pytest.skip("/dev/kmsg is not the log of a kernel here")
    assert all(record.at_s >= 0 for record in records)
