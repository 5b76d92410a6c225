"""Carries a removal out. A run that is killed anywhere is run again: what is done is found done.

Order: what is staged of engines goes → claims are given back → grapnel's own services stop → files of each service are
given back together, and the service restarts with them → settings of GPUs → holds → SELinux's policy, whose tools may
be among the packages → packages → programs and state → empty folders. What was there before is forgotten only after it
was given back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.daemon.gpu_settings import give_back
from ansible_collections.grapnel.node.plugins.module_utils.engines.packages import unhold
from ansible_collections.grapnel.node.plugins.module_utils.engines.staging import clear
from ansible_collections.grapnel.node.plugins.module_utils.files.configuration import (
    Service,
    apply_changes,
    rehearse,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.selinux import SelinuxError, remove_module
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import DAEMON_UNIT
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError
from ansible_collections.grapnel.node.plugins.module_utils.removal.files import save_beside
from ansible_collections.grapnel.node.plugins.module_utils.removal.originals import read_originals, write_originals
from ansible_collections.grapnel.node.plugins.module_utils.removal.own import (
    FOLDERS,
    PROGRAMS,
    VOLATILE,
    remove_empty,
    remove_marks,
    remove_path,
    unmount_below,
)
from ansible_collections.grapnel.node.plugins.module_utils.removal.packages import RemovalError, purge
from ansible_collections.grapnel.node.plugins.module_utils.removal.parts import DAEMON, RUNTIME, Reader, part_of
from ansible_collections.grapnel.node.plugins.module_utils.removal.settings import put_back_settings
from ansible_collections.grapnel.node.plugins.module_utils.use.claims import ClaimsError, wait_for_claims

if TYPE_CHECKING:
    from collections.abc import Collection

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host
    from ansible_collections.grapnel.node.plugins.module_utils.removal.plan import Removal

_SYSTEMCTL_TIMEOUT_S = 120.0
_ANSWER_TIMEOUT_S = 60.0
_CLAIMS_S = 30.0  # a kubelet gives the claims of pods that have ended back in a moment
_UNITS = "/etc/systemd/system/"
_READ_AGAIN = frozenset({"reload", "restart"})
_AS_IT_WAS = frozenset({"disable", "stop"})


def carry_out(host: Host, removal: Removal, parts: Collection[str], clock: Clock) -> None:
    """Do it; raises `RemovalError`, `ConfigurationError`, `FileSetError`, OSError: run it again then."""
    _let_go_of_work(host, parts, clock)
    for _, unit in removal.units:
        _systemctl(host, "disable", "--now", unit)
    for reader in dict.fromkeys(one.reader for _, one in removal.files):
        _give_back(host, removal, reader)
    if DAEMON in parts:
        give_back(host)
    put_back_settings(host)
    _let_go(host, removal.held)
    if removal.leaves_policy:
        _leave_policy(host)
    leaving = [plan for plan in removal.packages if not plan.stays]
    if leaving:  # a package leaves its own folder behind in which there is one of ours
        remove_empty(host, removal.originals.folders)
    for plan in leaving:
        purge(host, plan)
    for _, path in removal.own:
        remove_path(host, path)
    if any(path.startswith(_UNITS) for path in _touched(removal)):
        _systemctl(host, "daemon-reload")
    _forget(host, removal, parts)


def _let_go_of_work(host: Host, parts: Collection[str], clock: Clock) -> None:
    """Remove what is staged of engines while they run, as a killed trial may have left something; wait for claims."""
    try:
        if RUNTIME in parts and (left := clear(host)):
            raise RemovalError(left)
        if DAEMON in parts:
            wait_for_claims(host, clock, _CLAIMS_S, "remove")
    except ClaimsError as error:
        raise RemovalError(str(error)) from error


def _give_back(host: Host, removal: Removal, reader: Reader) -> None:
    """Give the files of one service back, together; the engine reads its configuration as it will be first."""
    returned = [one for _, one in removal.files if one.reader == reader and one.change is not None]
    changes = [one.change for one in returned if one.change is not None]
    if not changes:
        return
    for one in returned:
        save_beside(host, one)
    stays, then = removal.stays(reader), [action for action, _ in removal.of_service(reader)]
    restarts = not _READ_AGAIN.isdisjoint(then)
    service = Service(reader.unit if restarts else "", reader.engine, True, restarts, _ANSWER_TIMEOUT_S, reader.reloads)
    if stays:
        rehearse(host, service, changes)
    apply_changes(host, service if stays else replace(service, engine=""), changes, remembers=False)
    for action in then:  # a service is left as grapnel found it: not enabled, or not running
        if action in _AS_IT_WAS:
            _systemctl(host, action, reader.unit)


def _let_go(host: Host, names: Collection[str]) -> None:
    try:
        if names:
            unhold(host, names)
    except PackageError as error:
        raise RemovalError(f"the hold of {', '.join(names)} cannot be taken off: {error}") from error


def _leave_policy(host: Host) -> None:
    try:
        remove_module(host)
    except SelinuxError as error:
        raise RemovalError(str(error)) from error


def _touched(removal: Removal) -> list[str]:
    return [*(one.path for _, one in removal.files if one.change is not None), *(path for _, path in removal.own)]


def _forget(host: Host, removal: Removal, parts: Collection[str]) -> None:
    """Forget what was given back, and remove the folders that are empty now."""
    remove_marks(host, {DAEMON_UNIT, *(one.reader.unit for _, one in removal.files if one.reader.unit)})
    originals = read_originals(host)
    files = {path: one for path, one in originals.files.items() if part_of(path, one.reader) not in parts}
    gone = RUNTIME in parts
    left = replace(
        originals,
        files=files,
        packages={} if gone else originals.packages,
        units={} if gone else originals.units,
    )
    removed = remove_empty(host, [*left.folders, *(path for _, path in removal.own if path.endswith("/releases"))])
    folders = tuple(one for one in left.folders if one not in removed)
    is_over = not (left.files or left.packages)  # somebody has put something into what is left of them
    left = replace(left, folders=() if is_over else folders)
    write_originals(host, left)
    remove_empty(host, FOLDERS)
    if not host.path(PROGRAMS).exists():
        for folder in VOLATILE:
            unmount_below(host, folder)
            remove_path(host, folder)


def _systemctl(host: Host, *words: str) -> None:
    done = host.run(["systemctl", *words], _SYSTEMCTL_TIMEOUT_S)
    if done.return_code and "does not exist" not in done.stderr and "not loaded" not in done.stderr:
        raise RemovalError(f"systemctl {' '.join(words)} failed: {done.complaint}")
