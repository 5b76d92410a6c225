from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Finished
from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.dpkg import (
    read_installed,
    read_lock_holder,
    wait_for_lock,
)
from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.lists import (
    lists_age_s,
    read_available,
    refresh_lists,
)
from ansible_collections.grapnel.node.plugins.module_utils.packages.interest import is_of_interest
from ansible_collections.grapnel.node.plugins.module_utils.packages.lists import Freshness

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine

STATUS = "/var/lib/dpkg/status"
LISTS = "/var/lib/apt/lists"
PACKAGES = f"{LISTS}/srv_bundle_Packages"
FRESHNESS = Freshness(max_age_s=3600, timeout_s=10)


def paragraph(name: str, status: str = "install ok installed", *, source: str = "", version: str = "1-1") -> str:
    lines = [f"Package: {name}", f"Status: {status}", f"Version: {version}", "Description: one", " Package: two"]
    return "\n".join([*lines, *([f"Source: {source}"] if source else [])])


def database(*paragraphs: str) -> str:
    return "\n\n".join(paragraphs) + "\n"


class FakeTime:
    def __init__(self, now: float) -> None:
        self.now = now
        self.clock = Clock(lambda: self.now, self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds


def test_packages_are_those_of_nvidia_sources_and_engines(machine: Machine) -> None:
    machine.write(
        STATUS,
        database(
            paragraph("bash"),
            paragraph("containerd", version="1.7.24~ds1-6"),
            paragraph("libcuda1", "hold ok installed", source="nvidia-graphics-drivers (550.1-1)", version="550.1-2"),
            paragraph("nvidia-smi", "deinstall ok config-files", source="nvidia-graphics-drivers"),
        ),
    )

    packages, is_interrupted = read_installed(machine.host)

    assert packages == {
        "containerd": {"version": "1.7.24~ds1-6", "source": "containerd", "hold": False, "status": "installed"},
        "libcuda1": {
            "version": "550.1-2",
            "source": "nvidia-graphics-drivers",
            "hold": True,
            "status": "installed",
        },
    }
    assert not is_interrupted


@pytest.mark.parametrize(
    "status",
    ["install ok unpacked", "install ok half-configured", "install reinstreq installed", "install ok triggers-pending"],
)
def test_a_package_that_is_neither_here_nor_there_is_an_interruption(status: str, machine: Machine) -> None:
    machine.write(STATUS, database(paragraph("bash", status)))

    assert read_installed(machine.host)[1]


def test_an_unfinished_journal_is_an_interruption(machine: Machine) -> None:
    machine.write(STATUS, database(paragraph("bash")))
    machine.write("/var/lib/dpkg/updates/0003")

    assert read_installed(machine.host)[1]


def test_the_holder_of_dpkgs_lock_is_named(machine: Machine) -> None:
    lock = machine.write("/var/lib/dpkg/lock-frontend")
    hold = (
        f"import fcntl, sys; f = open({str(lock)!r}, 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(1, flush=True); input()"
    )
    fake = FakeTime(0.0)
    with subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        machine.write(f"/proc/{holder.pid}/comm", "apt-get\n")
        while_held = wait_for_lock(machine.host, 30, fake.clock)
        holder.communicate("\n")

    assert fake.now == 30
    assert while_held == {"pid": holder.pid, "command": "apt-get"}
    assert read_lock_holder(machine.host) is None
    with lock.open("w") as stream:
        fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)  # asking has not taken it


def test_available_versions_keep_apts_order_and_name_first_alternatives(machine: Machine) -> None:
    machine.teach(
        "apt-cache show",
        database(
            "Package: libcuda1\nSource: nvidia-graphics-drivers\nVersion: 550.1-2\nPre-Depends: dpkg (>= 1.17)\n"
            "Depends: libc6 (>= 2.34), nvidia-alternative (= 550.1-2) | other, libssl3:any\nRecommends: nope",
            "Package: libcuda1\nSource: nvidia-graphics-drivers\nVersion: 535.1-1",
            "Package: libcuda1\nSource: nvidia-graphics-drivers\nVersion: 535.1-1",
            "Package: containerd-doc\nSource: containerd\nVersion: 1",
        ),
    )

    available = read_available(machine.host)

    assert list(available) == ["libcuda1"]
    assert [one["version"] for one in available["libcuda1"]] == ["550.1-2", "535.1-1"]
    assert available["libcuda1"][0]["depends"] == ["dpkg", "libc6", "libssl3", "nvidia-alternative"]


def test_an_archive_without_such_packages_is_no_error(machine: Machine) -> None:
    machine.teach("apt-cache show", return_code=100, stderr="E: No packages found")

    assert read_available(machine.host) == {}


