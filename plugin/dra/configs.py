"""How a claim wants its devices shared: opaque configs in NVIDIA's form, and what of them is served. Pure.

`resource.nvidia.com/v1beta1` of NVIDIA's driver (api/nvidia.com/resource/v1beta1 and `getConfigResultsMap` of
cmd/gpu-kubelet-plugin at 9593204): GpuConfig and MigDeviceConfig. What is not known is never passed over, as there: a
claim would have less than it asked for.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from plugin.base.documents import list_of, member, members, optional, text, truth, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Json = Mapping[str, Any]

API_VERSION = "resource.nvidia.com/v1beta1"
GPU_CONFIG, MIG_CONFIG, VFIO_CONFIG = "GpuConfig", "MigDeviceConfig", "VfioDeviceConfig"
TIME_SLICING, MPS = "TimeSlicing", "MPS"
DEFAULT = "Default"
INTERVALS = (DEFAULT, "Short", "Medium", "Long")  # in the order of the driver's numbers
_TYPES = {GPU_CONFIG: "gpu", MIG_CONFIG: "mig"}
_FROM_CLASS, _FROM_CLAIM = "FromClass", "FromClaim"
_SHARED_MIG = "MPS on a MIG device: declare more, smaller MIG devices, or share a whole gpu"
_TEXT = text(253)
MIB = 2**20
_MAX_AMOUNT = 2**63
_QUANTITY = re.compile(r"\+?([0-9]{1,19})(?:\.([0-9]{0,19}))?(?:([numkMGTPE]|[KMGTPE]i)|[eE](\+?[0-9]{1,2}))?")
_POWERS = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}


class Ceilings(NamedTuple):
    """What each process has at most of a GPU that is shared through MPS; a memory of 0: all of it."""

    thread_percentage: int = 100
    memory_mib: int = 0


class DeviceConfig(NamedTuple):
    """How one device is shared. `interval` is that of time slices, "" for the driver's own; `mps` None: not by MPS."""

    interval: str = ""
    mps: Ceilings | None = None

    def __str__(self) -> str:
        if self.mps is not None:
            memory = f" and {self.mps.memory_mib} MiB" if self.mps.memory_mib else ""
            return f"MPS with {self.mps.thread_percentage} % of the threads{memory}"
        return f"time slices of interval {self.interval or DEFAULT}"

    def to_json(self) -> dict[str, Any]:
        """Return it as a record of a claim has it."""
        if self.mps is None:
            return {"strategy": TIME_SLICING, "interval": self.interval or DEFAULT}
        limits = {"threadPercentage": self.mps.thread_percentage, "memoryMiB": self.mps.memory_mib}
        return {"strategy": MPS, **limits}


AS_IT_IS = DeviceConfig()


def parse_recorded(value: object) -> DeviceConfig:
    """Return what a record says; raises ValueError."""
    if member(value, "strategy", _one_of((TIME_SLICING, MPS))) == TIME_SLICING:
        return _sliced(member(value, "interval", _one_of(INTERVALS)))
    limits = member(value, "threadPercentage", whole(1, 101)), member(value, "memoryMiB", whole(0))
    return DeviceConfig(mps=Ceilings(*limits))


class ClaimConfig(NamedTuple):
    """A config of a class or a claim. `requests`: those it is for, all where there are none.

    `device_limits` are MiB by UUID, or by number among the devices of the config.
    """

    kind: str
    requests: tuple[str, ...]
    sharing: DeviceConfig
    device_limits: tuple[tuple[str, int], ...] = ()


def find_configs(rows: Iterable[Json], driver: str) -> tuple[ClaimConfig, ...]:
    """Return the configs of an allocation for this driver, what counts most first; raises ValueError.

    A claim's count more than its class's, later ones more than those before them.
    """
    by_source: dict[str, list[ClaimConfig]] = {_FROM_CLASS: [], _FROM_CLAIM: []}
    for row in rows:
        opaque = member(row, "opaque", members)
        if member(opaque, "driver", _TEXT) != driver:
            continue
        source = member(row, "source", _one_of(tuple(by_source)))
        requests = member(row, "requests", list_of(_TEXT), ())
        where = f"the config of its {'class' if source == _FROM_CLASS else 'spec'}"
        named = f" for {', '.join(requests)}" if requests else ""
        try:
            by_source[source].append(_config(member(opaque, "parameters", members), requests))
        except ValueError as error:
            raise ValueError(f"{where}{named} is not served: {error}") from error
    return tuple(reversed((*by_source[_FROM_CLASS], *by_source[_FROM_CLAIM])))


def config_of(configs: Iterable[ClaimConfig], request: str, device_type: str, uuid: str) -> DeviceConfig:
    """Return how a device that was given for a request is shared; raises ValueError.

    A config that names the request has to be for this type of device, one that names none is for its type alone.
    """
    for config in configs:
        if config.requests and not _names(config.requests, request):
            continue
        if _TYPES[config.kind] == device_type:
            return _limited(config, uuid)
        if config.requests:
            raise ValueError(f"{config.kind} is not for a device of type {device_type}, which {request} was given")
    return AS_IT_IS


def _names(requests: tuple[str, ...], request: str) -> bool:
    """Whether a config is for a request: by its own name, or by that of the request whose alternative it is."""
    return request in requests or request.partition("/")[0] in requests


