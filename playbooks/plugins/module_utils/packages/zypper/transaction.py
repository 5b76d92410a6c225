"""Carries out transactions with zypper: local files only, without the machine's repositories and locks.

The folders that the files are in serve as repositories, and a configuration of its own names no locks, so that nothing
has to be unlocked and locked again around the transaction.
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING
from xml.sax.saxutils import unescape

from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm import transaction as common
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.holds import (
    zypper_lock_names,
)
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.installed import QUERY_TIMEOUT_S, read_by_zypper
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.manager import RpmDatabase
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError, Rehearsal
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import SourceError
from ansible_collections.grapnel.node.plugins.module_utils.packages.zypper.configuration import write_without_locks
from ansible_collections.grapnel.node.plugins.module_utils.packages.zypper.download import parse_summary
from ansible_collections.grapnel.node.plugins.module_utils.packages.zypper.facts import wait_for_lock

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Finished, Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import InstalledPackage, Transaction

_GOOD = (0, 102, 103, 107)  # advice to reboot or restart; 107: a script failed, the packages are installed
_REPOSITORY = """\
[grapnel-staged-{number}]
name=grapnel-staged-{number}
enabled=1
autorefresh=1
type=plaindir
baseurl=dir://{folder}
gpgcheck=0
"""
_ZYPPER = ("zypper", "--non-interactive", "--no-gpg-checks")
_INSTALL = ("install", "--no-recommends", "--oldpackage", "--auto-agree-with-licenses")
_PROBLEM = re.compile(
    r"<(?:message type=\"(?:error|info)\"|description)>((?:Problem|No provider|Subprocess failed|Installation)[^<\n]*)"
)
_MAX_WORDS = 1500  # characters of an error


class Zypper(RpmDatabase):
    """zypper and rpm."""

    name = "zypper"

    def installed(self, host: Host, names: Collection[str]) -> dict[str, InstalledPackage]:
        return read_by_zypper(host, names)

    def wait(self, host: Host, clock: Clock) -> None:
        common.require_unlocked(wait_for_lock(host, common.LOCK_WAIT_S, clock))

    def rehearse(self, host: Host, transaction: Transaction) -> Rehearsal:
        asked = common.left_to_do(host, transaction)
        if not asked.install and not asked.remove:
            return asked
        done = _run(host, transaction, asked, ("--dry-run",))
        try:
            summary = parse_summary(done.stdout)
        except SourceError as error:
            raise PackageError(_reason(done), is_unchanged=True) from error
        if done.return_code not in _GOOD:
            raise PackageError(_reason(done), is_unchanged=True)
        return Rehearsal(summary.install, tuple(sorted(summary.remove)))

    def apply(self, host: Host, transaction: Transaction, clock: Clock) -> None:
        asked = common.left_to_do(host, transaction)
        self.wait(host, clock)
        if asked.install or asked.remove:
            common.require_as_asked(asked, self.rehearse(host, transaction))
            saved = common.saved_files(host, transaction)
            before = self.installed(host, {*asked.install, *asked.remove})
            done = _run(host, transaction, asked, ())
            after = self.installed(host, {*asked.install, *asked.remove})
            if done.return_code not in _GOOD:
                raise PackageError(_reason(done), is_unchanged=before == after)
            common.require_done(asked, after, done)
            common.remove_saved(host, saved)

    def held(self, host: Host, names: Collection[str]) -> set[str]:
        installed = self.installed(host, names)
        absent = ({*names} - installed.keys()) & zypper_lock_names(host)
        return {name for name, one in installed.items() if one.is_held} | absent

    def hold(self, host: Host, names: Sequence[str]) -> None:
        _lock(host, "addlock", names)

    def unhold(self, host: Host, names: Sequence[str]) -> None:
        _lock(host, "removelock", names)


def _run(host: Host, transaction: Transaction, asked: Rehearsal, options: Sequence[str]) -> Finished:
    scratch = f"{transaction.scratch}/zypper"
    _prepare(host, scratch, transaction.files)
    names = [f"{name}={version}" for name, version in asked.install.items()]
    command = [
        "env", f"ZYPP_CONF={scratch}/zypp.conf", "ZYPP_SINGLE_RPMTRANS=1", *_ZYPPER, "--xmlout",
        "--reposd-dir", f"{scratch}/repositories", "--cache-dir", f"{scratch}/cache",
        *_INSTALL, *options, *names, *(f"!{name}" for name in asked.remove),
    ]  # fmt: skip
    return host.run(command, common.TRANSACTION_TIMEOUT_S)


def _prepare(host: Host, scratch: str, files: Sequence[str]) -> None:
    """Write zypper's configuration for this transaction; what an earlier one cached is about other files."""
    shutil.rmtree(host.path(scratch), ignore_errors=True)
    repositories = host.path(f"{scratch}/repositories")
    repositories.mkdir(parents=True, mode=0o700)
    for number, folder in enumerate(sorted({file.rpartition("/")[0] for file in files})):
        text = _REPOSITORY.format(number=number, folder=folder)
        (repositories / f"staged-{number}.repo").write_text(text, encoding="utf-8")
    write_without_locks(host, scratch)


def _lock(host: Host, verb: str, names: Sequence[str]) -> None:
    if not names:
        return
    # A lock needs nothing of a repository, and none need answer now.
    command = ["zypper", "--non-interactive", "--quiet", "--no-refresh", verb, *names]
    done = host.run(command, QUERY_TIMEOUT_S)
    if done.return_code not in _GOOD:
        raise PackageError(f"zypper {verb} failed: {done.complaints}")


def _reason(done: Finished) -> str:
    found = [" ".join(unescape(text, {"&apos;": "'"}).split()) for text in _PROBLEM.findall(done.stdout)]
    said = printable("; ".join(dict.fromkeys(found)) or done.complaint, _MAX_WORDS)
    if "Problem" in said or "No provider" in said:
        return f"the staged packages do not fit the installed ones: {said}; stage the driver again"
    if "No space left" in done.stdout or ("needs" in said and "on the" in said):
        return f"the disk is full: {said}; make room, the files are staged already"
    return f"zypper failed: {said}"
