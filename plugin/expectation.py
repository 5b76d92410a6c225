"""What `verify` is to find: the contract `docs/contracts/expectation`. Not here: looking for it."""

from __future__ import annotations

import json
import re
from typing import Any

from plugin.errors import ExpectationError
from plugin.values import dataclass

SCHEMA = "grapnel.dev/expectation/v1alpha1"
MAX_BYTES = 1024 * 1024
_MAX_GPUS = 1024
_VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,3}")
_UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_KEYS = ("schema", "driverVersion", "gpus", "gpuCount")


@dataclass(frozen=True)
class Expectation:
    """What was declared. None: not said, so what was remembered at the release counts."""

    driver_version: str
    gpus: tuple[str, ...] | None = None
    gpu_count: int | None = None


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a key is given twice")
    return document


def _version(value: object) -> str:
    if not isinstance(value, str) or not _VERSION.fullmatch(value):
        raise ValueError('must be a driver version as a text, such as "535.309.01"')
    return value


def _gpus(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not 0 < len(value) <= _MAX_GPUS:
        raise ValueError(f"must be a list of 1 to {_MAX_GPUS} uuids")
    for uuid in value:
        if not isinstance(uuid, str) or not _UUID.fullmatch(uuid):
            raise ValueError('every item must be a uuid such as "GPU-7d00e010-ec78-5e6f-8228-fa5ab15a3109"')
    if len(set(value)) != len(value):
        raise ValueError("names a gpu twice")
    return tuple(value)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MAX_GPUS:
        raise ValueError(f"must be a whole number from 1 to {_MAX_GPUS}")
    return value


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
    if len(content) > MAX_BYTES:
        raise ExpectationError(f"{origin}: larger than {MAX_BYTES} bytes", hint)
    try:
        document = json.loads(content.decode(), object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise ExpectationError(f"{origin}: not valid json: {error}", hint) from error
    if not isinstance(document, dict):
        raise ExpectationError(f"{origin}: must be a json object", hint)
    problems = _problems(document)
    values: dict[str, Any] = {}
    for key, parse in (("driverVersion", _version), ("gpus", _gpus), ("gpuCount", _count)):
        if key in document:
            try:
                values[key] = parse(document[key])
            except ValueError as error:
                problems.append(f"{key}: {error}")
    gpus, count = values.get("gpus"), values.get("gpuCount")
    if gpus is not None and count is not None and len(gpus) != count:
        problems.append(f"gpuCount: is {count}, but gpus names {len(gpus)}")
    if problems:
        raise ExpectationError(f"{origin}: {'; '.join(problems)}", hint)
    return Expectation(values["driverVersion"], gpus, count)
