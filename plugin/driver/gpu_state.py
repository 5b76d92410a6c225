"""What a GPU is set up as and how worn its memory is: what must be so again after a driver swap. Values and their JSON.

Taken before the swap (`release`) and after it (`verify`), in the same way. Not here: asking NVML, and what a difference
means.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

COMPLETED = "completed"  # of a fabric; the other states are NVML's words for what is not ready yet
_FLAGS = {
    "eccEnabled": "ecc_enabled",
    "rowsPending": "rows_pending",
    "rowsFailed": "rows_failed",
    "pagesPending": "pages_pending",
}
_ALL_SLICES = re.compile(r"^([0-9]+)c\.(?=\1g\.)")
_COUNTS = {"linksActive": "links_active", "uncorrected": "uncorrected"}


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
        **{key: getattr(state, name) for key, name in {**_COUNTS, **_FLAGS}.items()},
    }


def parse_states(value: object) -> dict[str, GpuState]:
    """Return the states of GPUs by UUID; raises ValueError. A key that is not there is None."""
    if not isinstance(value, dict):
        raise ValueError("states must be an object")  # noqa: TRY004 - the file is wrong, not the program
    return {uuid: _parse_state(state) for uuid, state in value.items()}


def _parse_state(value: object) -> GpuState:
    document = _object(value, "a state")
    mig, fabric = document.get("mig"), document.get("fabric")
    if mig is not None and not isinstance(mig, list):
        raise ValueError("mig must be a list")
    return GpuState(
        mig=None if mig is None else tuple(map(_parse_mig, mig)),
        fabric=None if fabric is None else _parse_fabric(fabric),
        **{name: _maybe(document, key, int) for key, name in _COUNTS.items()},
        **{name: _maybe(document, key, bool) for key, name in _FLAGS.items()},
    )


def _parse_mig(value: object) -> MigDevice:
    document = _object(value, "a mig device")
    return MigDevice(
        _maybe(document, "profile", str) or "", _maybe(document, "start", int), _maybe(document, "size", int)
    )


def _parse_fabric(value: object) -> Fabric:
    document = _object(value, "fabric")
    state, cluster = _maybe(document, "state", str), _maybe(document, "cluster", str)
    return Fabric(state or "", cluster or "", _maybe(document, "clique", int))


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} must be an object")  # noqa: TRY004 - the file is wrong, not the program
    return value


def _maybe(document: Mapping[str, Any], key: str, kind: type) -> Any:  # noqa: ANN401 - JSON
    value = document.get(key)
    if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
        raise ValueError(f"{key} is not what it must be")
    return value
