"""Whether a node's driver is what was declared: a table of checks over what was found. Pure.

A further check (errors since the swap, MIG layout, fabric) is one more function in `CHECKS`, and one more
field of `Found` where it needs to look at something new. Not here: the looking.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Union

from plugin.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from plugin.expectation import Expectation
    from plugin.release.record import Release
    from plugin.snapshot import Snapshot

Value = Union[str, int, "tuple[str, ...]", None]


@dataclass(frozen=True)
class Found:
    """What the node has. None: not there. `refusal` is why the driver did not answer, empty when it did."""

    module_version: str | None
    library_version: str | None
    snapshot: Snapshot | None
    refusal: str = ""

    @property
    def uuids(self) -> tuple[str, ...]:
        """The GPUs that answered, in the driver's order."""
        return () if self.snapshot is None else tuple(gpu.uuid for gpu in self.snapshot.gpus)


@dataclass(frozen=True)
class Wanted:
    """What is expected: the declaration first, then what was remembered. None: nobody knows."""

    driver_version: str
    gpus: tuple[str, ...] | None
    gpu_count: int | None


@dataclass(frozen=True)
class Check:
    """One line of the result. `message` says in plain words what is wrong, or what was not compared."""

    name: str
    expected: Value
    found: Value
    ok: bool
    message: str = ""


def wanted(expectation: Expectation, release: Release | None) -> Wanted:
    """Fill what the expectation leaves open from the release: GPUs that were healthy then."""
    remembered = tuple(gpu.uuid for gpu in release.gpus if not gpu.unhealthy) if release is not None else ()
    gpus, count = expectation.gpus, expectation.gpu_count
    if gpus is None and count is None:
        gpus = remembered or None
    return Wanted(expectation.driver_version, gpus, count)


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
    return Check("gpu-answers", (), silent, not lost, "; ".join(messages))


CHECKS: tuple[Callable[[Wanted, Found], Check], ...] = (_module, _library, _nvml, _gpu_count, _gpus, _answers)


def verify(want: Wanted, found: Found) -> tuple[Check, ...]:
    """Make every check, also after one that fails: a person sees all of it at once."""
    return tuple(check(want, found) for check in CHECKS)


def result_to_json(checks: tuple[Check, ...]) -> dict[str, object]:
    """Return the result of `grapnel-node verify --json`."""
    return {"ok": all(check.ok for check in checks), "checks": [asdict(check) for check in checks]}
