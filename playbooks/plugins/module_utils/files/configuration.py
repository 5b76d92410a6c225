"""Changes what a service reads and makes sure that the service works with it, or leaves everything as it was.

Order: rehearse → remember what was there → mark the restart → swap the files in → tell systemd → restart → wait for an
answer → clear the mark.
A run that is killed in between leaves the mark (`units`), a service that does not come up gets its old files back.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable

from ansible_collections.grapnel.node.plugins.module_utils.daemon.files import daemon_flaw
from ansible_collections.grapnel.node.plugins.module_utils.engines.found import (
    containerd_flaw,
    containerd_silence,
    has_containerd,
)
from ansible_collections.grapnel.node.plugins.module_utils.engines.rehearsal import rehearse_engine
from ansible_collections.grapnel.node.plugins.module_utils.engines.table import ENGINES
from ansible_collections.grapnel.node.plugins.module_utils.files.file_set import (
    FileDifference,
    FileSetError,
    remove_leftovers,
    swap_back,
    swap_in,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.journal_lines import told_by
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import (
    DAEMON_UNIT,
    UnitState,
    clear_daemon_reload,
    clear_restart,
    forget_starts,
    is_daemon_reload_due,
    is_restart_due,
    mark_daemon_reload,
    mark_restart,
    unit_state,
)
from ansible_collections.grapnel.node.plugins.module_utils.removal.originals import (
    OriginalsError,
    remember_changes,
    remember_unit,
)
from ansible_collections.grapnel.node.plugins.module_utils.removal.parts import Reader

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_UNIT_FILES = "/etc/systemd/system/"
_SYSTEMCTL_TIMEOUT_S = 120.0
_RETRY_S = 0.5
_COUNTED = {"start", "restart"}  # by systemd, which allows so many in a time
_STARTS = {*_COUNTED, "reload"}
_UNIT = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9:_.@-]*\.(?:service|timer))?")


class ConfigurationError(Exception):
    """A configuration is not accepted; the message says whether anything was changed."""


@dataclass(frozen=True)
class Service:
    """The service that reads the files: how it should be, and how long it may take to answer.

    One with ``reload`` is reloaded where it would be restarted; files without a service have an empty ``unit``.
    """

    unit: str
    engine: str
    enabled: bool
    restart: bool
    timeout_s: float
    reload: bool = False
    timers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what would be an option or a path elsewhere."""
        for unit in (self.unit, *self.timers):
            if not _UNIT.fullmatch(unit):
                raise ConfigurationError(f"{unit!r} is not the name of a service or timer")


def pending_steps(host: Host, service: Service) -> list[str]:
    """Return the systemctl commands that bring the unit to its state, apart from those for changed files."""
    if not service.unit:
        return []
    return _steps(host, service, unit_state(host, service.unit))


def _steps(host: Host, service: Service, state: UnitState) -> list[str]:
    if not service.enabled:
        return [*(["disable"] if state.is_enabled else []), *(["stop"] if state.is_active else [])]
    due = service.restart or is_restart_due(host, service.unit)
    take_in = "reload" if service.reload else "restart"
    start = "start" if not state.is_active else take_in if due else ""
    return [*([] if state.is_enabled else ["enable"]), *([start] if start else [])]


def rehearse(host: Host, service: Service, changes: list[FileDifference]) -> None:
    """Let the engine read its configuration as it would be; raises `ConfigurationError`."""
    complaint = rehearse_engine(host, service.engine, changes) if service.engine else None
    if complaint:
        raise ConfigurationError(complaint)


def apply_changes(
    host: Host,
    service: Service,
    changes: list[FileDifference],
    sleep: Callable[[float], None] = time.sleep,
    *,
    remembers: bool = True,
) -> None:
    """Swap the files in and do what the unit needs; raises `ConfigurationError` after everything was put back.

    What was there before is remembered first, unless this gives it back.
    """
    state = unit_state(host, service.unit) if service.unit else None
    if remembers:
        _remember(host, service, changes, state)
    if service.engine in ENGINES and ENGINES[service.engine].folder:
        remove_leftovers(host, ENGINES[service.engine].folder)
    _swap_in(host, service, changes, state)
    failure = _set_unit_state(host, service, sleep)
    if failure is not None:
        failure += told_by(host, service.unit, service.engine)
        raise ConfigurationError(_put_back(host, service, changes, failure, sleep))
    if service.unit:
        clear_restart(host, service.unit)