def test_lists_that_are_missing_are_fetched(machine: Machine) -> None:
    machine.teach("apt-get", lambda: (machine.write(PACKAGES), Finished(0))[1])

    lists = refresh_lists(machine.host, FRESHNESS, Clock())

    assert len(machine.calls) == 1
    assert lists["lists_error"] is None
    assert lists["lists_age_s"] is not None


def test_fresh_lists_are_left_alone(machine: Machine) -> None:
    written = machine.write(PACKAGES).stat().st_mtime

    lists = refresh_lists(machine.host, FRESHNESS, Clock(lambda: written + 100))

    assert machine.calls == []
    assert 99 <= lists["lists_age_s"] <= 100


def test_old_lists_that_have_not_changed_count_as_fresh_after_a_refresh(machine: Machine) -> None:
    written = machine.write(PACKAGES).stat().st_mtime
    machine.teach("apt-get")

    refresh_lists(machine.host, FRESHNESS, Clock(lambda: written + 4000))

    assert len(machine.calls) == 1
    assert (machine.root / LISTS.lstrip("/") / "partial").is_dir()


def test_a_refresh_waits_for_apts_lock_until_time_is_up(machine: Machine) -> None:
    fake = FakeTime(1000.0)
    stderr = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)\n"
    machine.teach("apt-get", return_code=100, stderr=stderr)

    lists = refresh_lists(machine.host, FRESHNESS, fake.clock)

    assert lists["lists_error"].startswith("Could not get lock")
    assert len(machine.calls) > 5
    assert fake.now <= 1010.0


def test_an_archive_out_of_reach_is_told_in_apts_words(machine: Machine) -> None:
    machine.teach("apt-get", return_code=100, stderr="W: hm\nE: Failed to fetch file:/srv/bundle\nE: Some failed\n")

    lists = refresh_lists(machine.host, FRESHNESS, Clock())

    assert lists == {"lists_age_s": None, "lists_error": "Failed to fetch file:/srv/bundle; Some failed"}
    assert len(machine.calls) == 1


def test_lists_have_no_age_where_there_are_none(machine: Machine) -> None:
    machine.write(f"{LISTS}/lock")

    assert lists_age_s(machine.host, Clock()) is None


@pytest.mark.parametrize(
    ("name", "source", "is_wanted"),
    [
        ("libcuda1", "nvidia-graphics-drivers", True),
        ("libcuda1", "libcuda", True),  # NVIDIA's repositories have sources of names of their own
        ("nvidia-open-kernel-dkms", "nvidia-open-gpu-kernel-modules", True),
        ("cuda-drivers-580", "cuda-drivers", True),
        ("linux-modules-nvidia-580-server-6.8.0-45-generic", "linux-restricted-modules", True),
        ("linux-image-6.8.0-1012-nvidia", "linux-nvidia", False),
        ("nvidia-container-toolkit", "nvidia-container-toolkit", False),
        ("libnvidia-container1", "libnvidia-container", False),
        ("nvidia-cuda-toolkit", "nvidia-cuda-toolkit", False),
        ("kmod-nvidia-open-dkms", "kmod-nvidia-open-dkms", True),
        ("nvidia-compute-G06", "nvidia-driver-G06", True),
        ("docker.io", "docker.io", True),
        ("docker-compose", "docker-compose", False),
    ],
)
def test_the_drivers_packages_are_known_by_their_names(name: str, source: str, *, is_wanted: bool) -> None:
    assert is_of_interest(name, source) is is_wanted


def test_prebuilt_modules_are_asked_for_by_kernel(machine: Machine) -> None:
    """An archive has one for each kernel that it ever had, branch and flavour: thousands."""
    machine.write("/lib/modules/6.8.0-45-generic/modules.dep")
    machine.teach("apt-cache show", "")

    read_available(machine.host)

    (call,) = machine.calls
    assert re.search(r'\?name\("\^linux-[^"]*\([^")]*6\\\.8\\\.0\\-45\\-generic[^")]*\)\$"\)', call)
    assert re.escape(os.uname().release) in call  # the running kernel, whatever lies in the folder


def test_packages_are_asked_for_by_their_plain_names(machine: Machine) -> None:
    """An escaped dot was taken literally by apt: Docker's package was not available anywhere."""
    machine.teach("apt-cache show", "")

    read_available(machine.host)

    (call,) = machine.calls
    assert "?exact-name(docker.io)" in call


def test_a_key_that_has_expired_is_told_as_the_reason(machine: Machine) -> None:
    """What apt calls an error says of such a repository only that it is not signed."""
    said = "W: GPG error: file:/srv  InRelease: The following signatures were invalid: EXPKEYSIG F1323FA3\n"
    unsigned = "E: The repository 'file:/srv  InRelease' is not signed.\n"
    machine.teach("apt-get", return_code=100, stderr=said + unsigned)

    error = refresh_lists(machine.host, FRESHNESS, Clock())["lists_error"]

    assert "EXPKEYSIG F1323FA3; The repository" in error
