"""The texts of health's two files, contract `docs/contracts/node-health`. Pure.

`health.json` is the daemon's memory, `verdicts.json` what people decided. Not here: the files themselves (`store`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from plugin.base.documents import list_of, member, members, optional, read_versioned, seconds, text, truth, whole
from plugin.devices.health.model import Class, Finding, GpuHealth, NodeHealth, Verdict
from plugin.devices.health.slices import is_slice
from plugin.driver.reading import Counters
from plugin.driver.uuid import is_gpu_uuid

if TYPE_CHECKING:
    from collections.abc import Mapping

HEALTH_SCHEMA = "grapnel.dev/node-health/v1alpha1"
VERDICTS_SCHEMA = "grapnel.dev/verdicts/v1alpha1"
MAX_BYTES = 4 * 1024 * 1024
MAX_REASON = 256
_MAX_GPUS = 1024
_MAX_SLICES = 8192
_MAX_TEXT = 1024
_MAX_SECONDS = 1e12
_MAX_TIMES = 64
_CLASSES = {kind.word: kind for kind in Class}


def render_health(state: NodeHealth) -> str:
    """Return the text of the daemon's file."""
    gpus = {uuid: _gpu_to_json(gpu) for uuid, gpu in sorted(state.gpus.items())}
    slices = {uuid: gpus.pop(uuid) for uuid in tuple(gpus) if is_slice(uuid)}
    more = {"slices": slices} if slices else {}
    return json.dumps({"schema": HEALTH_SCHEMA, "gpus": gpus, **more}, indent=2) + "\n"


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
    slices = member(read_versioned(content, MAX_BYTES, HEALTH_SCHEMA), "slices", members, {})
    if len(slices) > _MAX_SLICES or not all(map(is_slice, slices)):
        raise ValueError(f"slices must be an object of at most {_MAX_SLICES} uuids of mig devices")
    gpus = {**_gpus(content, HEALTH_SCHEMA), **slices}
    return NodeHealth({uuid: _parse_gpu(value) for uuid, value in gpus.items()})


def parse_verdicts(content: bytes) -> dict[str, Verdict]:
    """Return what the people's file says; raises ValueError for one that this version does not understand."""
    return {uuid: _parse_verdict(value) for uuid, value in _gpus(content, VERDICTS_SCHEMA).items()}


def _gpus(content: bytes, schema: str) -> dict[str, Any]:
    gpus = read_versioned(content, MAX_BYTES, schema).get("gpus")
    if not isinstance(gpus, dict) or len(gpus) > _MAX_GPUS:
        raise ValueError(f"gpus must be an object of at most {_MAX_GPUS}")
    for uuid in gpus:
        if not is_gpu_uuid(uuid):
            raise ValueError(f"{json.dumps(uuid[:64])} is not the uuid of a gpu")
    return gpus


_text, _time = text(_MAX_TEXT), seconds(_MAX_SECONDS)


def _class(value: object) -> Class:
    if not isinstance(value, str) or value not in _CLASSES:
        raise ValueError(f"must be one of {', '.join(_CLASSES)}")
    return _CLASSES[value]


def _parse_verdict(value: object) -> Verdict:
    return Verdict(
        is_healthy=member(value, "healthy", truth),
        reason=member(value, "reason", _text),
        since=member(value, "since", _text),
    )


def _parse_findings(value: object) -> tuple[Finding, ...]:
    findings = list_of(_parse_finding)(value)
    if len({finding.cause for finding in findings}) != len(findings):
        raise ValueError("names a cause twice")
    return findings


def _parse_finding(value: object) -> Finding:
    return Finding(
        cause=member(value, "cause", _text),
        kind=member(value, "class", _class),
        detail=member(value, "detail", _text),
        since=member(value, "since", _text),
        boot_id=member(value, "bootId", _text),
        module_id=member(value, "moduleId", _text),
        seen_s=member(value, "seenUptimeSeconds", _time),
        resets=member(value, "resets", whole()),
    )


def _parse_gpu(value: object) -> GpuHealth:
    return GpuHealth(
        findings=member(value, "findings", _parse_findings),
        verdict=member(value, "verdict", optional(_parse_verdict)),
        resets=member(value, "resets", whole()),
        counters=Counters(
            energy_mj=member(value, "energyMillijoules", optional(whole())),
            volatile_corrected=member(value, "volatileCorrected", optional(whole())),
            volatile_uncorrected=member(value, "volatileUncorrected", optional(whole())),
        ),
        read_s=member(value, "readUptimeSeconds", _time),
        boot_id=member(value, "bootId", _text),
        module_id=member(value, "moduleId", _text),
        links_best=member(value, "linksBest", optional(whole())),
        returns=member(value, "quietReturns", list_of(_time, _MAX_TIMES), ()),
    )
