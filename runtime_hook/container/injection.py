"""Applies a plan to one container: all of it, or nothing.

The order: examine the container's root from inside, plan, stage host files outside, apply inside. Whatever goes wrong
on the way (an operation, the time limit, a bug) is undone before the container is refused.
"""

from __future__ import annotations

import errno

from runtime_hook.base.errors import InjectionError
from runtime_hook.base.reading import describe_error
from runtime_hook.base.values import value
from runtime_hook.container.undo import UndoLog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from runtime_hook.base.deadline import Deadline
    from runtime_hook.container.operations.operation import Operation
    from runtime_hook.container.syscalls import Syscalls

    class Namespaces(Syscalls, Protocol):
        """Syscalls that can go into the container's mount namespace and back."""

        def enter(self) -> None:
            """Go into the container."""
            ...

        def leave(self) -> None:
            """Go back to the host."""
            ...


_HINTS = {
    errno.EROFS: "the image's root is read-only before the container starts: it needs a writable layer",
    errno.EXDEV: "another mount lies there: a volume, or a second injector such as CDI",
    errno.ELOOP: "a symbolic link of the image leads into the kernel's own files, or in a circle",
    errno.ENOTDIR: "the image has something else than a folder on the way",
    errno.EEXIST: "the image stands in the way",
    errno.EACCES: "in a user namespace the host's own nodes are shown: they must be readable and writable for all",
    errno.ENOSYS: "needs Linux 5.12 or later",
}


@value
class InjectionResult:
    """What was done: how many operations, and a line for each that was skipped or worth a word."""

    applied: int
    notes: tuple[str, ...]


def has_path(syscalls: Syscalls, path: str) -> bool:
    """Tell whether an image has something at a path, where that is not another mount."""
    folder, _, name = path.rpartition("/")
    try:
        return syscalls.lstat(syscalls.open_folder(folder or "/"), name) is not None
    except OSError:
        return False


def apply_plan(plan: Sequence[Operation], syscalls: Namespaces, deadline: Deadline) -> InjectionResult:
    """Stage and apply a plan; on any failure undo what was done and raise."""
    notes: list[str] = []
    staged = [operation for operation in plan if _stage(operation, syscalls, notes)]
    undo_log = UndoLog(syscalls, deadline)
    try:
        _apply_all(staged, undo_log, syscalls, deadline, notes)
    except BaseException as reason:  # the timer is off, or has gone off for its only time: undoing is not disturbed
        left = undo_log.undo_to(0)
        syscalls.leave()
        if left:
            raise InjectionError(f"{reason}; could not be undone: {', '.join(left)}") from reason
        raise
    syscalls.leave()
    return InjectionResult(len(staged), tuple(notes))


def _apply_all(
    staged: list[Operation], undo_log: UndoLog, syscalls: Namespaces, deadline: Deadline, notes: list[str]
) -> None:
    try:
        syscalls.enter()
        for operation in staged:
            _apply(operation, undo_log, notes)
        deadline.stop()
    except BaseException:
        deadline.stop()
        raise


def _stage(operation: Operation, syscalls: Syscalls, notes: list[str]) -> bool:
    try:
        operation.stage(syscalls)
    except OSError as reason:
        _refuse_or_note(operation, reason, notes)
        return False
    return True


def _apply(operation: Operation, undo_log: UndoLog, notes: list[str]) -> None:
    mark = undo_log.mark()
    try:
        note = operation.apply(undo_log)
    except OSError as reason:
        if not operation.is_mandatory:
            undo_log.undo_to(mark)
        _refuse_or_note(operation, reason, notes)
        return
    if note:
        notes.append(note)


def _refuse_or_note(operation: Operation, reason: OSError, notes: list[str]) -> None:
    what = f"cannot {operation.describe()}: {describe_error(reason)}"
    if operation.is_mandatory:
        raise InjectionError(what, _HINTS.get(reason.errno or 0, "")) from reason
    notes.append(f"skipped: {what}")
