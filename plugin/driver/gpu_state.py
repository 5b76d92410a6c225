"""What a GPU is set up as and how worn its memory is: what must be so again after a driver swap. Values and their JSON.

Taken before the swap (`release`) and after it (`verify`), in the same way. Not here: asking NVML, and what a difference
means.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from plugin.base.documents import list_of, member, members, optional, text, truth, whole

if TYPE_CHECKING:
    from collections.abc import Callable

_Value = TypeVar("_Value")

COMPLETED = "completed"  # of a fabric; the other states are NVML's words for what is not ready yet
_ALL_SLICES = re.compile(r"^([0-9]+)c\.(?=\1g\.)")


@dataclass(frozen=True)
class MigDevice:
    """A MIG device: its profile as NVIDIA writes it, and its slices of memory. None: not told or not said."""

    profile: str
    start: int | None = None
    size: int | None = None

    @property
    def short_profile(self) -> str:
        """The profile without compute slices where it has all of them: 1c.1g.5gb is 1g.5gb (go-nvlib's MigProfile)."""
        return _ALL_SLICES.sub("", self.profile)

    def __str__(self) -> str:
        """Return it as `nvidia-smi mig -lgi` writes a placement: 3g.20gb at 4:4."""
        return self.profile if self.start is None else f"{self.profile} at {self.start}:{self.size}"


@dataclass(frozen=True)
class Fabric:
    """The place of a GPU in an NVLink fabric; cluster and clique once the state is completed."""

    state: str
    cluster: str = ""
    clique: int | None = None

    def __str__(self) -> str:
        """Return it as NVIDIA's label `gpu.clique` does, or the state."""
        return f"{self.cluster}.{self.clique}" if self.state == COMPLETED else self.state


@dataclass(frozen=True)
class GpuState:
    """One GPU. None: it has no such thing, or does not tell. `mig` is None with MIG off.

    `links_active` counts NVLinks, `uncorrected` the memory errors of the GPU's whole life.
    """

    mig: tuple[MigDevice, ...] | None = None
    fabric: Fabric | None = None
    links_active: int | None = None
    ecc_enabled: bool | None = None
    uncorrected: int | None = None
    rows_pending: bool | None = None
    rows_failed: bool | None = None
    pages_pending: bool | None = None


def state_to_json(state: GpuState) -> dict[str, object]:
    """Return a state in the form of the remembered release."""
    mig, fabric = state.mig, state.fabric
    return {
        "mig": None if mig is None else [{"profile": d.profile, "start": d.start, "size": d.size} for d in mig],
        "fabric": fabric and {"state": fabric.state, "cluster": fabric.cluster, "clique": fabric.clique},
        "linksActive": state.links_active,
        "uncorrected": state.uncorrected,
        "eccEnabled": state.ecc_enabled,
        "rowsPending": state.rows_pending,
        "rowsFailed": state.rows_failed,
        "pagesPending": state.pages_pending,
    }


def parse_states(value: object) -> dict[str, GpuState]:
    """Return the states of GPUs by UUID; raises ValueError. A key that is not there is None."""
    return {uuid: _parse_state(state) for uuid, state in members(value).items()}


def _parse_state(value: object) -> GpuState:
    return GpuState(
        mig=_maybe(value, "mig", list_of(_parse_mig)),
        fabric=_maybe(value, "fabric", _parse_fabric),
        links_active=_maybe(value, "linksActive", whole()),
        ecc_enabled=_maybe(value, "eccEnabled", truth),
        uncorrected=_maybe(value, "uncorrected", whole()),
        rows_pending=_maybe(value, "rowsPending", truth),
        rows_failed=_maybe(value, "rowsFailed", truth),
        pages_pending=_maybe(value, "pagesPending", truth),
    )


def _parse_mig(value: object) -> MigDevice:
    return MigDevice(
        _maybe(value, "profile", text()) or "", _maybe(value, "start", whole()), _maybe(value, "size", whole())
    )


def _parse_fabric(value: object) -> Fabric:
    state, cluster = _maybe(value, "state", text()), _maybe(value, "cluster", text())
    return Fabric(state or "", cluster or "", _maybe(value, "clique", whole()))


def _maybe(document: object, key: str, parse: Callable[[object], _Value]) -> _Value | None:
    return member(document, key, optional(parse), None)