def settle_timer(host: Host, service: Service, timer: str) -> list[str]:
    """Have a timer of a service run, or not run, as the service does; returns what systemctl was told."""
    own = Service(timer, "", service.enabled, restart=False, timeout_s=service.timeout_s)
    steps = pending_steps(host, own)
    if steps:
        apply_changes(host, own, [])
    return steps


def _remember(host: Host, service: Service, changes: list[FileDifference], state: UnitState | None) -> None:
    try:
        if service.engine and state is not None:
            remember_unit(host, service.unit, enabled=state.is_enabled, active=state.is_active)
        remember_changes(host, changes, Reader(service.unit, service.engine, reloads=service.reload))
    except OriginalsError as error:
        raise ConfigurationError(f"nothing was changed: {error}") from error


def _swap_in(host: Host, service: Service, changes: list[FileDifference], state: UnitState | None) -> None:
    """Swap the files in under the mark of a restart; without them there is nothing to restart for."""
    was_due, was_unread = state is None or is_restart_due(host, service.unit), is_daemon_reload_due(host)
    if state is not None and _STARTS & set(_steps(host, service, state)):
        mark_restart(host, service.unit)
    if _has_units(changes):
        mark_daemon_reload(host)
    try:
        swap_in(host, changes)
    except FileSetError as error:
        if error.is_undone and not was_due:
            clear_restart(host, service.unit)
        if error.is_undone and not was_unread:
            clear_daemon_reload(host)
        raise


def _has_units(changes: list[FileDifference]) -> bool:
    return any(change.after.path.startswith(_UNIT_FILES) for change in changes)


def _set_unit_state(host: Host, service: Service, sleep: Callable[[float], None]) -> str | None:
    """Return why the unit is not in its state, None when it is."""
    if is_daemon_reload_due(host):  # also where a run was killed before it came to this
        if "enable" in pending_steps(host, service):  # before systemd reads its units, which it does for each otherwise
            enabling = ["systemctl", "--no-reload", "enable", service.unit, *service.timers]
            done = host.run(enabling, _SYSTEMCTL_TIMEOUT_S)
            if done.return_code:
                return f"systemctl enable {service.unit} failed: {done.complaints}"
        if host.run(["systemctl", "daemon-reload"], _SYSTEMCTL_TIMEOUT_S).return_code == 0:
            clear_daemon_reload(host)
    steps = pending_steps(host, service)
    if "reload" in steps and service.unit == DAEMON_UNIT and (flaw := daemon_flaw(host)) is not None:
        return flaw  # it would go on with what it had, and only its journal would say so
    for step in steps:
        if step in _COUNTED:
            forget_starts(host, service.unit)
        done = host.run(["systemctl", step, service.unit], _SYSTEMCTL_TIMEOUT_S)
        if done.return_code:
            return f"systemctl {step} {service.unit} failed: {done.complaints}"
    return _wait_for_answer(host, service, sleep) if _STARTS & set(steps) else None


def _wait_for_answer(host: Host, service: Service, sleep: Callable[[float], None]) -> str | None:
    """Return why the service does not work: at once if that is certain, after ``timeout_s`` if it does not answer."""
    silence: str | None = None
    for _ in range(max(1, int(service.timeout_s / _RETRY_S))):
        silence = _silence(host, service)
        if silence is None:
            return containerd_flaw(host, service.engine) if has_containerd(service.engine) else None
        sleep(_RETRY_S)
    return silence


def _silence(host: Host, service: Service) -> str | None:
    state = unit_state(host, service.unit).active
    if state != "active":
        return f"{service.unit} is {state or 'unknown'}"
    # CRI-O's unit is active only once it answers (Type=notify).
    return containerd_silence(host, service.engine) if has_containerd(service.engine) else None


def _put_back(
    host: Host, service: Service, changes: list[FileDifference], failure: str, sleep: Callable[[float], None]
) -> str:
    """Restore the files and restart the service with them; returns the message."""
    if not changes:
        return failure
    if _has_units(changes):
        mark_daemon_reload(host)
    try:
        swap_back(host, changes)
    except FileSetError as error:
        return f"{failure}; the new files stay in place, because {error}"
    again = _set_unit_state(host, service, sleep)
    if again is not None:
        return f"{failure}; the files were put back, but {again}"
    clear_restart(host, service.unit)
    return f"{failure}; the files were put back, and {service.unit} works with them"
