"""What a node's own records tell of who changed it: lines of real logs, and logs that are cut off, huge or nonsense."""

from __future__ import annotations

import gzip
import os
import time
from typing import TYPE_CHECKING

import msgspec
import pytest
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock
from ansible_collections.grapnel.node.plugins.module_utils.traces import apt, zypper
from ansible_collections.grapnel.node.plugins.module_utils.traces.change import LIMIT_BYTES, PackageChange, seconds
from ansible_collections.grapnel.node.plugins.module_utils.traces.read import read_traces

from provision.declaration.fleet.facts.traces import Traces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.playbooks.fakes import Machine

DPKG_LOG = "/var/log/dpkg.log"
APT_LOG = "/var/log/apt/history.log"
ZYPP_LOG = "/var/log/zypp/history"
DPKG = """\
2026-05-01 06:12:01 startup archives unpack
2026-05-01 06:12:03 upgrade libcuda1:amd64 550.163.01-2 550.1-1
2026-05-01 06:12:03 status half-configured libcuda1:amd64 550.163.01-2
2026-05-01 06:12:03 status unpacked libcuda1:amd64 550.1-1
2026-05-01 06:12:04 upgrade openssl:amd64 3.0.11-1 3.0.15-1
2026-05-01 06:12:05 startup packages configure
2026-05-01 06:12:05 configure libcuda1:amd64 550.1-1 <none>
2026-05-01 06:12:05 status installed libcuda1:amd64 550.1-1
2026-05-02 10:00:00 install nvidia-smi:amd64 <none> 550.163.01-2
2026-05-03 10:00:00 remove nvidia-smi:amd64 550.163.01-2 <none>
"""
APT = """

Start-Date: 2026-04-30  06:12:01
Commandline: /usr/bin/unattended-upgrade
Upgrade: libcuda1:amd64 (550.90-1, 550.163.01-2)
End-Date: 2026-04-30  06:12:20

Start-Date: 2026-05-01  06:12:01
Commandline: apt-get install libcuda1=550.1-1
Requested-By: ada (1000)
Downgrade: libcuda1:amd64 (550.163.01-2, 550.1-1)
End-Date: 2026-05-01  06:12:20
"""
# The first lines are those of libzypp's own documentation.
ZYPP = """\
2008-09-24 11:48:58|rremove|packman
2008-09-24 11:50:02|radd   |packman|http://packman.iu-bremen.de/suse/11.0
# Additional rpm output:
# warning: /var/cache/zypp/packages/packman/x86_64/amarok-1.4.10-100.pm.1.x86_64.rpm: Header V3 DSA signature: NOKEY
2026-05-01 06:12:01|command|root@n17|'zypper' '-n' 'update'|
2026-05-01 06:12:03|install|nvidia-compute-G06|550.1-1|x86_64|root@n17|nvidia|a1b2|
2026-05-01 06:12:04|install|amarok|1.4.10-100.pm.1|x86_64|root@n17|packman|ee0f|
2026-05-01 06:12:05|remove |nvidia-video-G06|550.163.01-1|x86_64|root@n17|
"""


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_apt_names_command_and_user_of_what_dpkg_did(machine: Machine) -> None:
    machine.write(DPKG_LOG, DPKG)
    machine.write(APT_LOG, APT)

    assert apt.read_changes(machine.host) == {
        "libcuda1": PackageChange("upgrade", 1777615923, "550.1-1", "apt-get install libcuda1=550.1-1", "ada (1000)"),
        "nvidia-smi": PackageChange("remove", 1777802400),
    }


def test_logs_that_were_rotated_are_read_and_the_newer_one_counts(machine: Machine) -> None:
    machine.write(f"{DPKG_LOG}.1", DPKG)
    machine.write(DPKG_LOG, "2026-06-01 10:00:00 install nvidia-smi:amd64 <none> 550.1-1\n")
    machine.write(f"{APT_LOG}.1.gz").write_bytes(gzip.compress(APT.encode()))

    found = apt.read_changes(machine.host)

    assert (found["nvidia-smi"].action, found["libcuda1"].user) == ("install", "ada (1000)")


def test_a_transaction_without_an_end_has_what_follows_it(machine: Machine) -> None:
    machine.write(DPKG_LOG, DPKG)
    machine.write(APT_LOG, "Start-Date: 2026-05-01  06:12:01\nCommandline: apt full-upgrade\n")

    assert apt.read_changes(machine.host)["libcuda1"].command == "apt full-upgrade"


