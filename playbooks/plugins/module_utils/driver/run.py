"""Carries out one run: the steps of a swap, of the way back, or of a removal, each written down before it begins.

A step that fails on the way forward begins the way back in the same run. A run that was cut short is continued in the
direction that it had: every step looks at the node and does what is left to do.
"""

from __future__ import annotations

import contextlib
import errno
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Callable

from ansible_collections.grapnel.node.plugins.module_utils.driver import reserve, restore, steps
from ansible_collections.grapnel.node.plugins.module_utils.driver import run_record as record_of
from ansible_collections.grapnel.node.plugins.module_utils.driver.drift import running_kernel
from ansible_collections.grapnel.node.plugins.module_utils.driver.journal import (
    BEGIN,
    DONE,
    FAILED,
    SKIPPED,
    Journal,
    read_journal,
    remove_old_journals,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.module_files import allow_builds
from ansible_collections.grapnel.node.plugins.module_utils.driver.reboot import other_kernel, reboot_obstacle
from ansible_collections.grapnel.node.plugins.module_utils.driver.run_record import (
    UNIT,
    RunRecord,
    boot_id,
    is_going_back,
    read_run,
    write_run,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.steps import NeedsRebootError, StepError
from ansible_collections.grapnel.node.plugins.module_utils.driver.store import StoreError
from ansible_collections.grapnel.node.plugins.module_utils.host import HostError

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.driver.steps import Node, Step
    from ansible_collections.grapnel.node.plugins.module_utils.driver.target import Target

SWAP, BACK, REMOVE = "swap", "back", "remove"
RUN, REPAIR, CHECK, ADOPT, INITRAMFS, FINISH = "run", "repair", "check", "adopt", "initramfs", "finish"
BACKWARD_PREFIX = "back-"
REBOOT = "reboot"
OUT_OF_SERVICE, UNLOAD, PACKAGES, LOAD, IN_SERVICE = "stop-services", "unload", "packages", "load", "verify"

# In this order, on the way forward and on the way back.
STEPS: tuple[tuple[str, Step], ...] = (
    ("mark", steps.mark),
    (OUT_OF_SERVICE, steps.stop_services),
    (UNLOAD, steps.unload),
    (PACKAGES, steps.install_packages),
    ("files", steps.write_files),
    ("hold", steps.hold),
    (LOAD, steps.load),
    ("device-nodes", steps.make_device_nodes),
    ("mig", steps.restore_mig),
    ("start-services", steps.start_services),
    ("inventory", steps.refresh_inventory),
    (IN_SERVICE, steps.verify),
)
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class Work:
    """What a run is to do.

    ``check`` raises before anything is disturbed. ``back`` gives the target of the way back from a swap. Once the
    driver is verified, ``adopt`` says which change the node has now, by the direction, and ``settle`` does what can
    wait. ``may_reboot``: the node may be rebooted for it.
    """

    verb: str
    change: str
    target: Target
    check: Callable[[], None]
    settle: Callable[[], str]
    adopt: Callable[[str], str]
    back: Callable[[], Target]
    may_reboot: bool = False


def carry_out(node: Node, work: Work) -> RunRecord:
    """Carry a run out, or one that is open to its end or to the reboot that it needs; returns its record.

    Raises OSError.
    """
    run = _Run(node, work)
    return run.go()


class _Run:
    """One run, and its record so far."""

    def __init__(self, node: Node, work: Work) -> None:
        self.node, self.work = node, work
        boot = boot_id(node.host)
        former = read_run(node.host)
        self.awaited = ""  # why the run cannot go on before a reboot
        self.was_asked = former is not None and former.is_open and bool(former.asked_in)
        if former is not None and former.is_open:
            self.record = self._continued(former)
        else:
            run = _new_name(node, work.change or work.verb)
            self.record = RunRecord(run, work.change, work.verb, UNIT, boot=boot)
        self.journal = Journal(node.host, self.record.run, node.clock)

    def _continued(self, former: RunRecord) -> RunRecord:
        """Return the record of a run that goes on; one that is told to go back does so from here on.

        A run asks for one reboot in each direction, whoever rebooted the node then. What it had changed before it was
        killed is known from its journal alone.
        """
        former = replace(former, changed=former.changed or _may_have_changed(self.node, former.run))
        if former.asked_in:
            reboots = former.reboots + (former.asked_in != boot_id(self.node.host))
            former = replace(former, state=record_of.RUNNING, reboot="", asked_in="", reboots=reboots)
        if former.verb == SWAP and self.work.verb == BACK and former.direction == record_of.FORWARD:
            reason = former.reason or "it was cut short, and the way back was asked for"
            return replace(former, direction=record_of.BACKWARD, reason=reason, reboots=0)
        return former

    def go(self) -> RunRecord:
        self._begin()
        if self.record.direction == record_of.BACKWARD:
            return self._go_back()
        for name, prepare in ((REPAIR, lambda: steps.repair(self.node)), (CHECK, self._check)):
            problem = self._try(name, prepare)
            if problem:
                state = record_of.QUARANTINED if self._has_begun() else record_of.FAILED
                return self._end(state, name, problem)
        step, problem = self._bring_to(replace(self.work.target, undone=None), "")
        if self.awaited and not problem:
            return self._wait_for_reboot()
        if not problem:
            return self._succeed(record_of.FORWARD)
        if self.record.verb != SWAP:
            return self._end(record_of.QUARANTINED, step, f"{step}: {problem}")
        reason = f"{step}: {problem}"
        self.record = replace(self.record, direction=record_of.BACKWARD, step=step, reason=reason, reboots=0)
        with contextlib.suppress(OSError):  # a full disk is no reason to leave the node as it is now
            self._save()
        return self._go_back()

    def _begin(self) -> None:
        """Write down that the run goes on; raises OSError, and `StoreError` where there is no room to."""
        with contextlib.ExitStack() as stack:
            if is_going_back(self.record):
                stack.enter_context(contextlib.suppress(OSError))  # room or not: it comes to its end
            else:
                reserve.keep(self.node.host)
            allow_builds(self.node.host)
            self._save()
            remove_old_journals(self.node.host)
            self.journal.write(RUN, BEGIN, f"{self.record.verb} {self.record.change}, {self.record.direction}")
            if self.was_asked:
                state = DONE if self.record.reboots else SKIPPED
                self._note(REBOOT, state, f"kernel {running_kernel(self.node.host)} runs")

    def _save(self) -> None:
        """Write the record, on a disk that has become full with the room that was kept for it; raises OSError."""
        try:
            write_run(self.node.host, self.record)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            reserve.release(self.node.host)
            write_run(self.node.host, self.record)

    def _adopt(self, direction: str) -> str:
        with contextlib.suppress(OSError):
            reserve.share(self.node.host)
        return self.work.adopt(direction)

    def _check(self) -> str:
        self.work.check()
        return "as staged"

    def _go_back(self) -> RunRecord:
        """Restore what was there before; whoever asked for that as such has it done, others are told what failed."""
        with contextlib.suppress(OSError):
            reserve.share(self.node.host)  # a transaction needs a little room for itself, too
        try:
            target = self.work.back()
        except (StoreError, HostError) as error:
            return self._end(record_of.QUARANTINED, CHECK, f"{self.record.reason}; there is no way back: {error}")
        if not self._was_cut_at_packages():
            target = replace(target, undone=None)
        step, problem = self._bring_to(target, BACKWARD_PREFIX)
        if problem:
            reason = f"{self.record.reason}; going back failed at {step}: {problem}"
            return self._end(record_of.QUARANTINED, step, reason)
        if self.awaited:
            return self._wait_for_reboot()
        return self._succeed(record_of.BACKWARD)

    def _bring_to(self, target: Target, prefix: str) -> tuple[str, str]:
        """Take all steps, or those up to the reboot that is ``awaited`` then; returns the one that failed, and why."""
        self.awaited = ""
        for name, step in STEPS:
            if name == LOAD and self.awaited:
                # What the next boot loads first is in the initramfs: it must not be the former driver.
                return prefix + INITRAMFS, self._try(prefix + INITRAMFS, self.work.settle)
            take = self._unload if name == UNLOAD else step
            problem = self._try(prefix + name, lambda take=take: take(self.node, target))  # type: ignore[misc] # inferred
            if problem:
                return prefix + name, problem
        return "", ""

    def _unload(self, node: Node, target: Target) -> str:
        """Unload, or leave the module loaded until the reboot that is needed and allowed."""
        obstacle = reboot_obstacle(node.host, target, is_allowed=self.work.may_reboot, reboots=self.record.reboots)
        self.awaited = other_kernel(node.host, target)
        if self.awaited and not obstacle:
            return ""
        if self.awaited and self.record.direction == record_of.FORWARD:
            raise StepError(f"{self.awaited}; {obstacle}")
        self.awaited = ""
        try:
            return steps.unload(node, target)
        except NeedsRebootError as error:
            if obstacle:
                raise StepError(f"{error}; {obstacle}") from error
            self.awaited = str(error)
            return ""

    def _wait_for_reboot(self) -> RunRecord:
        """End here: whoever took the node out of service reboots it, and calls the same verb again."""
        self._note(REBOOT, BEGIN, self.awaited)
        asked_in = boot_id(self.node.host)
        self.record = replace(self.record, state=record_of.NEEDS_REBOOT, reboot=self.awaited, asked_in=asked_in)
        self._save()
        return self.record

    def _try(self, name: str, step: Callable[[], str]) -> str:
        """Take a step; returns why it failed. A bug in one must not keep the node from going back."""
        try:
            self._note(name, BEGIN)
            done = step()
            self.record = replace(self.record, changed=self.record.changed or bool(done and name not in _LOOKS))
            self._note(name, DONE if done else SKIPPED, done)
        except Exception as error:  # noqa: BLE001 - see above
            problem = str(error) or type(error).__name__
            with contextlib.suppress(OSError):
                self.journal.write(name, FAILED, problem)
            return problem
        return ""

    def _note(self, name: str, state: str, detail: str = "") -> None:
        """Write an event down. On the way back a full disk is no reason to stop half-way."""
        try:
            self.journal.write(name, state, detail)
        except OSError as error:
            if self.record.direction == record_of.FORWARD:
                raise StepError(f"the journal cannot be written: {error.strerror or error}") from error

    def _succeed(self, direction: str) -> RunRecord:
        """Say which change the node has, then do what takes time and disturbs nobody."""
        self.record = replace(self.record, out_of_service_s=self._out_of_service_s())
        problem = self._try(ADOPT, lambda: self._adopt(direction))
        if problem:
            return self._end(record_of.QUARANTINED, ADOPT, f"the driver works, but this cannot be noted: {problem}")
        restore.forget(self.node.host)
        warning = ""
        if self.record.changed and not self.record.reboots:  # before a reboot it was done already
            problem = self._try(INITRAMFS, self.work.settle)
            warning = f"the driver works, but {problem}" if problem else ""
        if direction == record_of.FORWARD:
            return self._end(record_of.FINISHED, FINISH, warning)
        return self._end(record_of.RETURNED, self.record.step, "; ".join(filter(None, (self.record.reason, warning))))

    def _end(self, state: str, step: str, reason: str) -> RunRecord:
        self.record = replace(self.record, state=state, step=step, reason=reason)
        with contextlib.suppress(OSError):  # the record is what counts
            self.journal.write(FINISH, DONE if state == record_of.FINISHED else FAILED, reason or state)
        self._save()
        with contextlib.suppress(OSError):
            reserve.release(self.node.host)
        return self.record

    def _was_cut_at_packages(self) -> bool:
        """Tell whether the way forward was killed in the middle of its transaction, and none back has begun since."""
        events = [event for event in read_journal(self.node.host, self.record.run) if event["step"].endswith(PACKAGES)]
        return bool(events) and (events[-1]["step"], events[-1]["state"]) == (PACKAGES, BEGIN)

    def _has_begun(self) -> bool:
        """Tell whether a part of this run, before a kill perhaps, may have disturbed something."""
        return any(event["step"].endswith(OUT_OF_SERVICE) for event in read_journal(self.node.host, self.record.run))

    def _out_of_service_s(self) -> float:
        """Measure from the first service stopped to the driver verified; across a reboot by the clock on the wall."""
        events = read_journal(self.node.host, self.record.run)
        begin = next((event for event in events if event["step"].endswith(OUT_OF_SERVICE)), None)
        if begin is None or not self.record.changed:
            return 0.0
        if self.record.boot == boot_id(self.node.host):
            return round(self.node.clock.monotonic() - float(begin["monotonic_s"]), 3)
        return round(max(0.0, self.node.clock.now() - _seconds(str(begin["time"]))), 3)


# What these steps say is no change of the node.
_LOOKS = frozenset(
    {
        prefix + name
        for prefix in ("", BACKWARD_PREFIX)
        for name in (CHECK, "mark", "start-services", "inventory", IN_SERVICE, ADOPT, INITRAMFS)
    }
)


_NO_STEPS = frozenset({RUN, REBOOT, FINISH})


def _may_have_changed(node: Node, run: str) -> bool:
    """Tell whether a run that was cut short has changed the node; the step that it was killed in counts as well."""
    left: dict[str, str] = {}
    for event in read_journal(node.host, run):
        step, state = str(event["step"]), str(event["state"])
        if step not in _LOOKS | _NO_STEPS and left.get(step) not in (DONE, FAILED):
            left[step] = state
    return any(state != SKIPPED for state in left.values())


def _new_name(node: Node, subject: str) -> str:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(node.clock.now()))
    name, number = f"{stamp}-{subject}", 2
    while read_journal(node.host, name):
        name, number = f"{stamp}-{subject}-{number}", number + 1
    return name


def _seconds(stamp: str) -> float:
    import calendar  # noqa: PLC0415 - for a run that a reboot has cut in two

    return float(calendar.timegm(time.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ")))
