"""What a `version: v1` file says about shared GPUs, read whole. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_MIN_REPLICAS, _MAX_REPLICAS = 2, 1000  # as in a declaration
_UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_DEVICE = re.compile(rf"[0-9]+(:[0-9]+)?|(GPU|MIG)-{_UUID}|MIG-GPU-{_UUID}/[0-9]+/[0-9]+")
TIME_SLICING, MPS = "timeSlicing", "mps"


@dataclass(frozen=True)
class Share:
    """One resource that is to be offered several times. `devices`: None is all, a number so many, else which."""

    strategy: str
    resource: str
    replicas: int
    rename: str = ""
    devices: int | tuple[str, ...] | None = None
    origin: str = field(default="", compare=False)  # where it stands


@dataclass(frozen=True)
class Strategy:
    """What a file says of one strategy. `fail_requests_greater_than_one`: None where it does not say."""

    name: str
    shares: tuple[Share, ...]
    rename_by_default: bool = False
    fail_requests_greater_than_one: bool | None = None

    @property
    def refuses_several(self) -> bool:
        """Whether a container may have one share alone; unless the file says otherwise this is so with MPS.

        As NVIDIA's plugin decides (`NewConfig` in `api/config/v1/config.go`, 0.20).
        """
        said = self.fail_requests_greater_than_one
        return self.name == MPS if said is None else said


@dataclass(frozen=True)
class Sharing:
    """Everything below `sharing`."""

    strategies: tuple[Strategy, ...] = ()

    @property
    def shares(self) -> tuple[Share, ...]:
        """The shares of all strategies."""
        return tuple(share for strategy in self.strategies for share in strategy.shares)


def parse_replicas(value: object) -> int:
    """Return how many containers share a device; raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int) or not _MIN_REPLICAS <= value <= _MAX_REPLICAS:
        raise ValueError(f"must be a whole number from {_MIN_REPLICAS} to {_MAX_REPLICAS}")
    return value


def parse_devices(value: object) -> int | tuple[str, ...] | None:
    """Return which devices are shared: "all", a count, or indices, MIG indices and UUIDs; raises ValueError."""
    if value == "all":
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if isinstance(value, list) and value:
        texts = [str(item) if isinstance(item, int) and not isinstance(item, bool) else item for item in value]
        if all(isinstance(text, str) and _DEVICE.fullmatch(text) for text in texts):
            return tuple(texts)
    parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else []
    hint = f": write [{', '.join(parts)}]" if parts and all(map(_DEVICE.fullmatch, parts)) else ""
    raise ValueError(f'must be "all", a count, or a list of indices and uuids{hint}')
