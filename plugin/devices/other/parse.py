"""Reads one file of `devices.d` (contract `docs/contracts/device-class`). Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from plugin.base.documents import members, parse_known, read_object, seconds, text, truth, whole
from plugin.base.errors import ConfigError
from plugin.devices.naming import parse_resource_name
from plugin.devices.other.conditions import Absent, ClassCode, Code, LinkedTo, Named, Present, Says
from plugin.devices.other.device_class import (
    DeviceClass,
    Division,
    Match,
    MountTemplate,
    NodeTemplate,
    Unit,
    Variable,
)
from plugin.devices.other.template import VARIABLE, parse_path, parse_template, variables_of
from plugin.devices.other.variables import BUILT_IN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plugin.base.documents import Parser
    from plugin.devices.other.conditions import Condition

SCHEMA = "grapnel.dev/device-class/v1alpha1"
MAX_BYTES = 64 * 1024
MAX_UNITS = 10_000
_HINT = "the keys are described in docs/contracts/device-class"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_SYSFS_PATH = re.compile(r"[A-Za-z0-9_.:,+*?-]+(/[A-Za-z0-9_.:,+*?-]+){0,9}")
_FOLDER = re.compile(r"(bus|class|module|devices|firmware|kernel)(/[A-Za-z0-9_.:-]+){0,4}")
_HEXADECIMAL = re.compile(r"(0[xX])?[0-9a-fA-F]{1,8}")
_ENVIRONMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_PERMISSIONS = ("r", "w", "m", "rw", "rm", "wm", "rwm")
_MAX_LIST = 64
_MAX_VALUE = 256
_MAX_RESCAN_S = 86400.0
_MIN_RESCAN_S = 0.1


def parse_class(content: bytes | str, name: str, origin: str) -> DeviceClass:
    """Return the class that a file describes; a ConfigError lists everything that is wrong with it."""
    try:
        document = read_object(content, MAX_BYTES)
    except ValueError as error:
        raise ConfigError(f"{origin}: {error}", _HINT) from error
    problems = []
    if not _NAME.fullmatch(name):
        problems.append("the file's name must be 1 to 40 small letters, digits and dashes before .json")
    if document.pop("schema", None) != SCHEMA:
        problems.append(f'schema: must be "{SCHEMA}"')
    values, more = _read(document)
    problems += more
    if not problems:
        problems += _contradictions(values)
    if problems:
        raise ConfigError(f"{origin}: {'; '.join(problems)}", _HINT)
    values.pop("description", None)
    unit = values.pop("unit", Unit())
    return DeviceClass(name=name, unit=unit, **{_ATTRIBUTES.get(key, key): value for key, value in values.items()})


_ATTRIBUTES = {"numa": "has_numa", "rescanSeconds": "rescan_s"}


def _read(document: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the values, and what is wrong; the file's own variables come first, as all others may name them."""
    own, problems = parse_known(document, {"variables": _variables})
    known = BUILT_IN | frozenset(own.get("variables", ()))
    parsers: dict[str, Parser] = {
        "description": text(1000),
        "resource": lambda value: _resource(value, known),
        "match": _match,
        "unit": _unit,
        "nodes": _list(lambda value: _node(value, known)),
        "environment": lambda value: _mapping(value, _ENVIRONMENT, lambda one: parse_template(one, known, 1024)),
        "mounts": _list(lambda value: _mount(value, known)),
        "numa": truth,
        "health": lambda value: _mapping(value, _SYSFS_PATH, _texts, check=_check_path),
        "rescanSeconds": _rescan,
    }
    values, more = parse_known(document, parsers)
    unknown = [f"unknown key {key[:64]!a}" for key in document if key not in {*parsers, "variables"}]
    missing = [] if "resource" in document else ["resource: is missing"]
    return {**own, **values}, [*problems, *more, *unknown, *missing]


def _contradictions(values: Mapping[str, Any]) -> list[str]:
    """Return what cannot be true together."""
    problems = []
    division = values.get("unit", Unit()).division
    gaps = [name for node in values.get("nodes", ()) for name in variables_of(node.path)]
    gaps += [name for each in values.get("environment", {}).values() for name in variables_of(each)]
    if values.get("match") is None:
        if division is not Division.COUNT:
            problems.append('unit: without a match there is no device to count: give it {"count": N}')
        if gaps or values.get("health"):
            problems.append("match: is missing, so no variable has a value and nothing has a health")
    if division is Division.COUNT and variables_of(values["resource"]):
        problems.append('resource: has variables, so devices have several resources, and {"count": N} would be of all')
    return problems


def _resource(value: object, known: frozenset[str]) -> str:
    template = parse_template(value, known)
    sample = template
    for name in variables_of(template):
        sample = sample.replace(f"{{{name}}}", "x")
    parse_resource_name(sample)
    return template


def _unit(value: object) -> Unit:
    if value == Division.DEVICES.value:
        return Unit()
    counted = members(value) if isinstance(value, dict) else {}
    for division, limit in ((Division.COUNT, MAX_UNITS), (Division.SHARES, 1000)):
        if set(counted) == {division.value}:
            return Unit(division, whole(1, limit + 1)(counted[division.value]))
    raise ValueError('must be "device", {"count": N} or {"sharesPerDevice": N}')


def _check_path(path: str) -> None:
    if not _SYSFS_PATH.fullmatch(path) or {".", ".."} & set(path.split("/")):
        raise ValueError(f"{path[:64]!a} must be a relative path without .., where * and ? stand for anything")


def _path(value: object) -> str:
    path = text(_MAX_VALUE)(value)
    _check_path(path)
    return path


