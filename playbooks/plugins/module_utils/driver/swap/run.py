"""Carries out one run: the steps of a swap, of the way back, or of a removal, each written down before it begins.

A step that fails on the way forward begins the way back in the same run. A run that was cut short is continued in the
direction that it had: every step looks at the node and does what is left to do.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Callable

from ansible_collections.grapnel.node.plugins.module_utils.driver.before import restore
from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.drift import running_kernel
from ansible_collections.grapnel.node.plugins.module_utils.driver.module_files import allow_builds
from ansible_collections.grapnel.node.plugins.module_utils.driver.reboot import other_kernel, reboot_obstacle
from ansible_collections.grapnel.node.plugins.module_utils.driver.record import reserve
from ansible_collections.grapnel.node.plugins.module_utils.driver.record import run as record_of
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.journal import BEGIN, DONE, SKIPPED
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.log import FINISH, RunLog, new_name
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.run import (
    UNIT,
    RunRecord,
    boot_id,
    is_going_back,
    read_run,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import StoreError
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap import steps
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.steps import NeedsRebootError, StepError
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import HostError

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.steps import Node, Step
    from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.target import Target

SWAP, BACK, REMOVE = "swap", "back", "remove"
REPAIR, CHECK, ADOPT, INITRAMFS = "repair", "check", "adopt", "initramfs"
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
        former = read_run(node.host)
        self.awaited = ""  # why the run cannot go on before a reboot
        self.was_asked = former is not None and former.is_open and bool(former.asked_in)
        if former is not None and former.is_open:
            record = self._continued(former)
        else:
            run = new_name(node, work.change or work.verb)
            record = RunRecord(run, work.change, work.verb, UNIT, boot=boot_id(node.host))
        self.log = RunLog(node, record)
        if former is not None and former.is_open and self.log.may_have_changed(_LOOKS | {REBOOT}):
            self.log.update(changed=True)

    @property
    def record(self) -> RunRecord:
        return self.log.record

    def _continued(self, former: RunRecord) -> RunRecord:
        """Return the record of a run that goes on; one that is told to go back does so from here on.

        A run asks for one reboot in each direction, whoever rebooted the node then.
        """
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
                state = record_of.QUARANTINED if self.log.has_taken(OUT_OF_SERVICE) else record_of.FAILED
                return self.log.end(state, name, problem)
        step, problem = self._bring_to(replace(self.work.target, undone=None), "")
        if self.awaited and not problem:
            return self._wait_for_reboot()
        if not problem:
            return self._succeed(record_of.FORWARD)
        if self.record.verb != SWAP:
            return self.log.end(record_of.QUARANTINED, step, f"{step}: {problem}")
        reason = f"{step}: {problem}"
        self.log.update(direction=record_of.BACKWARD, step=step, reason=reason, reboots=0)
        with contextlib.suppress(OSError):  # a full disk is no reason to leave the node as it is now
            self.log.save()
        return self._go_back()

    def _begin(self) -> None:
        """Write down that the run goes on; raises OSError, and `StoreError` where there is no room to."""
        with contextlib.ExitStack() as stack:
            if is_going_back(self.record):
                stack.enter_context(contextlib.suppress(OSError))  # room or not: it comes to its end
            else:
                reserve.keep(self.node.host)
            allow_builds(self.node.host)
            self.log.begin()
            if self.was_asked:
                state = DONE if self.record.reboots else SKIPPED
                self.log.note(REBOOT, state, f"kernel {running_kernel(self.node.host)} runs")

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
            return self.log.end(record_of.QUARANTINED, CHECK, f"{self.record.reason}; there is no way back: {error}")
        if not self.log.was_cut_at(PACKAGES):
            target = replace(target, undone=None)
        step, problem = self._bring_to(target, BACKWARD_PREFIX)
        if problem:
            reason = f"{self.record.reason}; going back failed at {step}: {problem}"
            return self.log.end(record_of.QUARANTINED, step, reason)
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
        self.log.note(REBOOT, BEGIN, self.awaited)
        asked_in = boot_id(self.node.host)
        self.log.update(state=record_of.NEEDS_REBOOT, reboot=self.awaited, asked_in=asked_in)
        self.log.save()
        return self.record

    def _try(self, name: str, step: Callable[[], str]) -> str:
        """Take a step; returns why it failed. A bug in one must not keep the node from going back."""
        try:
            self.log.note(name, BEGIN)
            done = step()
            self.log.update(changed=self.record.changed or bool(done and name not in _LOOKS))
            self.log.note(name, DONE if done else SKIPPED, done)
        except Exception as error:  # noqa: BLE001 - see above
            problem = str(error) or type(error).__name__
            self.log.note_failure(name, problem)
            return problem
        return ""

    def _succeed(self, direction: str) -> RunRecord:
        """Say which change the node has, then do what takes time and disturbs nobody."""
        self.log.update(out_of_service_s=self.log.elapsed_s(OUT_OF_SERVICE))
        problem = self._try(ADOPT, lambda: self._adopt(direction))
        if problem:
            return self.log.end(record_of.QUARANTINED, ADOPT, f"the driver works, but this cannot be noted: {problem}")
        restore.forget(self.node.host)
        warning = ""
        if self.record.changed and not self.record.reboots:  # before a reboot it was done already
            problem = self._try(INITRAMFS, self.work.settle)
            warning = f"the driver works, but {problem}" if problem else ""
        if direction == record_of.FORWARD:
            return self.log.end(record_of.FINISHED, FINISH, warning)
        return self.log.end(
            record_of.RETURNED, self.record.step, "; ".join(filter(None, (self.record.reason, warning)))
        )


# What these steps say is no change of the node.
_LOOKS = frozenset(
    {
        prefix + name
        for prefix in ("", BACKWARD_PREFIX)
        for name in (CHECK, "mark", "start-services", "inventory", IN_SERVICE, ADOPT, INITRAMFS)
    }
)
