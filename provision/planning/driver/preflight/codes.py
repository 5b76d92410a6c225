"""Lists everything that can be found in the way of a driver change: its code, how severe it is, and what helps.

``docs/drivers/preflight.md`` is this table for readers; a test compares the two.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec


class Severity(Enum):
    """What a finding means for a driver change, the worst first."""

    ERROR = "error"  # it would fail, or leave the node without a driver
    WARNING = "warning"  # it works, and something about it deserves attention
    INFO = "info"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing about one node. Equal nodes have equal findings: no text names the node."""

    code: str
    severity: Severity
    message: str
    remedy: str


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of finding; ``meaning`` is for the documentation."""

    name: str
    severity: Severity
    meaning: str
    remedy: str

    def found(self, message: str) -> Finding:
        """Return a finding of this kind."""
        return Finding(code=self.name, severity=self.severity, message=message, remedy=self.remedy)


def _error(name: str, meaning: str, remedy: str) -> Code:
    return Code(name=name, severity=Severity.ERROR, meaning=meaning, remedy=remedy)


def _warning(name: str, meaning: str, remedy: str) -> Code:
    return Code(name=name, severity=Severity.WARNING, meaning=meaning, remedy=remedy)


def _info(name: str, meaning: str, remedy: str) -> Code:
    return Code(name=name, severity=Severity.INFO, meaning=meaning, remedy=remedy)


HEADERS_MISSING: Final = _warning(
    "kernel-headers-missing",
    "the module is to be built for a kernel that boots next or runs now, and its headers are not installed: staging "
    "installs them, if the package sources still have them",
    "if staging does not find them: boot a newer kernel, or install linux-headers-RELEASE, kernel-devel-RELEASE or "
    "kernel-default-devel from elsewhere",
)
MODULE_PACKAGE_MISSING: Final = _error(
    "module-package-missing",
    "the source has prebuilt modules, and none for a kernel that boots next or runs now",
    "boot a kernel that the source has a module for, wait for the module, or declare a source that builds with DKMS",
)
MODULE_MISSING: Final = _error(
    "kernel-module-missing",
    "the running kernel has no module of the declared version, and nothing in the change provides it",
    "install the module for the running kernel, or declare kernelModule: auto",
)
MODULE_MISSING_NEXT_BOOT: Final = _warning(
    "kernel-module-missing-next-boot",
    "an installed kernel that may boot next would come up without the driver",
    "install the module for that kernel, or remove the kernel",
)
OTHER_KERNEL_NEXT: Final = _warning(
    "other-kernel-next-boot",
    "the boot loader starts another kernel than the one that runs: a reboot changes it",
    "reboot before the driver is changed, or check that the driver has a module for that kernel",
)
BUILD_TOOLS_MISSING: Final = _warning(
    "build-tools-missing",
    "DKMS is installed and has no compiler or no make: staging installs them",
    "install gcc and make beforehand where the node must not get them from its package sources",
)
AUTOINSTALL_OFF: Final = _warning(
    "dkms-autoinstall-off",
    "DKMS is told not to build for new kernels: after the next kernel upgrade the node has no driver",
    "remove /etc/dkms/no-autoinstall, or set AUTOINSTALL=yes in the module's dkms.conf",
)
DKMS_NOT_INSTALLED: Final = _warning(
    "dkms-not-installed",
    "DKMS has the declared version and has not installed it for the running kernel: a build may have failed",
    "read /var/lib/dkms/MODULE/VERSION/build/make.log, then run `dkms autoinstall`",
)
DISK_FULL: Final = _error(
    "disk-space-low",
    "a file system has too little space for staging and installing",
    "make room on the file system that is named",
)
NOT_ENROLLED: Final = _error(
    "signing-key-not-enrolled",
    "the kernel accepts signed modules only, and does not have the certificate of whoever signs the driver's",
    "enroll the certificate with `mokutil --import`, reboot and confirm at the console, or declare driver.signing",
)
UNSIGNED: Final = _error(
    "module-unsigned",
    "the kernel accepts signed modules only, and nobody would sign the driver's",
    "declare driver.signing, use a source with signed modules, or turn secure boot off",
)
SIGNATURE_UNKNOWN: Final = _warning(
    "signature-unknown",
    "the kernel accepts signed modules only, and whether it accepts the driver's cannot be known beforehand",
    "compare the signer (`modinfo -F signer nvidia`) with `mokutil --list-enrolled`",
)
SECURE_BOOT_UNKNOWN: Final = _warning(
    "secure-boot-unknown",
    "the firmware's variables cannot be read, so whether secure boot is on is not known",
    "mount efivarfs at /sys/firmware/efi/efivars",
)
NOUVEAU_LOADED: Final = _error(
    "nouveau-loaded",
    "nouveau has the GPUs, and the driver's module cannot take them from it",
    "blacklist nouveau, rewrite the initramfs (update-initramfs -u or dracut -f: docs/systems/boot.md) and reboot",
)
NOUVEAU_NOT_BLACKLISTED: Final = _warning(
    "nouveau-not-blacklisted",
    "nothing keeps nouveau from taking the GPUs at the next boot",
    "write `blacklist nouveau` to a file in /etc/modprobe.d and rewrite the initramfs",
)
INITRAMFS_TOOL_MISSING: Final = _warning(
    "initramfs-tool-missing",
    "nouveau is loaded and nothing on the node can rewrite an initramfs that loads it",
    "install initramfs-tools or dracut",
)
FOREIGN_DRIVER: Final = _error(
    "foreign-driver",
    "a driver is installed that no package owns: packages and its files would overwrite each other",
    "remove it with its own uninstaller (nvidia-uninstall --silent), or delete the files that are named",
)
HELD: Final = _warning(
    "package-held",
    "packages that the change replaces are held at another version, and not by grapnel: the change replaces that hold",
    "find out who holds them before you apply, or declare the version that they have",
)
UNATTENDED: Final = _warning(
    "unattended-upgrade",
    "the node upgrades packages on its own and driver.hold is false: that may replace libraries under running work",
    "declare driver.hold: true, or turn the unattended upgrade off",
)
LOCKED: Final = _error(
    "package-manager-locked",
    "another process uses the package manager now",
    "wait until it is done, then plan again",
)
INTERRUPTED: Final = _warning(
    "package-manager-interrupted",
    "an earlier installation was stopped halfway: the change repairs that first, whatever the packages are",
    "finish it beforehand (dpkg --configure -a; dnf or zypper: remove the older of the two versions)",
)
SOURCES_UNREACHABLE: Final = _warning(
    "package-lists-stale",
    "the package lists could not be refreshed: newer versions are not known, and downloads may fail",
    "make the package sources reachable, or use a bundle",
)
NO_WAY_BACK: Final = _warning(
    "no-way-back",
    "no source has the packages that are installed now: if the change fails, they cannot be installed again",
    "keep the installed packages in a source of your own before the change",
)
MISMATCH: Final = _warning(
    "driver-library-mismatch",
    "loaded module and libraries are of two versions: every program that starts now fails to use the GPUs",
    "run `grapnel apply`, or reboot if the module on disk has the version of the libraries",
)
IN_USE: Final = _info(
    "gpu-in-use",
    "processes have the GPUs open: they end, or are drained, before the module is replaced",
    "nothing to do: apply drains pods and names what is left",
)
CHANGE_WAITS: Final = _warning(
    "driver-change-waits",
    "a driver change needs a reboot of the node, or goes on after one; the GPUs stay out of service until then",
    "run `grapnel apply`, which reboots the node if it has to and goes on, or `grapnel rollback`",
)
LAST_CHANGE_FAILED: Final = _warning(
    "last-change-failed",
    "the last driver change on the node did not succeed",
    "read the reason and the journal in /var/lib/grapnel/driver before the next attempt",
)
CHANGE_RUNS: Final = _info(
    "driver-change-running",
    "a driver change is being carried out on the node now",
    "wait until it is done: a second one is refused while it runs",
)

CODES: Final = tuple(value for value in list(globals().values()) if isinstance(value, Code))