def _limited(config: ClaimConfig, uuid: str) -> DeviceConfig:
    """Return a config as it is for its only device through MPS, which is number 0 of it."""
    if config.sharing.mps is None:
        return config.sharing
    if config.kind == MIG_CONFIG:
        raise ValueError(_SHARED_MIG)
    limit = config.sharing.mps.memory_mib
    for name, memory_mib in config.device_limits:
        if name not in {uuid, "0"}:
            raise ValueError(f"defaultPerDevicePinnedMemoryLimit names {name[:64]!a}, which is not the device's")
        limit = memory_mib
    return DeviceConfig(mps=config.sharing.mps._replace(memory_mib=limit))


def _config(parameters: Json, requests: tuple[str, ...]) -> ClaimConfig:
    version, kind = member(parameters, "apiVersion", _TEXT), member(parameters, "kind", _TEXT)
    if version != API_VERSION:
        raise ValueError(f"apiVersion {version[:64]!a}, and {API_VERSION} is what is known")
    if kind == VFIO_CONFIG:
        raise ValueError("VfioDeviceConfig: gpus are not handed to virtual machines by claims")
    if kind not in _TYPES:
        raise ValueError(f"kind {kind[:64]!a} is none of {', '.join(_TYPES)}")
    _only(parameters, "apiVersion", "kind", "sharing")
    sharing: dict[str, Any] | None = member(parameters, "sharing", optional(members), None)
    if sharing is None:
        return ClaimConfig(kind, requests, AS_IT_IS)
    _only(sharing, "strategy", "mpsConfig", *(["timeSlicingConfig"] if kind == GPU_CONFIG else []), at="sharing.")
    strategy = member(sharing, "strategy", _one_of((TIME_SLICING, MPS)))
    other = "mpsConfig" if strategy == TIME_SLICING else "timeSlicingConfig"
    if sharing.get(other) is not None:
        raise ValueError(f"sharing.{other} beside the strategy {strategy}")
    if strategy == TIME_SLICING:
        slicing = _section(sharing, "timeSlicingConfig")
        _only(slicing, "interval", at="sharing.timeSlicingConfig.")
        return ClaimConfig(kind, requests, _sliced(member(slicing, "interval", _one_of(INTERVALS), DEFAULT)))
    return _mps_config(kind, requests, _section(sharing, "mpsConfig"))


_THREADS, _MEMORY = "defaultActiveThreadPercentage", "defaultPinnedDeviceMemoryLimit"
_DEVICES, _USERS = "defaultPerDevicePinnedMemoryLimit", "multiUser"


def _mps_config(kind: str, requests: tuple[str, ...], mps: Json) -> ClaimConfig:
    _only(mps, _THREADS, _MEMORY, _DEVICES, _USERS, at="sharing.mpsConfig.")
    if member(mps, _USERS, truth, default=False):
        raise ValueError(f"{_USERS}: users do not share a server here; give the claim's containers the same runAsUser")
    limits = _section(mps, _DEVICES)
    return ClaimConfig(
        kind,
        requests,
        DeviceConfig(mps=Ceilings(member(mps, _THREADS, whole(1, 101), 100), member(mps, _MEMORY, _mebibytes, 0))),
        tuple((name, _limit_of(name, amount)) for name, amount in limits.items()),
    )


def _limit_of(name: str, amount: object) -> int:
    try:
        return _mebibytes(amount)
    except ValueError as error:
        raise ValueError(f"{_DEVICES} of {name[:64]!a} {error}") from error


def _section(found: Json, key: str) -> Json:
    value: dict[str, Any] | None = member(found, key, optional(members), None)
    return value or {}


def _sliced(interval: str) -> DeviceConfig:
    return DeviceConfig("" if interval == DEFAULT else interval)


def _only(found: Json, *known: str, at: str = "") -> None:
    unknown = found.keys() - {*known}
    if unknown:
        name = ascii(min(unknown)[:64])[1:-1]  # the author's, who may have written anything
        raise ValueError(f"{at}{name} is not known")


def _one_of(values: tuple[str, ...]) -> Any:
    def parse(value: object) -> str:
        if isinstance(value, str) and value in values:
            return value
        raise ValueError(f"must be one of {', '.join(values)}")

    return parse


def _mebibytes(value: object) -> int:
    """Take an amount of memory, in whole MiB as NVIDIA rounds it."""
    amount = parse_quantity(value) // MIB
    if not amount:
        raise ValueError("is less than a MiB")
    return amount


def parse_quantity(value: object) -> int:
    """Return an amount as Kubernetes writes it (`10Gi`, `2k`, `1e9`), rounded up; raises ValueError."""
    found = _QUANTITY.fullmatch(str(value)) if isinstance(value, (str, int)) and not isinstance(value, bool) else None
    if found is None:
        raise ValueError("must be an amount such as 10Gi")
    digits, fraction, suffix, exponent = found.groups(default="")
    power = _POWERS.get(suffix, int(exponent or 0)) - len(fraction)
    amount = int(digits + fraction) * int(1024 ** _BINARY.get(suffix, 0))
    amount = amount * int(10**power) if power >= 0 else -(-amount // int(10**-power))
    if amount >= _MAX_AMOUNT:
        raise ValueError("is too large an amount")
    return amount
