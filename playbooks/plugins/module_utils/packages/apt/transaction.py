"""Carries out transactions with apt: local files only, without the machine's lists, sources and pins.

apt orders what dpkg unpacks and configures, and checks dependencies first. It is given an empty folder of lists and no
sources, so nothing but the files that it is named can be installed, whatever the machine knows or reaches.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable
from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.control import read_control
from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.database import (
    half_installed,
    is_interrupted,
    read_packages,
    require_readable,
    wait_for_lock,
)
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError, Rehearsal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Finished, Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import InstalledPackage, Transaction

LOCK_WAIT_S = 120.0
_QUERY_TIMEOUT_S = 60.0
_REPAIR_TIMEOUT_S = 600.0
_TRANSACTION_TIMEOUT_S = 3600.0
_MAX_WORDS = 1500  # characters of an error
# Nobody is asked, nothing is restarted or listed: that is for the program that runs this.
_SILENT = (
    "env", "DEBIAN_PRIORITY=critical", "APT_LISTCHANGES_FRONTEND=none", "APT_LISTBUGS_FRONTEND=none",
    "NEEDRESTART_SUSPEND=1", "NEEDRESTART_MODE=l",
)  # fmt: skip
# Where half of the driver was upgraded alone, apt's way out of what does not go together is through the held half.
_HELD_TOO = ("-o", "APT::Ignore-Hold=true")
_ALLOWED = ("--yes", "--quiet", "--allow-downgrades", "--allow-change-held-packages", "--no-install-recommends")
_DPKG = ("dpkg", "--force-confdef", "--force-confold")
_APT_DPKG = ("-o", "Dpkg::Use-Pty=0", "-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold")
# apt's own preferences could keep a version out that was chosen; the files are root's alone, so apt reads them as root.
_ISOLATED = (
    "-o", "Dir::Etc::sourcelist=/dev/null", "-o", "Dir::Etc::sourceparts=/dev/null",
    "-o", "Dir::Etc::preferences=/dev/null", "-o", "Dir::Etc::preferencesparts=/dev/null",
    "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=", "-o", "APT::Sandbox::User=root",
)  # fmt: skip
# initramfs-tools obeys this file alone, and dracut's package calls this hook: both write a disk when a package asks.
# A copy is laid over it for one command, in a mount namespace: a kill leaves nothing behind. The script is constant;
# the files and the command are its arguments and never parsed by it.
_INITRAMFS_SETTINGS = "/etc/initramfs-tools/update-initramfs.conf"
_DEFERRED = "update_initramfs=no\nbackup_initramfs=no\n"
_DRACUT_HOOK = "/etc/kernel/postinst.d/dracut"
_SHELL = "#!/bin/sh\n"
_ONLY_ABSENT = _SHELL + '[ ! -e "/boot/initrd.img-$1" ] || exit 0\n'
_IN_NAMESPACE = 'while [ "$1" != -- ]; do mount --bind "$1" "$2" || :; shift 2; done; shift; exec "$@"'
_NO_NAMESPACE = "unshare: "

_NAMED = re.compile(r"^(Package|Version): *(\S+)$", re.MULTILINE)
_INSTALLS = re.compile(r"^Inst (\S+?)(?::\S+)? (?:\[[^\]]*\] )?\((\S+)", re.MULTILINE)
_REMOVES = re.compile(r"^(?:Remv|Purg) (\S+?)(?::\S+)? ", re.MULTILINE)
_BEGAN = re.compile(r"^(?:Preparing to unpack|Unpacking|Setting up|Removing|Purging|Processing triggers)", re.MULTILINE)
_COMPLAINT = re.compile(r"^(?:E: |W: .*(?:denied|failed)|dpkg: error|dpkg-deb: error|N: .*unsandboxed|\s+\S+ : )")
_NO_SPACE = re.compile(r"No space left on device|enough free space")
_GOING = re.compile(r"^The following packages will be REMOVED:\n((?: +.*\n)+)", re.MULTILINE)
_LOCKED = re.compile(r"Could not get lock|Unable to acquire the dpkg frontend lock|Unable to lock")


class Apt:
    """apt and dpkg."""

    name = "apt"
    suffix = ".deb"

    def installed(self, host: Host, names: Collection[str]) -> dict[str, InstalledPackage]:
        return read_packages(host, names)

    def require_readable(self, host: Host) -> None:
        require_readable(host)

    def describe(self, host: Host, files: Sequence[str]) -> dict[str, tuple[str, str]]:
        return {file: _describe(host, file) for file in files}

    def is_interrupted(self, host: Host) -> bool:
        return is_interrupted(host)

    def wait(self, host: Host, clock: Clock) -> None:
        wait_for_lock(host, LOCK_WAIT_S, clock)

    def repair(self, host: Host, clock: Clock) -> None:
        """Configure what is unpacked; packages of two versions that do not go together are left to the transaction."""
        wait_for_lock(host, LOCK_WAIT_S, clock)
        host.run([*_SILENT, *_DPKG, "--configure", "--pending"], _REPAIR_TIMEOUT_S)

    def rehearse(self, host: Host, transaction: Transaction) -> Rehearsal:
        require_readable(host)
        done = host.run([*_command(host, transaction), "--simulate", *_words(transaction)], _QUERY_TIMEOUT_S)
        if done.return_code:
            raise PackageError(_reason(done, transaction), is_unchanged=True)
        install = dict(_INSTALLS.findall(done.stdout))
        return Rehearsal(install, tuple(sorted({*_REMOVES.findall(done.stdout)} - install.keys())))

    def apply(self, host: Host, transaction: Transaction, clock: Clock) -> None:
        wait_for_lock(host, LOCK_WAIT_S, clock)
        transaction = _settle_halves(host, transaction)
        command = [*_command(host, transaction), *_APT_DPKG, "-o", f"DPkg::Lock::Timeout={LOCK_WAIT_S:g}"]
        done = _run_without_initramfs(host, transaction.scratch, [*command, *_words(transaction)])
        if done.return_code:
            raise PackageError(_reason(done, transaction), is_unchanged=not _BEGAN.search(done.stdout))

    def held(self, host: Host, names: Collection[str]) -> set[str]:
        return {name for name, one in read_packages(host, names).items() if one.is_held}

    def hold(self, host: Host, names: Sequence[str]) -> None:
        _mark(host, "hold", names)

    def unhold(self, host: Host, names: Sequence[str]) -> None:
        _mark(host, "unhold", names)


def _describe(host: Host, file: str) -> tuple[str, str]:
    shown = read_control(host, file)
    fields = dict(_NAMED.findall(shown.stdout))
    if shown.return_code or {"Package", "Version"} - fields.keys():
        raise PackageError(f"{printable(file)} is not a Debian package: {shown.complaint}", is_unchanged=True)
    return fields["Package"], fields["Version"]


def _command(host: Host, transaction: Transaction) -> list[str]:
    lists = f"{transaction.scratch}/lists"
    host.path(f"{lists}/partial").mkdir(parents=True, exist_ok=True, mode=0o700)
    options = ["--purge"] if transaction.purge else []
    removal = [] if transaction.remove else ["--no-remove"]
    allowed = [*_ALLOWED, *_HELD_TOO, *options, *removal]
    return [*_SILENT, "apt-get", *allowed, *_ISOLATED, "-o", f"Dir::State::lists={lists}"]


def _settle_halves(host: Host, transaction: Transaction) -> Transaction:
    """Have dpkg unpack or remove what it was killed at, as the transaction has it; returns what is left for apt.

    apt keeps a half-installed package at the version that dpkg has noted if that is the wanted one, and gives up on one
    that is to go or to become older.
    """
    halves = half_installed(host)
    if not halves:
        return transaction
    files = [file for file in transaction.files if _describe(host, file)[0] in halves]
    if files:
        host.run([*_SILENT, *_DPKG, "--force-depends", "--unpack", *files], _TRANSACTION_TIMEOUT_S)
    names = sorted(halves.intersection(transaction.remove))
    if names:
        verb = "--purge" if transaction.purge else "--remove"
        forced = ("--force-depends", "--force-remove-reinstreq")
        host.run([*_SILENT, *_DPKG, *forced, verb, *names], _TRANSACTION_TIMEOUT_S)
    left = read_packages(host, transaction.remove)
    return replace(transaction, remove=tuple(name for name in transaction.remove if name in left))


def _words(transaction: Transaction) -> list[str]:
    """Return what apt-get is told to do; a name with a minus behind it is removed."""
    return ["install", "--fix-broken", *transaction.files, *(f"{name}-" for name in transaction.remove)]


def _run_without_initramfs(host: Host, scratch: str, command: list[str]) -> Finished:
    laid = [*_write_deferred(host, scratch)]
    if not laid:
        return host.run(command, _TRANSACTION_TIMEOUT_S)
    namespace = ["unshare", "--mount", "sh", "-c", _IN_NAMESPACE, "sh", *laid, "--"]
    done = host.run([*namespace, *command], _TRANSACTION_TIMEOUT_S)
    if done.return_code and done.stderr.startswith(_NO_NAMESPACE):
        return host.run(command, _TRANSACTION_TIMEOUT_S)
    return done


def _write_deferred(host: Host, scratch: str) -> Iterator[str]:
    """Write what keeps disks from being written, and yield each file with the one that it is laid over."""
    if host.path(_INITRAMFS_SETTINGS).is_file():
        settings = host.path(f"{scratch}/update-initramfs.conf")
        settings.write_text(_DEFERRED, encoding="utf-8")
        yield from (os.fspath(settings), _INITRAMFS_SETTINGS)
    hook = host.read_text(_DRACUT_HOOK) or ""
    if hook.startswith(_SHELL):
        guarded = host.path(f"{scratch}/dracut")
        guarded.write_text(_ONLY_ABSENT + hook, encoding="utf-8")
        guarded.chmod(0o755)
        yield from (os.fspath(guarded), _DRACUT_HOOK)


def _mark(host: Host, mark: str, names: Sequence[str]) -> None:
    if not names:
        return
    done = host.run(["apt-mark", mark, *names], _QUERY_TIMEOUT_S)
    if done.return_code:
        raise PackageError(f"apt-mark {mark} failed: {done.complaints}")


def _reason(done: Finished, transaction: Transaction) -> str:
    """Return apt's and dpkg's own words, and what helps where that is known."""
    lines = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    chosen = (line.strip() for line in lines if _COMPLAINT.match(line) or _NO_SPACE.search(line))
    words = "; ".join(dict.fromkeys(chosen)) or done.complaint
    said = printable(words, _MAX_WORDS)
    if _NO_SPACE.search(words):
        return f"the disk is full: {said}; make room, the files are staged already"
    if "remove is disabled" in words and (going := _GOING.search(done.stdout)):
        names = printable(", ".join(going[1].split()), _MAX_WORDS)
        return f"the packages would take {names} off this machine: remove these first if nothing runs with them"
    if _LOCKED.search(words):
        return f"somebody else uses the package database: {said}"
    if "needs to be reinstalled" in words:
        return f"dpkg was killed at a package that is no part of this driver: {said}; reinstall or remove that first"
    if "unmet dependencies" in done.stdout:
        return f"the staged packages do not fit the installed ones: {said}; stage the driver again"
    return f"apt-get failed with {len(transaction.files)} packages: {said}"
