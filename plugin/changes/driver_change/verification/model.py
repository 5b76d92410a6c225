"""What is wanted of a node, what is found on it, and one line of the result. Values; nothing is looked at here."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plugin.changes.driver_change.expectation import Expectation, FabricPlace
    from plugin.changes.driver_change.release.record import Release
    from plugin.driver.gpu_state import GpuState, MigDevice
    from plugin.driver.snapshot import Snapshot

Value = Union[str, int, "tuple[str, ...]", None]
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class NewXid:
    """An XID error since the swap. `device` is the UUID of a GPU, or a PCI address that belongs to none."""

    device: str
    xid: int
    meaning: str
    condemns: bool


@dataclass(frozen=True)
class Trial:
    """An allocation on a GPU or on one of its MIG devices; `problem` is "" for one that went well."""

    gpu: str
    device: str
    problem: str = ""


@dataclass(frozen=True)
class Found:
    """What the node has. None: not there. `refusal` is why the driver did not answer, empty when it did.

    `states` and `silent` (why not) are by UUID. `deaf` says why errors may have been missed, `untried` why nothing was
    allocated; `has_libcuda` is whether that could be done at all.
    """

    module_version: str | None
    library_version: str | None
    snapshot: Snapshot | None
    refusal: str = ""
    states: Mapping[str, GpuState] = field(default_factory=lambda: _NOTHING)
    silent: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    xids: tuple[NewXid, ...] = ()
    deaf: str = ""
    trials: tuple[Trial, ...] = ()
    untried: str = ""
    has_libcuda: bool = True

    @property
    def uuids(self) -> tuple[str, ...]:
        """The GPUs that answered, in the driver's order."""
        return () if self.snapshot is None else tuple(gpu.uuid for gpu in self.snapshot.gpus)

    def name(self, uuid: str) -> str:
        """Return a GPU for a person."""
        gpus = () if self.snapshot is None else self.snapshot.gpus
        index = next((gpu.index for gpu in gpus if gpu.uuid == uuid), None)
        return uuid if index is None else f"gpu {index} ({uuid})"


@dataclass(frozen=True)
class Wanted:
    """What is expected: the declaration first, then what was remembered. None: not known.

    `before` is what GPUs were at the release, by UUID. `excused` were unhealthy then: what is wrong with them is told
    and fails nothing. `had_libcuda`: whether it was installed then.
    """

    driver_version: str
    gpus: tuple[str, ...] | None
    gpu_count: int | None
    before: Mapping[str, GpuState] = field(default_factory=lambda: _NOTHING)
    mig: Mapping[str, tuple[MigDevice, ...] | None] = field(default_factory=lambda: _NOTHING)
    fabric: Mapping[str, FabricPlace] = field(default_factory=lambda: _NOTHING)
    allocation: bool | None = None
    had_libcuda: bool | None = None
    excused: frozenset[str] = frozenset()


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
    unhealthy = {gpu.uuid for gpu in release.gpus if gpu.unhealthy} if release is not None else set()
    gpus, count = expectation.gpus, expectation.gpu_count
    if gpus is None and count is None:
        gpus = remembered or None
    return Wanted(
        expectation.driver_version,
        gpus,
        count,
        before=_NOTHING if release is None else release.states,
        mig=expectation.mig,
        fabric=expectation.fabric,
        allocation=expectation.allocation,
        had_libcuda=None if release is None else release.libcuda,
        excused=frozenset(unhealthy - set(expectation.gpus or ())),
    )


def result_to_json(checks: tuple[Check, ...]) -> dict[str, object]:
    """Return the result of `grapnel-node verify --json`."""
    return {"ok": all(check.ok for check in checks), "checks": [asdict(check) for check in checks]}


# Makes one check out of what is wrong with single GPUs.


def judge(
    name: str, want: Wanted, found: Found, *, problems: Sequence[tuple[str, str]], notes: Sequence[str] = ()
) -> Check:
    """Return the check of a list of (UUID, what is wrong); a GPU that was unhealthy before fails nothing."""
    failing = [f"{found.name(uuid)}: {problem}" for uuid, problem in problems if uuid not in want.excused]
    told = [
        f"was unhealthy before: {found.name(uuid)}: {problem}" for uuid, problem in problems if uuid in want.excused
    ]
    wrong = tuple(dict.fromkeys(uuid for uuid, _ in problems))
    return Check(name, (), wrong, not failing, "; ".join([*failing, *told, *notes]))
