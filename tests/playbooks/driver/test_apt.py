"""What apt says is read as it says it, and its errors become messages that help."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Finished
from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.transaction import Apt
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError, Transaction

if TYPE_CHECKING:
    from pathlib import Path

    from tests.playbooks.fakes import Machine

SCRATCH = "/var/lib/grapnel/driver/scratch"
TRANSACTION = Transaction(("/staged/libcuda1.deb",), ("libnvidia-old",), SCRATCH)
CLOCK = Clock(lambda: 0.0, lambda _: None, lambda: 0.0)
SIMULATED = """\
Reading package lists...
Remv libnvidia-old [470.1-1]
Inst nvidia-smi [535.309.01-0+deb12u1] (550.163.01-2 local-deb [amd64]) []
Inst libpci3:i386 (1:3.13.0-2 local-deb [i386])
Conf nvidia-smi (550.163.01-2 local-deb [amd64])
"""
STATUS = """\
Package: libcuda1
Status: hold ok installed
Architecture: amd64
Version: 550.163.01-2

Package: libcuda1
Status: install ok installed
Architecture: i386
Version: 535.1-1

Package: nvidia-smi
Status: install ok half-configured
Architecture: amd64
Version: 550.163.01-2

Package: nvidia-old
Status: deinstall ok config-files
Architecture: amd64
Version: 470.1-1
"""


@pytest.fixture
def debian(machine: Machine) -> Machine:
    machine.write("/var/lib/dpkg/status", STATUS)
    machine.teach("env")
    machine.teach("unshare")
    machine.teach("dpkg-query", "dpkg\t1.22.18\n")
    return machine


def test_a_rehearsal_tells_what_comes_and_what_goes(debian: Machine) -> None:
    debian.teach("env", SIMULATED)

    found = Apt().rehearse(debian.host, TRANSACTION)

    assert found.install == {"nvidia-smi": "550.163.01-2", "libpci3": "1:3.13.0-2"}
    assert found.remove == ("libnvidia-old",)
    _, call = debian.calls
    assert "--simulate install --fix-broken /staged/libcuda1.deb libnvidia-old-" in call
    assert "Dir::Etc::sourcelist=/dev/null" in call
    assert "-o APT::Ignore-Hold=true" in call
    assert f"Dir::State::lists={SCRATCH}/lists" in call


def test_nothing_is_removed_that_was_not_named(debian: Machine) -> None:
    Apt().apply(debian.host, Transaction(("/a.deb",), (), SCRATCH), CLOCK)

    assert "--no-remove" in debian.calls[-1]


def test_the_database_tells_versions_holds_and_halves_of_the_own_architecture(debian: Machine) -> None:
    found = Apt().installed(debian.host, {"libcuda1", "nvidia-smi", "nvidia-old", "nvidia-new"})

    assert {name: (one.version, one.is_held, one.is_whole) for name, one in found.items()} == {
        "libcuda1": ("550.163.01-2", True, True),
        "nvidia-smi": ("550.163.01-2", False, False),
    }
    assert Apt().is_interrupted(debian.host)


def test_a_database_that_dpkg_cannot_read_is_found_before_anything_begins(debian: Machine) -> None:
    error = (
        "dpkg-query: error: parsing file '/var/lib/dpkg/status' near line 7:\n field name must be followed by colon\n"
    )
    debian.teach("dpkg-query", return_code=2, stderr=error)

    with pytest.raises(PackageError, match=r"^/var/lib/dpkg/status is damaged: .*near line 7.*/var/backups") as raised:
        Apt().rehearse(debian.host, TRANSACTION)

    assert raised.value.is_unchanged
    assert len(debian.calls) == 1


@pytest.mark.parametrize("lost", ["libnvidia-ml1.list", "libnvidia-ml1:amd64.list", "dpkg.list"])
def test_a_package_that_the_database_has_lost_is_not_one_that_was_never_there(lost: str, debian: Machine) -> None:
    for name in ("libcuda1:amd64.list", "nvidia-old.list", lost):
        debian.write(f"/var/lib/dpkg/info/{name}", "/.\n")

    with pytest.raises(
        PackageError, match=rf"is damaged: it has no entry for {re.split('[.:]', lost)[0]}, whose"
    ) as raised:
        Apt().installed(debian.host, {"libcuda1", "libnvidia-ml1", "nvidia-old"})

    assert raised.value.is_unchanged


def test_what_dpkg_wrote_down_last_before_it_was_killed_is_no_damage(debian: Machine) -> None:
    debian.write("/var/lib/dpkg/info/libnvidia-ml1.list", "/.\n")
    debian.write("/var/lib/dpkg/updates/0007", "Package: libnvidia-ml1\n")

    assert Apt().installed(debian.host, {"libnvidia-ml1"}) == {}


ERRORS: dict[str, tuple[str, str, str, bool]] = {
    "another version is needed": (
        "The following packages have unmet dependencies:\n libcuda1 : Depends: libnvidia-x (= 550) but it is not\n",
        "E: Unable to correct problems, you have held broken packages.\n",
        r"do not fit the installed ones: libcuda1 : Depends: libnvidia-x .*; stage the driver again",
        True,
    ),
    "the disk is full": (
        "Unpacking libcuda1:amd64 (550.163.01-2) ...\n",
        "dpkg: error processing archive /a.deb (--unpack):\n cannot copy extracted data: No space left on device\n",
        r"^the disk is full: .*make room, the files are staged already$",
        False,
    ),
    "somebody was faster": (
        "",
        "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4711 (unattended-upgr)\n",
        r"^somebody else uses the package database: .*process 4711 \(unattended-upgr\)",
        True,
    ),
    "something else would go": (
        "The following packages will be REMOVED:\n  containerd\n  runc\nThe following packages will be upgraded:\n",
        "E: Packages need to be removed but remove is disabled.\n",
        r"^the packages would take containerd, runc off this machine: remove these first",
        True,
    ),
    "a script fails": (
        "Setting up nvidia-persistenced (550.163.01-1) ...\n",
        "dpkg: error processing package nvidia-persistenced (--configure):\n",
        r"^apt-get failed with 1 packages: dpkg: error processing package nvidia-persistenced",
        False,
    ),
}


@pytest.mark.parametrize(("stdout", "stderr", "reason", "is_unchanged"), ERRORS.values(), ids=ERRORS)
def test_an_error_says_what_helps(stdout: str, stderr: str, reason: str, is_unchanged: bool, debian: Machine) -> None:  # noqa: FBT001 - a column
    debian.teach("env", lambda: Finished(100, stdout, stderr))

    with pytest.raises(PackageError, match=reason) as raised:
        Apt().apply(debian.host, TRANSACTION, CLOCK)

    assert raised.value.is_unchanged == is_unchanged


def test_the_initramfs_waits_where_there_is_one(debian: Machine) -> None:
    settings = "/etc/initramfs-tools/update-initramfs.conf"
    debian.write(settings, "update_initramfs=yes\n")

    Apt().apply(debian.host, TRANSACTION, CLOCK)

    (call,) = debian.calls
    assert call.startswith("unshare --mount sh -c ")
    assert f"{SCRATCH}/update-initramfs.conf {settings} -- env " in call
    assert debian.read(f"{SCRATCH}/update-initramfs.conf").startswith("update_initramfs=no\n")
    assert debian.read(settings) == "update_initramfs=yes\n"


def test_dracut_waits_as_well_where_there_is_a_disk(debian: Machine, tmp_path: Path) -> None:
    """Its package wrote the disk three times while a driver was installed, and the GPUs were out of service."""
    hook = "/etc/kernel/postinst.d/dracut"
    debian.write(hook, f'#!/bin/sh\necho "$@" >> {tmp_path}/called\n', mode=0o755)

    Apt().apply(debian.host, TRANSACTION, CLOCK)

    (call,) = debian.calls
    guarded = debian.root / SCRATCH.lstrip("/") / "dracut"
    assert f"{guarded} {hook} -- env " in call
    boot = tmp_path / "boot"
    boot.mkdir()
    (boot / "initrd.img-1").write_text("")
    script = tmp_path / "hook"
    script.write_text(guarded.read_text().replace("/boot/", f"{boot}/"))
    script.chmod(guarded.stat().st_mode)
    for kernel in ("1", "2"):  # the second one is new, and could not boot without one
        subprocess.run([script, kernel, f"/boot/vmlinuz-{kernel}"], check=True)
    assert (tmp_path / "called").read_text() == "2 /boot/vmlinuz-2\n"
    assert debian.read(hook).startswith("#!/bin/sh\necho")


def test_a_hook_for_dracut_that_is_no_plain_script_is_left_alone(debian: Machine) -> None:
    debian.write("/etc/kernel/postinst.d/dracut", "#!/usr/bin/python3\n", mode=0o755)

    Apt().apply(debian.host, TRANSACTION, CLOCK)

    assert [call.split(" ", 1)[0] for call in debian.calls] == ["env"]


def test_where_there_are_no_namespaces_the_initramfs_is_rebuilt_at_once(debian: Machine) -> None:
    debian.write("/etc/initramfs-tools/update-initramfs.conf", "update_initramfs=yes\n")
    debian.teach("unshare", return_code=1, stderr="unshare: unshare failed: Operation not permitted\n")

    Apt().apply(debian.host, TRANSACTION, CLOCK)

    assert [call.split(" ", 1)[0] for call in debian.calls] == ["unshare", "env"]