def test_zypper_s_history_names_the_command_that_came_before(machine: Machine) -> None:
    machine.write(ZYPP_LOG, ZYPP)

    assert zypper.read_changes(machine.host) == {
        "nvidia-compute-G06": PackageChange("install", 1777615923, "550.1-1", "zypper -n update", "root@n17"),
        "nvidia-video-G06": PackageChange("remove", 1777615925, "", "zypper -n update", "root@n17"),
    }


@pytest.mark.parametrize(
    "log",
    [
        pytest.param("", id="nothing"),
        pytest.param("\x00\xff" * 1000, id="no text"),
        pytest.param("2026-99-99 99:99:99 upgrade libcuda1:amd64 1 2\n", id="a day that never was"),
        pytest.param("2026-05-01 06:12:03 upgrade libcuda1:amd64", id="a line that was cut off"),
        pytest.param("|" * 10_000, id="nothing but columns"),
        pytest.param("2026-99-99|install|nvidia-smi|1|\n", id="columns without a time"),
        pytest.param("Start-Date: soon\nCommandline: x\n\n", id="a transaction without a time"),
    ],
)
def test_what_is_no_log_tells_nothing(machine: Machine, log: str) -> None:
    for path in (DPKG_LOG, APT_LOG, ZYPP_LOG, f"{APT_LOG}.1.gz"):
        machine.write(path, log)

    assert apt.read_changes(machine.host) == zypper.read_changes(machine.host) == {}


def test_only_the_end_of_a_huge_log_is_read(machine: Machine) -> None:
    machine.write(DPKG_LOG, DPKG + "2026-05-04 10:00:00 startup archives unpack\n" * (LIMIT_BYTES // 40))

    assert apt.read_changes(machine.host) == {}


def test_a_log_that_is_a_pipe_is_not_waited_for(machine: Machine) -> None:
    (machine.root / "var/log").mkdir(parents=True)
    os.mkfifo(machine.root / DPKG_LOG.lstrip("/"))

    assert apt.read_changes(machine.host) == {}


@pytest.mark.parametrize("text", ["", "2026-05-01", "0000-00-00 00:00:00", "9999-99-99 00:00:00"])
def test_what_is_no_time_is_none(text: str) -> None:
    assert seconds(text) is None


def test_files_and_units_have_times_and_all_of_it_is_what_the_controller_reads(machine: Machine) -> None:
    machine.write(DPKG_LOG, DPKG)
    written = machine.write("/etc/grapnel/hook.json", "{}")
    os.utime(written, (1777615923, 1777615923))
    shown = (
        "Id=containerd.service\nStateChangeTimestampMonotonic=5000000\nResult=exit-code\n\n"
        "Id=crio.service\nStateChangeTimestampMonotonic=0\nResult=success\n"
    )
    machine.teach("systemctl show --property Id,StateChangeTimestampMonotonic,Result", shown)
    clock = Clock(now=lambda: 1000.0, monotonic=lambda: 100.0)
    files = ["/etc/grapnel/hook.json", "/etc/grapnel/gone.json", "/no/such/folder/x"]

    traces = read_traces(machine.host, clock, "apt", files, ["containerd.service", "crio.service"])

    read = msgspec.convert(traces, Traces)
    assert read.packages["libcuda1"].version == "550.1-1"
    assert read.files["/etc/grapnel/hook.json"].written == 1777615923
    assert read.files["/etc/grapnel/gone.json"].folder
    assert set(read.files) == set(files[:2])
    assert traces["services"] == {"containerd.service": {"since": 905, "result": "exit-code"}}


def test_names_and_versions_that_cannot_be_are_left_out(machine: Machine) -> None:
    machine.write(
        DPKG_LOG,
        f"2026-05-01 06:12:03 install nvi\x07dia <none> 1\n2026-05-01 06:12:03 install nvidia-x <none> a/b\n{DPKG}",
    )

    traces = read_traces(machine.host, Clock(), "apt", [], [])

    assert set(traces["packages"]) == {"libcuda1", "nvidia-smi"}


def test_what_somebody_typed_is_made_printable_and_short() -> None:
    change = PackageChange("install", 1, "1", "x\x1b[2J" + "y" * 1000, "ada\n")

    described = change.described()

    assert "\x1b" not in described["command"]
    assert (len(described["command"]), described["user"]) == (300, "ada\\n")
