"""Whether a node's driver is what was declared: a table of checks over what was found. Pure.

A further check is one more function in `CHECKS`, and one more field of `Found` where it needs to look at something new.
Every check has something to say about every node: one that compares nothing says so. Not here: the looking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.changes.driver_change.verification.comparison import check_fabric, check_memory, check_mig, check_nvlink
from plugin.changes.driver_change.verification.model import Check, judge

if TYPE_CHECKING:
    from collections.abc import Callable

    from plugin.changes.driver_change.verification.model import Found, Wanted


def _module(want: Wanted, found: Found) -> Check:
    version = found.module_version
    message = ""
    if version is None:
        message = "kernel module nvidia is not loaded: modprobe nvidia"
    elif version != want.driver_version:
        message = f"the loaded kernel module is {version}: reload it or reboot"
    return Check("module-version", want.driver_version, version, not message, message)


def _library(want: Wanted, found: Found) -> Check:
    version = found.library_version
    message = ""
    if version is None:
        message = "libnvidia-ml.so.1 cannot be loaded: install the driver's user-space libraries"
    elif version != want.driver_version:
        message = f"the installed libraries are {version}: install the declared version"
    return Check("library-version", want.driver_version, version, not message, message)


def _nvml(_want: Wanted, found: Found) -> Check:
    return Check("nvml", "answers", "answers" if not found.refusal else "refuses", not found.refusal, found.refusal)


def _gpu_count(want: Wanted, found: Found) -> Check:
    count = len(found.uuids)
    if want.gpu_count is None:
        is_any = count > 0
        message = "" if is_any else "no gpu answers"
        return Check("gpu-count", None, count, is_any, message)
    message = "" if count == want.gpu_count else f"{count} of {want.gpu_count} gpus answer"
    return Check("gpu-count", want.gpu_count, count, not message, message)


def _gpus(want: Wanted, found: Found) -> Check:
    if want.gpus is None:
        return Check("gpus", None, found.uuids, ok=True, message="not compared: no uuid is declared or remembered")
    missing = [uuid for uuid in want.gpus if uuid not in found.uuids]
    further = [uuid for uuid in found.uuids if uuid not in want.gpus]
    messages = [f"missing: {', '.join(missing)}"] if missing else []
    messages += [f"there as well: {', '.join(further)}"] if further else []
    return Check("gpus", want.gpus, found.uuids, not missing, "; ".join(messages))


def _answers(_want: Wanted, found: Found) -> Check:
    lost = () if found.snapshot is None else found.snapshot.lost
    messages = [f"gpu {gpu.index} ({gpu.uuid or 'uuid unknown'}): {gpu.reason}" for gpu in lost]
    silent = tuple(gpu.uuid or f"gpu {gpu.index}" for gpu in lost)
    half = [uuid for uuid in found.silent if uuid not in silent]
    messages += [f"{found.name(uuid)}: does not tell its state: {found.silent[uuid]}" for uuid in half]
    silent += tuple(half)
    return Check("gpu-answers", (), silent, not silent, "; ".join(messages))


def _xids(want: Wanted, found: Found) -> Check:
    words = [(new, f"xid {new.xid}, {new.meaning}") for new in found.xids]
    check = judge(
        "xids",
        want,
        found,
        problems=[(new.device, text) for new, text in words if new.condemns],
        notes=[
            *(f"harmless: {found.name(new.device)}: {text}" for new, text in words if not new.condemns),
            *((found.deaf,) if found.deaf else ()),
        ],
    )
    return Check(check.name, (), tuple(f"{new.device} {new.xid}" for new in found.xids), check.ok, check.message)


def _allocation(want: Wanted, found: Found) -> Check:
    if not found.has_libcuda and want.allocation is not False:
        is_wrong = want.allocation is True or bool(want.had_libcuda)
        hint = "install the driver's compute libraries" if is_wrong else "cuda programs cannot run on this node"
        message = f"{'' if is_wrong else 'not tried: '}libcuda.so.1 is not installed: {hint}"
        return Check("allocation", None, (), not is_wrong, message)
    problems = []
    for trial in found.trials:
        where = "" if trial.device == trial.gpu else f"{trial.device}: "
        problems += [(trial.gpu, f"{where}{trial.problem}")] if trial.problem else []
    good = tuple(trial.device for trial in found.trials if not trial.problem)
    check = judge("allocation", want, found, problems=problems, notes=[found.untried] if found.untried else [])
    return Check("allocation", tuple(trial.device for trial in found.trials), good, check.ok, check.message)


CHECKS: tuple[Callable[[Wanted, Found], Check], ...] = (
    _module,
    _library,
    _nvml,
    _gpu_count,
    _gpus,
    _answers,
    check_mig,
    check_fabric,
    check_nvlink,
    check_memory,
    _xids,
    _allocation,
)


def verify(want: Wanted, found: Found) -> tuple[Check, ...]:
    """Make every check, also after one that fails: a person sees all of it at once."""
    return tuple(check(want, found) for check in CHECKS)