def _list(parse: Callable[[object], Any], least: int = 0) -> Callable[[object], tuple[Any, ...]]:
    def parse_list(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list) or not least <= len(value) <= _MAX_LIST:
            raise ValueError(f"must be a list of {least} to {_MAX_LIST}")
        return tuple(map(parse, value))

    return parse_list


def _mapping(
    value: object, keys: re.Pattern[str], parse: Callable[[object], Any], check: Callable[[str], None] | None = None
) -> dict[str, Any]:
    found = members(value)
    if len(found) > _MAX_LIST:
        raise ValueError(f"must have at most {_MAX_LIST} members")
    for key in found:
        if check is not None:
            check(key)
        elif not keys.fullmatch(key):
            raise ValueError(f"{key[:64]!a} is no name that it may have")
    return {key: parse(each) for key, each in found.items()}


def _object(value: object, parsers: Mapping[str, Parser], required: tuple[str, ...]) -> dict[str, Any]:
    """Return the members of an object, all of them known."""
    found = members(value)
    values, problems = parse_known(found, parsers)
    problems += [f"unknown key {key[:64]!a}: there are {', '.join(parsers)}" for key in found if key not in parsers]
    problems += [f"{key}: is missing" for key in required if key not in found]
    if problems:
        raise ValueError("; ".join(problems))
    return values


def _text(value: object) -> str:
    found = text(_MAX_VALUE)(value)
    if not found or not found.isprintable():
        raise ValueError("must be a printable text")
    return found


_texts = _list(_text, least=1)
_paths = _list(_path, least=1)


def _hexadecimal(value: object) -> str:
    found = text(10)(value)
    if not _HEXADECIMAL.fullmatch(found):
        raise ValueError('must be hexadecimal, such as "15b3" or "0x15b3"')
    return found


_hexadecimals = _list(_hexadecimal, least=1)


def _folder(value: object) -> str:
    folder = text(_MAX_VALUE)(value)
    if not _FOLDER.fullmatch(folder) or {".", ".."} & set(folder.split("/")):
        raise ValueError('must be a folder below sysRoot, such as "bus/pci/devices" or "class/infiniband"')
    return folder


_CONDITIONS: dict[str, tuple[Parser, Callable[[Any], Condition]]] = {
    "vendor": (_hexadecimals, lambda wanted: Code("vendor", wanted)),
    "device": (_hexadecimals, lambda wanted: Code("device", wanted)),
    "subsystemVendor": (_hexadecimals, lambda wanted: Code("subsystem_vendor", wanted)),
    "subsystemDevice": (_hexadecimals, lambda wanted: Code("subsystem_device", wanted)),
    "class": (_hexadecimals, ClassCode),
    "driver": (_texts, lambda wanted: LinkedTo("driver", wanted)),
    "physfn": (_texts, lambda wanted: LinkedTo("physfn", wanted)),
    "name": (_texts, lambda wanted: Named(is_address=False, patterns=wanted)),
    "address": (_texts, lambda wanted: Named(is_address=True, patterns=wanted)),
    "present": (_paths, Present),
    "absent": (_paths, Absent),
}


def _match(value: object) -> Match:
    parsers: dict[str, Parser] = {key: parse for key, (parse, _) in _CONDITIONS.items()}
    parsers["folder"] = _folder
    parsers["attributes"] = lambda found: _mapping(found, _SYSFS_PATH, _texts, check=_check_path)
    values = _object(value, parsers, ("folder",))
    conditions: list[Condition] = [make(values[key]) for key, (_, make) in _CONDITIONS.items() if key in values]
    conditions += [Says(path, wanted) for path, wanted in values.get("attributes", {}).items()]
    return Match(values["folder"], tuple(conditions))


def _permissions(value: object) -> str:
    if value not in _PERMISSIONS:
        raise ValueError(f"must be one of {', '.join(_PERMISSIONS)}")
    return str(value)


def _node(value: object, known: frozenset[str]) -> NodeTemplate:
    values = _object(
        value,
        {"path": lambda one: parse_path(one, known), "permissions": _permissions, "required": truth},
        ("path",),
    )
    if is_nvidias(values["path"]):
        raise ValueError("path: nodes of NVIDIA's driver are given with GPUs alone, by the daemon and its hook")
    return NodeTemplate(values["path"], values.get("permissions", "rw"), values.get("required", True))


def is_nvidias(path: str) -> bool:
    """Whether a node below `/dev` is of NVIDIA's driver: whoever has one has a GPU."""
    return path.startswith("nvidia")


def _mount(value: object, known: frozenset[str]) -> MountTemplate:
    def absolute(one: object) -> str:
        if not isinstance(one, str) or not one.startswith("/"):
            raise ValueError("must be an absolute path")
        return f"/{parse_path(one[1:], known)}"

    parsers: dict[str, Parser] = {"hostPath": absolute, "containerPath": absolute, "readOnly": truth}
    values = _object(value, parsers, ("hostPath",))
    host = values["hostPath"]
    return MountTemplate(host, values.get("containerPath", host), values.get("readOnly", True))


def _variables(value: object) -> dict[str, Variable]:
    found = _mapping(value, VARIABLE, _variable)
    for name in found:
        if name in BUILT_IN:
            raise ValueError(f"{{{name}}} is one of the built-in ones")
    return found


def _variable(value: object) -> Variable:
    values = _object(value, {"content": _path, "name": _path}, ())
    if len(values) != 1:
        raise ValueError("must have one of content and name")
    return Variable(next(iter(values.values())), is_name="name" in values)


def _rescan(value: object) -> float:
    found = seconds(_MAX_RESCAN_S)(value)
    if found < _MIN_RESCAN_S:
        raise ValueError(f"must be a number of seconds from {_MIN_RESCAN_S:g} to {_MAX_RESCAN_S:g}")
    return found
