"""Boots the virtual machine once, with files of a test's, and returns what its command printed.

Or boots a kernel with an initial RAM disk that something else has written, to look at what is loaded in it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lab.machine.command import DYING, run
from lab.machine.errors import LabError
from lab.nodes.microvm.archive import pack

if TYPE_CHECKING:
    from lab.nodes.microvm.secureboot import SecureBoot
    from lab.nodes.microvm.system import System

MEMORY_MIB = 1024
# One processor: with several, emulated ones have run into code of the kernel that another was about to replace (int3).
_QEMU = (
    "qemu-system-x86_64", "-accel", "tcg,thread=single", "-cpu", "max", "-smp", "1", "-m", str(MEMORY_MIB),
    "-nodefaults", "-no-reboot", "-display", "none",
)  # fmt: skip
# All denials are wanted, and without auditd they are in the kernel's log. A panic ends the machine, which would reboot.
# Whether the timer ticks is not checked: on a busy machine an emulated one ticks too late for that, which is a panic.
_ARGUMENTS = (
    "console=ttyS0 quiet panic=-1 no_timer_check "
    "security={security} selinux=1 apparmor=1 audit=1 audit_backlog_limit=8192"
)
# What systemd does first on an installed system; the policy is loaded by what this executes.
_START = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t securityfs securityfs /sys/kernel/security
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /run
echo 0 > /proc/sys/kernel/printk_ratelimit
{policy}
{command} >/dev/ttyS1 2>&1
echo o > /proc/sysrq-trigger
sleep 60
"""

# What each of Linux's two large security modules is given before the command starts.
_POLICIES = {
    "selinux": "mount -t selinuxfs selinuxfs /sys/fs/selinux\nload_policy -i\nrestorecon -R /dev",
    "apparmor": "",
}


def boot(
    system: System,
    given: Path,
    command: str,
    *,
    timeout_s: float,
    security: Literal["selinux", "apparmor"] = "selinux",
    secure_boot: SecureBoot | None = None,
    enrolled: tuple[Path, ...] = (),
) -> str:
    """Boot with the files of ``given`` laid over the tree, run one command as root, and return what it printed.

    SELinux's policy is loaded and enforced before the command starts, in the kernel's own domain; of AppArmor no
    profile is: a command takes those of ``/etc/apparmor.d`` that it needs. The kernel prints on a console of its own,
    which ends what is returned where the command printed nothing. With ``secure_boot``, firmware starts the kernel, and
    accepts what is signed by a certificate (DER) of ``enrolled`` as well, of which there is one at least. Raises
    CommandError for a machine that has not switched itself off in time.
    """
    with tempfile.TemporaryDirectory(prefix="grapnel-microvm-") as folder:
        start = Path(folder, "first/start")
        start.parent.mkdir()
        start.write_text(_START.format(command=command, policy=_POLICIES[security]))
        start.chmod(0o755)
        archive = Path(folder, "initrd")
        archive.write_bytes(
            (secure_boot or system).first_root.read_bytes() + pack(given, "given") + pack(start.parent, "given")
        )
        disk = f"file={system.disk},format=raw,if=virtio,snapshot=on"
        arguments = _ARGUMENTS.format(security=security)
        if secure_boot:
            start_up = secure_boot.arguments(enrolled, Path(folder), archive, arguments)
        else:
            start_up = ["-kernel", str(system.kernel), "-initrd", str(archive), "-append", arguments]
        machine = ["-drive", disk, *start_up]
        console = Path(folder, "console")
        lines = ["-serial", f"file:{console}", "-serial", "stdio"]
        said = run([*DYING, *_QEMU, *lines, *machine], timeout_s=timeout_s).stdout
        return said or console.read_text(errors="replace")


# Nothing but what the disk has: of dracut's, a shell, mount and modprobe.
_LOOK = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
{command} >/dev/ttyS1 2>&1
echo o > /proc/sysrq-trigger
while :; do :; done
"""


def boot_disk(kernel: Path, disk: Path, script: str, *, timeout_s: float) -> str:
    """Boot a kernel with an initial RAM disk, run a script of its shell before anything else, and return what it said.

    Raises CommandError for a machine that has not switched itself off in time, and LabError for one that said nothing.
    """
    with tempfile.TemporaryDirectory(prefix="grapnel-disk-") as folder:
        given = Path(folder, "given")
        given.mkdir()
        (given / "look").write_text(script)
        (given / "start").write_text(_LOOK.format(command="sh /look"))
        (given / "start").chmod(0o755)
        archive = Path(folder, "initrd")
        archive.write_bytes(disk.read_bytes() + pack(given))
        console = Path(folder, "console")
        arguments = "console=ttyS0 quiet panic=-1 no_timer_check rdinit=/start"
        machine = ["-kernel", str(kernel), "-initrd", str(archive), "-append", arguments]
        lines = ["-serial", f"file:{console}", "-serial", "stdio"]
        said = run([*DYING, *_QEMU, *lines, *machine], timeout_s=timeout_s).stdout
        if not said:
            raise LabError(f"a kernel with {disk} said nothing", hint=console.read_text(errors="replace")[-2000:])
        return said
