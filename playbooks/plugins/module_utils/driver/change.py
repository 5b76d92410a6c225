"""Defines the driver change as the node reads it: one node's driver as it must be afterwards.

Written by the planner (``docs/contracts/driver-change``). Whatever a change names ends up in a command or in a path, so
every value is checked against the form that it must have, and a key that is not known here is an error.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from typing import Any, NoReturn

from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable

SCHEMA = "grapnel.dev/driver-change/v1alpha1"
MAX_CHANGE_BYTES = 1024 * 1024
NO_DRIVER = ""  # as a version: nothing of the driver is installed, or loaded, afterwards
FLAVOURS = ("open", "proprietary", "none")
MANAGERS = ("apt", "dnf", "zypper")

_ID_DIGITS = 12
_ID = re.compile(r"[0-9a-f]{12}")
_MAX_ENTRIES = 1000  # of a list
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,127}")
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,126}[A-Za-z0-9.+_]")  # apt takes `name-` for a removal
_PACKAGE_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+:~^_-]{0,127}")
_KERNEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~_-]{0,127}")
_SERVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9:_.@-]{0,200}\.service")
_MODE = re.compile(r"0[0-7]{3}")
_FILES_BELOW = "/etc/"
_REQUIRED = frozenset(
    {
        "schema", "version", "flavour", "manager", "packages", "remove", "files", "hold", "kernels", "dkms", "services",
        "sign", "compile", "reboot", "module",
    }
)  # fmt: skip


class ChangeError(Exception):
    """A document is not a driver change; the message says where and why."""


@dataclass(frozen=True)
class PackageVersion:
    """One binary package at one exact version."""

    name: str
    version: str


@dataclass(frozen=True)
class ChangedFile:
    """A file that comes with the driver; it belongs to root."""

    path: str
    content: str
    mode: str


@dataclass(frozen=True)
class Signing:
    """A key and its certificate on the node, with which modules are signed."""

    key: str
    certificate: str


@dataclass(frozen=True)
class DriverChange:
    """One node's driver as it must be afterwards.

    ``module`` is the version that must be loaded: `NO_DRIVER` for none, None to leave the loaded module alone. A change
    whose own ``version`` is `NO_DRIVER` takes the driver away; only a way back has that.
    """

    version: str
    flavour: str
    manager: str
    packages: tuple[PackageVersion, ...]
    remove: tuple[str, ...]
    files: tuple[ChangedFile, ...]
    hold: bool
    kernels: tuple[str, ...]
    dkms: str | None
    services: tuple[str, ...]
    sign: Signing | None
    compile: str
    reboot: bool
    module: str | None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the packages."""
        return tuple(package.name for package in self.packages)

    @property
    def has_module(self) -> bool:
        """Whether every one of ``kernels`` must have a module on disk."""
        return self.flavour != "none"


def is_change_id(text: str) -> bool:
    """Tell whether a text has the form of a change's name."""
    return _ID.fullmatch(text) is not None


def change_id(change: DriverChange) -> str:
    """Return the name of a change: the first digits of its canonical text's SHA-256."""
    return hashlib.sha256(render_change(change)).hexdigest()[:_ID_DIGITS]


