"""The texts of health's two files, contract `docs/contracts/node-health`. Pure.

`health.json` is the daemon's memory, `verdicts.json` what people decided. Not here: the files themselves (`store`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from plugin.driver.reading import Counters
from plugin.driver.uuid import is_gpu_uuid
from plugin.health.model import Class, Finding, GpuHealth, NodeHealth, Verdict
from plugin.system.json_text import parse_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HEALTH_SCHEMA = "grapnel.dev/node-health/v1alpha1"
VERDICTS_SCHEMA = "grapnel.dev/verdicts/v1alpha1"
MAX_BYTES = 4 * 1024 * 1024
MAX_REASON = 256
_MAX_GPUS = 1024
_MAX_TEXT = 1024
_MAX_NUMBER = 2**64
_MAX_SECONDS = 1e12
_MAX_TIMES = 64
_CLASSES = {kind.word: kind for kind in Class}


def render_health(state: NodeHealth) -> str:
    """Return the text of the daemon's file."""
    gpus = {uuid: _gpu_to_json(gpu) for uuid, gpu in sorted(state.gpus.items())}
    return json.dumps({"schema": HEALTH_SCHEMA, "gpus": gpus}, indent=2) + "\n"


def render_verdicts(verdicts: Mapping[str, Verdict]) -> str:
    """Return the text of the people's file."""
    gpus = {uuid: verdict_to_json(verdict) for uuid, verdict in sorted(verdicts.items())}
    return json.dumps({"schema": VERDICTS_SCHEMA, "gpus": gpus}, indent=2) + "\n"


def verdict_to_json(verdict: Verdict) -> dict[str, object]:
    """Return a verdict in the form of the files."""
    return {"healthy": verdict.is_healthy, "reason": verdict.reason, "since": verdict.since}


def finding_to_json(finding: Finding) -> dict[str, object]:
    """Return a finding in the form of the file."""
    return {
        "cause": finding.cause,
        "class": finding.kind.word,
        "detail": finding.detail,
        "since": finding.since,
        "bootId": finding.boot_id,
        "moduleId": finding.module_id,
        "seenUptimeSeconds": finding.seen_s,
        "resets": finding.resets,
    }


def _gpu_to_json(gpu: GpuHealth) -> dict[str, object]:
    return {
        "findings": [finding_to_json(finding) for finding in gpu.findings],
        "verdict": None if gpu.verdict is None else verdict_to_json(gpu.verdict),
        "resets": gpu.resets,
        "readUptimeSeconds": gpu.read_s,
        "bootId": gpu.boot_id,
        "moduleId": gpu.module_id,
        "linksBest": gpu.links_best,
        **({"quietReturns": list(gpu.returns)} if gpu.returns else {}),
        "energyMillijoules": gpu.counters.energy_mj,
        "volatileCorrected": gpu.counters.volatile_corrected,
        "volatileUncorrected": gpu.counters.volatile_uncorrected,
    }


def parse_health(content: bytes) -> NodeHealth:
    """Return what the daemon's file says; raises ValueError for one that this version does not understand."""
    return NodeHealth({uuid: _parse_gpu(value) for uuid, value in _gpus(content, HEALTH_SCHEMA).items()})


def parse_verdicts(content: bytes) -> dict[str, Verdict]:
    """Return what the people's file says; raises ValueError for one that this version does not understand."""
    return {uuid: _parse_verdict(value) for uuid, value in _gpus(content, VERDICTS_SCHEMA).items()}


def _gpus(content: bytes, schema: str) -> dict[str, Any]:
    if len(content) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES} bytes")
    document = parse_json(content.decode())
    if not isinstance(document, dict) or document.get("schema") != schema:
        raise ValueError(f'schema is not "{schema}"')
    gpus = document.get("gpus")
    if not isinstance(gpus, dict) or len(gpus) > _MAX_GPUS:
        raise ValueError(f"gpus must be an object of at most {_MAX_GPUS}")
    for uuid in gpus:
        if not is_gpu_uuid(uuid):
            raise ValueError(f"{json.dumps(uuid[:64])} is not the uuid of a gpu")
    return gpus


def _member(document: Any, key: str, parse: Callable[[object], Any]) -> Any:  # noqa: ANN401 - JSON
    if not isinstance(document, dict):
        raise ValueError("must be an object")  # noqa: TRY004 - the file is wrong, not the program
    if key not in document:
        raise ValueError(f"{key} is missing")
    try:
        return parse(document[key])
    except ValueError as error:
        raise ValueError(f"{key} {error}") from error


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise ValueError(f"must be a text of at most {_MAX_TEXT} characters")
    return value


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MAX_NUMBER:
        raise ValueError("must be a whole number from 0")
    return value


def _maybe_whole(value: object) -> int | None:
    return None if value is None else _whole(value)


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < _MAX_SECONDS:
        raise ValueError("must be a number of seconds from 0")
    return float(value)


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")  # noqa: TRY004 - the file is wrong, not the program
    return value


def _times(value: object) -> tuple[float, ...]:
    if not isinstance(value, list) or len(value) > _MAX_TIMES:
        raise ValueError(f"must be a list of at most {_MAX_TIMES}")
    return tuple(map(_seconds, value))


def _class(value: object) -> Class:
    if not isinstance(value, str) or value not in _CLASSES:
        raise ValueError(f"must be one of {', '.join(_CLASSES)}")
    return _CLASSES[value]


def _parse_verdict(value: object) -> Verdict:
    return Verdict(
        is_healthy=_member(value, "healthy", _truth),
        reason=_member(value, "reason", _text),
        since=_member(value, "since", _text),
    )


def _maybe_verdict(value: object) -> Verdict | None:
    return None if value is None else _parse_verdict(value)


def _parse_findings(value: object) -> tuple[Finding, ...]:
    if not isinstance(value, list):
        raise ValueError("must be a list")  # noqa: TRY004 - the file is wrong, not the program
    findings = tuple(map(_parse_finding, value))
    if len({finding.cause for finding in findings}) != len(findings):
        raise ValueError("names a cause twice")
    return findings


def _parse_finding(value: object) -> Finding:
    return Finding(
        cause=_member(value, "cause", _text),
        kind=_member(value, "class", _class),
        detail=_member(value, "detail", _text),
        since=_member(value, "since", _text),
        boot_id=_member(value, "bootId", _text),
        module_id=_member(value, "moduleId", _text),
        seen_s=_member(value, "seenUptimeSeconds", _seconds),
        resets=_member(value, "resets", _whole),
    )


def _keys(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _parse_gpu(value: object) -> GpuHealth:
    return GpuHealth(
        findings=_member(value, "findings", _parse_findings),
        verdict=_member(value, "verdict", _maybe_verdict),
        resets=_member(value, "resets", _whole),
        counters=Counters(
            energy_mj=_member(value, "energyMillijoules", _maybe_whole),
            volatile_corrected=_member(value, "volatileCorrected", _maybe_whole),
            volatile_uncorrected=_member(value, "volatileUncorrected", _maybe_whole),
        ),
        read_s=_member(value, "readUptimeSeconds", _seconds),
        boot_id=_member(value, "bootId", _text),
        module_id=_member(value, "moduleId", _text),
        links_best=_member(value, "linksBest", _maybe_whole),
        returns=_member(value, "quietReturns", _times) if "quietReturns" in _keys(value) else (),
    )
