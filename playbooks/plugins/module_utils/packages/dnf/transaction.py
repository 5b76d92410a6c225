"""Carries out transactions with dnf: local files only, without repositories, version locks and exclusions.

dnf orders what rpm does, checks dependencies and keeps its history and what was wished for. Its shell, which alone can
install and remove in one transaction, goes on after an error and ends with 0: so everything is rehearsed first, and
looked at afterwards.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.packages.dnf import version_locks
from ansible_collections.grapnel.node.plugins.module_utils.packages.dnf.download import join_rows, parse_table
from ansible_collections.grapnel.node.plugins.module_utils.packages.dnf.facts import wait_for_lock
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm import transaction as common
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.installed import QUERY_TIMEOUT_S, read_by_dnf
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.manager import RpmDatabase
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError, Rehearsal

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Finished, Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import InstalledPackage, Transaction

# Dependencies of what goes stay: dnf would take the compiler along, as nobody wished for it by name.
_DNF = (
    "dnf", "--disablerepo=*", "--disableplugin=*", "--disableexcludes=all", "--setopt=install_weak_deps=False",
    "--setopt=clean_requirements_on_remove=False", "--setopt=localpkg_gpgcheck=False", "--setopt=keepcache=True",
)  # fmt: skip
_BEGAN = re.compile(r"^Running transaction$", re.MULTILINE)


class Dnf(RpmDatabase):
    """dnf 4 and rpm."""

    name = "dnf"

    def installed(self, host: Host, names: Collection[str]) -> dict[str, InstalledPackage]:
        return read_by_dnf(host, names)

    def wait(self, host: Host, clock: Clock) -> None:
        common.require_unlocked(wait_for_lock(host, common.LOCK_WAIT_S, clock))

    def rehearse(self, host: Host, transaction: Transaction) -> Rehearsal:
        asked = common.left_to_do(host, transaction)
        if not asked.install and not asked.remove:
            return asked
        done = host.run([*_DNF, "--assumeno", *_words(host, transaction)], QUERY_TIMEOUT_S)
        table = parse_table(join_rows(done.stdout), {})
        found = Rehearsal(table.install, tuple(sorted(table.remove)), tuple(sorted(table.obsoleted)))
        if not found.install and not found.remove:
            raise PackageError(_reason(done, transaction), is_unchanged=True)
        return found

    def apply(self, host: Host, transaction: Transaction, clock: Clock) -> None:
        asked = common.left_to_do(host, transaction)
        if transaction.remove:
            common.require_as_asked(asked, self.rehearse(host, transaction))
        self.wait(host, clock)
        saved = common.saved_files(host, transaction)
        done = host.run([*_DNF, "--assumeyes", *_words(host, transaction)], common.TRANSACTION_TIMEOUT_S)
        if done.return_code:
            raise PackageError(_reason(done, transaction), is_unchanged=not _BEGAN.search(done.stdout))
        common.require_done(asked, self.installed(host, {*asked.install, *asked.remove}), done)
        common.remove_saved(host, saved)

    def held(self, host: Host, names: Collection[str]) -> set[str]:
        installed = self.installed(host, names)
        absent = version_locks.locked_names(host, {*names} - installed.keys())
        return {name for name, one in installed.items() if one.is_held} | absent

    def hold(self, host: Host, names: Sequence[str]) -> None:
        """Lock the versions that are installed."""
        if names:
            installed = self.installed(host, names)
            version_locks.lock(host, {name: one.version for name, one in installed.items()})

    def unhold(self, host: Host, names: Sequence[str]) -> None:
        if names:
            version_locks.unlock(host, names)


def _words(host: Host, transaction: Transaction) -> list[str]:
    """Return what dnf is told to do; its shell takes local files only before anything else."""
    if not transaction.remove:
        return ["install", *transaction.files]
    if not transaction.files:
        return ["remove", *transaction.remove]
    script = f"{transaction.scratch}/transaction.dnf"
    lines = [f"install {' '.join(transaction.files)}", f"remove {' '.join(transaction.remove)}", "run", "exit"]
    host.path(transaction.scratch).mkdir(parents=True, exist_ok=True, mode=0o700)
    host.path(script).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return ["shell", script]


def _reason(done: Finished, transaction: Transaction) -> str:
    said = common.reason(done)
    if "conflicting requests" in said or "nothing provides" in said or "conflicts with" in said:
        return f"the staged packages do not fit the installed ones: {said}; stage the driver again"
    return f"dnf failed with {len(transaction.files)} packages: {said}"