def render_change(change: DriverChange) -> bytes:
    """Return the canonical text of a change."""
    document = {
        "schema": SCHEMA,
        "version": change.version,
        "flavour": change.flavour,
        "manager": change.manager,
        "packages": [{"name": one.name, "version": one.version} for one in change.packages],
        "remove": list(change.remove),
        "files": [{"path": one.path, "content": one.content, "mode": one.mode} for one in change.files],
        "hold": change.hold,
        "kernels": list(change.kernels),
        "dkms": change.dkms,
        "services": list(change.services),
        "sign": change.sign and {"key": change.sign.key, "certificate": change.sign.certificate},
        "compile": change.compile,
        "reboot": change.reboot,
        "module": None if change.module is None else {"version": change.module},
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def parse_change(data: bytes) -> DriverChange:
    """Return the change that a document holds; raises `ChangeError`."""
    if len(data) > MAX_CHANGE_BYTES:
        raise ChangeError(f"it has {len(data)} bytes, more than the limit of {MAX_CHANGE_BYTES}")
    try:
        document = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ChangeError(f"it is not a JSON document: {printable(str(error))}") from None
    change = _parse(_object(document, "it", _REQUIRED))
    _require_consistent(change)
    return change


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ChangeError("it has an object with the same key twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ChangeError(f"{name} is not a JSON number")


def _parse(document: dict[str, Any]) -> DriverChange:
    if document["schema"] != SCHEMA:
        raise ChangeError(f"schema: {_shown(document['schema'])} is not {SCHEMA}; install a grapnel that knows it")
    module = document["module"]
    return DriverChange(
        version=_version(document["version"], "version"),
        flavour=_one_of(document["flavour"], "flavour", FLAVOURS),
        manager=_one_of(document["manager"], "manager", MANAGERS),
        packages=tuple(_package(one, where) for one, where in _list(document, "packages")),
        remove=tuple(_text(one, where, _PACKAGE) for one, where in _list(document, "remove")),
        files=tuple(_file(one, where) for one, where in _list(document, "files")),
        hold=_boolean(document, "hold"),
        kernels=tuple(_text(one, where, _KERNEL) for one, where in _list(document, "kernels")),
        dkms=None if document["dkms"] is None else _text(document["dkms"], "dkms", _PACKAGE),
        services=tuple(_text(one, where, _SERVICE) for one, where in _list(document, "services")),
        sign=None if document["sign"] is None else _signing(document["sign"]),
        compile=_one_of(document["compile"], "compile", ("stage", "anywhere")),
        reboot=_boolean(document, "reboot"),
        module=None
        if module is None
        else _version(_object(module, "module", {"version"})["version"], "module.version"),
    )


def _require_consistent(change: DriverChange) -> None:
    """Refuse what is well-formed and means nothing."""
    _require_once("packages", change.names)
    _require_once("remove", change.remove)
    _require_once("files", tuple(one.path for one in change.files))
    _require_once("kernels", change.kernels)
    both = sorted({*change.names} & {*change.remove})
    if both:
        raise ChangeError(f"remove: {both[0]} is among the packages as well")
    if change.has_module != bool(change.kernels):
        raise ChangeError(f"kernels: {len(change.kernels)} of them do not go with the flavour {change.flavour}")
    if change.dkms is not None and not change.has_module:
        raise ChangeError("dkms: a module of DKMS does not go with the flavour none")
    if change.module not in (None, NO_DRIVER, change.version):
        raise ChangeError(f"module.version: {change.module} is not the version of the change, {change.version}")
    if change.version == NO_DRIVER and (change.packages or change.has_module or change.module):
        raise ChangeError("version: it is empty, which says that nothing of the driver remains")


def _require_once(where: str, values: tuple[str, ...]) -> None:
    twice = next((one for index, one in enumerate(values) if one in values[:index]), None)
    if twice is not None:
        raise ChangeError(f"{where}: {twice} is there twice")


def _object(value: object, where: str, keys: frozenset[str] | set[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ChangeError(f"{where}: {_kind(value)} is not an object")
    missing, unknown = sorted(keys - set(value)), sorted(set(value) - keys)
    if missing or unknown:
        lack, key = ("lacks", missing[0]) if missing else ("has the unknown key", unknown[0])
        raise ChangeError(f"{where}: the object {lack} {printable(key, 64)}")
    return value


def _list(document: dict[str, Any], key: str) -> list[tuple[Any, str]]:
    """Return the entries of a list, each with its place for a message."""
    values = document[key]
    if not isinstance(values, list):
        raise ChangeError(f"{key}: {_kind(values)} is not a list")
    if len(values) > _MAX_ENTRIES:
        raise ChangeError(f"{key}: {len(values)} entries are more than {_MAX_ENTRIES}")
    return [(one, f"{key}[{index}]") for index, one in enumerate(values)]


def _package(value: object, where: str) -> PackageVersion:
    found = _object(value, where, {"name", "version"})
    return PackageVersion(
        _text(found["name"], f"{where}.name", _PACKAGE), _text(found["version"], f"{where}.version", _PACKAGE_VERSION)
    )


def _file(value: object, where: str) -> ChangedFile:
    found = _object(value, where, {"path", "content", "mode"})
    path, content = _path(found["path"], f"{where}.path"), found["content"]
    if not path.startswith(_FILES_BELOW):
        raise ChangeError(f"{where}.path: {path} is not below {_FILES_BELOW}")
    if not isinstance(content, str) or not _is_utf8(content):
        raise ChangeError(f"{where}.content: it is not text")
    return ChangedFile(path, content, _text(found["mode"], f"{where}.mode", _MODE))


def _signing(value: object) -> Signing:
    found = _object(value, "sign", {"key", "certificate"})
    return Signing(_path(found["key"], "sign.key"), _path(found["certificate"], "sign.certificate"))


def _path(value: object, where: str) -> str:
    is_path = isinstance(value, str) and value.startswith("/") and value.isprintable() and _is_utf8(value)
    if not isinstance(value, str) or not is_path or os.path.normpath(value) != value or value.startswith("//"):
        raise ChangeError(f"{where}: {_shown(value)} is not an absolute path in normal form")
    return value


def _version(value: object, where: str) -> str:
    return NO_DRIVER if value == NO_DRIVER else _text(value, where, _WORD)


def _text(value: object, where: str, form: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not form.fullmatch(value):
        raise ChangeError(f"{where}: {_shown(value)} does not have the form {form.pattern}")
    return value


def _one_of(value: object, where: str, values: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in values:
        raise ChangeError(f"{where}: {_shown(value)} is not one of {', '.join(values)}")
    return value


def _boolean(document: dict[str, Any], key: str) -> bool:
    value = document[key]
    if not isinstance(value, bool):
        raise ChangeError(f"{key}: {_shown(value)} is neither true nor false")
    return value


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: object) -> str:
    return printable(repr(value), 100)


def _kind(value: object) -> str:
    return "null" if value is None else type(value).__name__
