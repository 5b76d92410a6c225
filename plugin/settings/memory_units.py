"""`memoryUnits` of node.json: GPUs that are offered as units of their memory. Pure."""

from __future__ import annotations

from plugin.base.documents import parse_known
from plugin.devices.naming import parse_resource_name
from plugin.devices.sharing import ShareRule, Strategy
from plugin.settings.nvidia.sharing import parse_devices

DEFAULT_RESOURCE = "aliyun.com/gpu-mem"  # of gpushare, whose users ask for it
DEFAULT_SOURCE = "nvidia.com/gpu"
_DEFAULT_UNIT_MIB = 1024
_MAX_UNIT_MIB = 1024 * 1024
_MIB = 2**20


def _mib(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_UNIT_MIB:
        raise ValueError(f"must be a whole number of MiB from 1 to {_MAX_UNIT_MIB}")
    return value


_PARSERS = {
    "resource": parse_resource_name,
    "of": parse_resource_name,
    "devices": parse_devices,
    "unitMiB": _mib,
    "memoryMiB": _mib,
}


def parse_memory_units(value: object) -> tuple[ShareRule, ...]:
    """Return the rules of a list of entries; raises ValueError."""
    if not isinstance(value, list):
        raise ValueError("must be a list")
    return tuple(_entry(entry, f"memoryUnits[{number}]") for number, entry in enumerate(value))


def memory_units_to_json(rules: tuple[ShareRule, ...]) -> list[dict[str, object]]:
    """Return the rules in the form of the file, defaults included."""
    return [
        {
            "resource": rule.shown_as,
            "of": rule.resource,
            "devices": list(rule.chosen) if isinstance(rule.chosen, tuple) else rule.chosen or "all",
            "unitMiB": rule.unit_bytes // _MIB,
            **({"memoryMiB": rule.memory_bytes // _MIB} if rule.memory_bytes else {}),
        }
        for rule in rules
    ]


def _entry(entry: object, origin: str) -> ShareRule:
    if not isinstance(entry, dict):
        raise ValueError(f"{origin} must be an object with keys of {', '.join(_PARSERS)}")
    values, problems = parse_known(entry, _PARSERS)
    problems += [f"unknown key {key[:64]!r}: there are {', '.join(_PARSERS)}" for key in entry if key not in _PARSERS]
    if problems:
        raise ValueError(f"{origin}: {'; '.join(problems)}")
    unit_mib, memory_mib = (
        int(str(values.get(key, mib))) for key, mib in (("unitMiB", _DEFAULT_UNIT_MIB), ("memoryMiB", 0))
    )
    if 0 < memory_mib < unit_mib:
        raise ValueError(f"{origin}: memoryMiB {memory_mib} is less than a unit of {unit_mib} MiB")
    return ShareRule(
        Strategy.MEMORY,
        str(values.get("of", DEFAULT_SOURCE)),
        str(values.get("resource", DEFAULT_RESOURCE)),
        unit_bytes=unit_mib * _MIB,
        memory_bytes=memory_mib * _MIB,
        chosen=values.get("devices"),
        origin=origin,
    )
