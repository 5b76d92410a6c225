"""What `verify` is to find: the contract `docs/contracts/expectation`. Not here: looking for it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from plugin.base.documents import member, parse_known, read_object, truth, whole
from plugin.base.errors import ExpectationError
from plugin.driver.gpu_state import MigDevice
from plugin.driver.uuid import is_gpu_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SCHEMA = "grapnel.dev/expectation/v1alpha1"
MAX_BYTES = 1024 * 1024
_MAX_GPUS = 1024
_VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,3}")
_CLUSTER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PROFILE = re.compile(r"([1-9]c\.)?[1-9]g\.[1-9][0-9]{0,3}gb(\+[a-z]{2,8}(\.[a-z]{2,8})?|-me)?")
_MAX_MIG = 16
_MAX_CLIQUE = 2**32
_KEYS = ("schema", "driverVersion", "gpus", "gpuCount", "mig", "fabric", "allocation")
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class FabricPlace:
    """Where a GPU is to be in an NVLink fabric. None: anywhere."""

    cluster: str | None = None
    clique: int | None = None


@dataclass(frozen=True)
class Expectation:
    """What was declared. None, or a GPU that is not named: not said, so what was remembered at the release counts.

    `mig` maps GPUs to their MIG devices, None for MIG off; `allocation` says whether memory is allocated on each GPU.
    """

    driver_version: str
    gpus: tuple[str, ...] | None = None
    gpu_count: int | None = None
    mig: Mapping[str, tuple[MigDevice, ...] | None] = field(default_factory=lambda: _NOTHING)
    fabric: Mapping[str, FabricPlace] = field(default_factory=lambda: _NOTHING)
    allocation: bool | None = None


def _version(value: object) -> str:
    if not isinstance(value, str) or not _VERSION.fullmatch(value):
        raise ValueError('must be a driver version as a text, such as "535.309.01"')
    return value


def _gpus(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not 0 < len(value) <= _MAX_GPUS:
        raise ValueError(f"must be a list of 1 to {_MAX_GPUS} uuids")
    for uuid in value:
        if not isinstance(uuid, str) or not is_gpu_uuid(uuid):
            raise ValueError('every item must be a uuid such as "GPU-7d00e010-ec78-5e6f-8228-fa5ab15a3109"')
    if len(set(value)) != len(value):
        raise ValueError("names a gpu twice")
    return tuple(value)


def _by_gpu(value: object, parse: Callable[[object], Any]) -> dict[str, Any]:
    if not isinstance(value, dict) or not 0 < len(value) <= _MAX_GPUS:
        raise ValueError(f"must be an object with the uuids of 1 to {_MAX_GPUS} gpus")
    for uuid in value:
        if not is_gpu_uuid(uuid):
            raise ValueError(f"{json.dumps(uuid[:64])} is not the uuid of a gpu")
    return {uuid: parse(item) for uuid, item in value.items()}


def _members(value: object, keys: tuple[str, ...], what: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not value or not set(value) <= set(keys):
        raise ValueError(f"{what} must be an object with {', '.join(keys)}")
    return value


def _layout(value: object) -> tuple[MigDevice, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) > _MAX_MIG:
        raise ValueError(f"must be null (off) or a list of at most {_MAX_MIG} mig devices")
    return tuple(map(_mig_device, value))


def _mig_device(value: object) -> MigDevice:
    document = _members(value, ("profile", "start", "size"), "a mig device")
    profile = document.get("profile")
    if not isinstance(profile, str) or not _PROFILE.fullmatch(profile):
        raise ValueError('profile must be a name such as "3g.20gb"')
    return MigDevice(
        profile, member(document, "start", whole(0, _MAX_MIG), None), member(document, "size", whole(1, _MAX_MIG), None)
    )


def _place(value: object) -> FabricPlace:
    document = _members(value, ("cluster", "clique"), "a place")
    cluster = document.get("cluster")
    if cluster is not None and (not isinstance(cluster, str) or not _CLUSTER.fullmatch(cluster)):
        raise ValueError("cluster must be a uuid")
    return FabricPlace(cluster, member(document, "clique", whole(0, _MAX_CLIQUE), None))


_PARSERS: dict[str, Callable[[object], Any]] = {
    "driverVersion": _version,
    "gpus": _gpus,
    "gpuCount": whole(1, _MAX_GPUS + 1),
    "mig": lambda value: _by_gpu(value, _layout),
    "fabric": lambda value: _by_gpu(value, _place),
    "allocation": truth,
}


def _problems(document: dict[str, Any]) -> list[str]:
    problems = [f"unknown key {json.dumps(key[:64])}" for key in document if key not in _KEYS]
    if document.get("schema") != SCHEMA:
        problems.append(f'schema: must be "{SCHEMA}"')
    if "driverVersion" not in document:
        problems.append("driverVersion: is missing")
    return problems


def parse_expectation(content: bytes, origin: str) -> Expectation:
    """Return the expectation of a JSON text; an ExpectationError lists everything that is wrong with it."""
    hint = "the keys are described in docs/contracts/expectation"
    try:
        document = read_object(content, MAX_BYTES)
    except ValueError as error:
        raise ExpectationError(f"{origin}: {error}", hint) from error
    values, problems = parse_known(document, _PARSERS)
    problems = [*_problems(document), *problems]
    gpus, count = values.get("gpus"), values.get("gpuCount")
    if gpus is not None and count is not None and len(gpus) != count:
        problems.append(f"gpuCount: is {count}, but gpus names {len(gpus)}")
    if problems:
        raise ExpectationError(f"{origin}: {'; '.join(problems)}", hint)
    return Expectation(
        values["driverVersion"],
        gpus,
        count,
        mig=values.get("mig", _NOTHING),
        fabric=values.get("fabric", _NOTHING),
        allocation=values.get("allocation"),
    )
