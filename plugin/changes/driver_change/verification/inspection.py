"""Looks at a node for `verify`: module, library, one session with NVML, an allocation on each GPU, the kernel's log.

Everything is bounded by one time limit, and what was found before something hung counts. Not here: what it means.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plugin.base.errors import DriverNotReady, NoAnswer, os_reason
from plugin.changes.driver_change.verification.comparison import fabric_problem
from plugin.changes.driver_change.verification.model import Found, NewXid, Trial
from plugin.devices.health.xid import judge_xid
from plugin.driver.cuda_probe.runner import find_libcuda, try_devices
from plugin.driver.kernel_log import KMSG, read_records, xids_since
from plugin.driver.nvml.loading.library import NvmlSource, library_version
from plugin.driver.nvml.loading.root import HOST
from plugin.system.bounded import call_within

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from plugin.changes.driver_change.verification.model import Wanted
    from plugin.devices.health.model import Policy
    from plugin.driver.gpu_state import GpuState
    from plugin.driver.kernel_log import LoggedXid
    from plugin.driver.reading import XidEvent
    from plugin.driver.snapshot import Snapshot

_FABRIC_S = 60.0  # a fabric manager that has just been started needs that long for eight GPUs
_FABRIC_POLL_S = 0.2
_SLACK_S = 2.0  # for the session to end after the last allocation


@dataclass(frozen=True)
class Host:
    """Where to look. `since_s` is when the node was released, in seconds of the kernel's clock; None: unknown."""

    sys_root: Path
    driver_root: Path = HOST
    kernel_log: Path = KMSG
    since_s: float | None = None


@dataclass
class _Session:
    """What one session with NVML brings, filled in as it goes: a part of it is better than nothing."""

    source: NvmlSource
    snapshot: Snapshot | None = None
    states: Mapping[str, GpuState] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)
    events: tuple[XidEvent, ...] = ()
    trials: tuple[Trial, ...] = ()
    deaf: str = ""
    untried: str = ""


def find(want: Wanted, host: Host, policy: Policy, timeout_s: float) -> Found:
    """Look at the node; a driver that refuses or hangs is something that is found."""
    deadline = time.monotonic() + timeout_s
    module, library = _module_version(host.sys_root), library_version(host.driver_root)
    libcuda = find_libcuda(host.driver_root)
    session, refusal = _Session(NvmlSource(host.driver_root)), ""
    try:
        call_within(timeout_s, lambda: _look(session, want, libcuda, deadline), "nvml")
    except (DriverNotReady, NoAnswer) as error:
        refusal = f"{error.message}; {error.hint}" if error.hint else error.message
    if any(trial.problem for trial in session.trials) and not (host.sys_root / "module/nvidia_uvm").exists():
        session.untried = "kernel module nvidia-uvm is not loaded: modprobe nvidia-uvm"
    logged, deaf = _read_log(host)
    return Found(
        module,
        library,
        session.snapshot,
        refusal,
        states=session.states,
        silent=session.silent,
        xids=_judge(session, logged, policy),
        deaf=" and ".join(filter(None, (session.deaf, deaf))),
        trials=session.trials,
        untried=session.untried,
        has_libcuda=libcuda is not None,
    )


def _module_version(sys_root: Path) -> str | None:
    try:
        return (sys_root / "module/nvidia/version").read_text().strip()
    except OSError:
        return None


def _look(session: _Session, want: Wanted, libcuda: str | None, deadline: float) -> None:
    source = session.source
    source.open()
    try:
        source.listen()
        session.snapshot = source.snapshot()
        session.states, session.silent = source.read_states()
        _wait_for_fabric(session, want, deadline)
        _allocate(session, want, libcuda, deadline)
        try:
            session.events = source.poll_events()
        except DriverNotReady as error:
            session.deaf = error.message
    finally:
        source.close()


def _wait_for_fabric(session: _Session, want: Wanted, deadline: float) -> None:
    """Give GPUs that are to join an NVLink fabric the time for it: some seconds after the driver is loaded."""
    end = min(time.monotonic() + _FABRIC_S, deadline - _FABRIC_S / 4)
    while time.monotonic() < end and _is_fabric_awaited(session, want):
        time.sleep(_FABRIC_POLL_S)
        session.states, session.silent = session.source.read_states()


def _is_fabric_awaited(session: _Session, want: Wanted) -> bool:
    return any(
        state.fabric is not None
        and state.fabric.state in {"not started", "in progress"}
        and uuid not in want.excused
        and fabric_problem(want, uuid, state.fabric)
        for uuid, state in session.states.items()
    )


def _allocate(session: _Session, want: Wanted, libcuda: str | None, deadline: float) -> None:
    if want.allocation is False:
        session.untried = "not tried: the expectation says so"
    if want.allocation is False or libcuda is None or session.snapshot is None:
        return
    owners: dict[str, str] = {}
    for gpu in session.snapshot.gpus:
        state = session.states.get(gpu.uuid)
        is_divided = state is not None and state.mig is not None
        owners.update({mig.uuid: gpu.uuid for mig in gpu.mig} if is_divided else {gpu.uuid: gpu.uuid})
        if is_divided and not gpu.mig:
            session.untried = "not tried where mig is on without a device"
    found = try_devices(list(owners), libcuda, max(1.0, deadline - time.monotonic() - _SLACK_S))
    session.trials = tuple(Trial(owners[device], device, problem) for device, problem in found.items())


def _read_log(host: Host) -> tuple[tuple[LoggedXid, ...], str]:
    try:
        found = xids_since(read_records(host.kernel_log), host.since_s)
    except OSError as error:
        reason = os_reason(error)
        return (), f"earlier xid errors are not known: {host.kernel_log}: {reason}"
    if found is None:
        return (
            (),
            "earlier xid errors are not known: the kernel's log no longer has when the driver was loaded",
        )
    return found, ""


def _judge(session: _Session, logged: tuple[LoggedXid, ...], policy: Policy) -> tuple[NewXid, ...]:
    """Return what both sources say, each error of a GPU once; an event of a MIG device is its GPU's."""
    gpus = () if session.snapshot is None else session.snapshot.gpus
    by_address = {gpu.pci_address.rpartition(".")[0]: gpu.uuid for gpu in gpus}
    parents = {mig.uuid: gpu.uuid for gpu in gpus for mig in gpu.mig}
    seen = [(by_address.get(xid.pci_address.rpartition(".")[0], xid.pci_address), xid.xid) for xid in logged]
    seen += [
        (parents.get(event.device, event.device) or "a gpu that cannot be told", event.xid) for event in session.events
    ]
    judged = [(device, judge_xid(number, policy)) for device, number in dict.fromkeys(seen)]
    return tuple(NewXid(device, xid.number, xid.meaning, xid.kind.condemns) for device, xid in judged)


def read_states(driver_root: Path, timeout_s: float) -> Mapping[str, GpuState]:
    """Return how the GPUs are set up now, to be remembered; raises DriverNotReady and NoAnswer."""

    def ask() -> Mapping[str, GpuState]:
        source = NvmlSource(driver_root)
        source.open()
        try:
            return source.read_states()[0]
        finally:
            with suppress(DriverNotReady):
                source.close()

    return call_within(timeout_s, ask, "nvml")
