"""What a `version: v1` file says: every key known, every value of its kind. Pure.

NVIDIA's plugin skips keys that it does not know; here each is an error, which names file, line, key and the
nearest known key.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from plugin.base.errors import ConfigError
from plugin.devices.naming import NamePattern, complete_resource_name, parse_pattern
from plugin.settings.nvidia.kinds import BOOLEAN
from plugin.settings.nvidia.sharing import MPS, TIME_SLICING, Share, Sharing, Strategy, parse_devices, parse_replicas
from plugin.settings.nvidia.table import BY_NAME, HINT, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from plugin.settings.nvidia.kinds import Value

VERSION = "v1"
_TOP = ("version", "flags", "resources", "sharing", "imex")
_RESOURCES = ("gpus", "mig")
_PATTERN = ("pattern", "name")
_SHARING = (TIME_SLICING, MPS)
_SHARE = ("name", "rename", "devices", "replicas")
_MOST_HOMES = 2
_SHARING_KEYS = ("strategy", "renameByDefault", "failRequestsGreaterThanOne", "resources")
_Parsed = TypeVar("_Parsed")


@dataclass(frozen=True)
class Document:
    """A file's content as plain values, and the line of each key by its path ("flags.plugin", "resources.gpus[0]")."""

    origin: str
    content: object
    lines: Mapping[str, int] = field(default_factory=dict)

    def where(self, path: str) -> str:
        """Return the file, with the line where that is known."""
        return f"{self.origin}:{self.lines[path]}" if path in self.lines else self.origin


@dataclass(frozen=True)
class FileSettings:
    """What a file says: settings with the place where they stand, patterns for GPUs and MIG devices, shares."""

    values: Mapping[str, tuple[Value, str]] = field(default_factory=dict)
    gpus: tuple[NamePattern, ...] = ()
    migs: tuple[NamePattern, ...] = ()
    sharing: Sharing = field(default_factory=Sharing)


def parse_document(document: Document) -> FileSettings:
    """Return what the file says; a ConfigError lists everything that is wrong with it."""
    reader = _Reader(document)
    settings = reader.read()
    if reader.problems:
        raise ConfigError("; ".join(reader.problems), HINT)
    return settings


class _Reader:
    """Walks one document and gathers problems instead of stopping at the first one."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self.problems: list[str] = []

    def read(self) -> FileSettings:
        top = self._keys(self._document.content, "", _TOP)
        if top.get("version", VERSION) != VERSION:
            self._problem("version", f'must be "{VERSION}"')
        values = dict(self._settings(top, ""))
        resources = self._keys(top.get("resources"), "resources", _RESOURCES)
        return FileSettings(
            values,
            self._patterns(resources.get("gpus"), "resources.gpus"),
            self._patterns(resources.get("mig"), "resources.mig"),
            self._sharing(top.get("sharing")),
        )

    def _problem(self, path: str, words: str) -> None:
        self.problems.append(f"{self._document.where(path)}: {path or 'the file'}: {words}")

    def _keys(self, value: object, path: str, known: tuple[str, ...]) -> dict[str, Any]:
        """Return the keys of a mapping that are known and given; nothing at all is an empty mapping."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._problem(path, "must be a mapping of keys to values")
            return {}
        found = {}
        for key, item in value.items():
            if key not in known:
                self._unknown(key, path, known)
            elif item is not None:
                found[key] = item
        return found

    def _unknown(self, key: str, path: str, known: tuple[str, ...]) -> None:
        homes = [f'"{place}"' for place, keys in _PLACES.items() if key in keys]
        if 0 < len(homes) <= _MOST_HOMES:
            where, inside = self._document.where(_join(path, key)), f"{path}: " if path else ""
            self.problems.append(f"{where}: {inside}unknown key {json.dumps(key)}, it belongs in {' or '.join(homes)}")
            return
        lowered = {name.lower(): name for name in known}
        from difflib import get_close_matches  # noqa: PLC0415 - only for an error

        nearest = get_close_matches(key.lower(), lowered, n=1, cutoff=0)
        where, inside = self._document.where(_join(path, key)), f"{path}: " if path else ""
        self.problems.append(
            f'{where}: {inside}unknown key {json.dumps(key[:64])}, the nearest one is "{lowered[nearest[0]]}"'
        )

    def _settings(self, given: dict[str, Any], path: str) -> Iterator[tuple[str, tuple[Value, str]]]:
        """Go down `flags` and `imex`, as far as the table of settings goes. An empty text counts as left out."""
        for key, value in given.items():
            name = _join(path, key)
            below = _BELOW.get(name)
            if below is not None:
                yield from self._settings(self._keys(value, name, below), name)
            elif name in BY_NAME and value != "":
                parsed = self._parse(BY_NAME[name].kind.from_document, value, name)
                if parsed is not None:
                    yield name, (parsed, self._document.where(name))

    def _parse(self, parse: Callable[[object], _Parsed], value: object, path: str) -> _Parsed | None:
        try:
            return parse(value)
        except ValueError as error:
            self._problem(path, str(error))
            return None

    def _entries(self, value: object, path: str, known: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
        if value is None:
            return
        if not isinstance(value, list):
            self._problem(path, "must be a list")
            return
        for number, item in enumerate(value):
            here = f"{path}[{number}]"
            yield here, self._keys({} if item is None else item, here, known)

    def _required(
        self, entry: dict[str, Any], key: str, path: str, parse: Callable[[object], _Parsed]
    ) -> _Parsed | None:
        if key not in entry:
            self._problem(path, f"{key} is missing")
            return None
        return self._parse(parse, entry[key], _join(path, key))

    def _patterns(self, value: object, path: str) -> tuple[NamePattern, ...]:
        patterns = []
        for here, entry in self._entries(value, path, _PATTERN):
            pattern = self._required(entry, "pattern", here, parse_pattern)
            name = self._required(entry, "name", here, complete_resource_name)
            if pattern is not None and name is not None:
                patterns.append(NamePattern(pattern, name, self._document.where(here)))
        return tuple(patterns)

    def _sharing(self, value: object) -> Sharing:
        given = self._keys(value, "sharing", _SHARING)
        return Sharing(tuple(self._strategy(name, content) for name, content in given.items()))

    def _strategy(self, name: str, content: object) -> Strategy:
        path = f"sharing.{name}"
        given = self._keys(content, path, _SHARING_KEYS)
        if given.get("strategy", "") != "":
            self._problem(f"{path}.strategy", "must be empty: no strategy has a name yet")
        if given.get("resources", []) == []:
            self._problem(path, "resources is missing: name what is shared, or leave the section out")
        return Strategy(
            name,
            tuple(self._shares(name, given.get("resources"), f"{path}.resources")),
            rename_by_default=bool(self._switch(given, "renameByDefault", path)),
            fail_requests_greater_than_one=self._switch(given, "failRequestsGreaterThanOne", path),
        )

    def _switch(self, given: dict[str, Any], key: str, path: str) -> bool | None:
        """Return what a switch says, None where it is not given."""
        value = self._parse(BOOLEAN.from_document, given[key], f"{path}.{key}") if key in given else None
        return None if value is None else bool(value)

    def _shares(self, strategy: str, value: object, path: str) -> Iterator[Share]:
        for here, entry in self._entries(value, path, _SHARE):
            name = self._required(entry, "name", here, complete_resource_name)
            replicas = self._required(entry, "replicas", here, parse_replicas)
            rename = (
                self._parse(complete_resource_name, entry["rename"], f"{here}.rename") if entry.get("rename") else ""
            )
            devices = self._parse(parse_devices, entry.get("devices", "all"), f"{here}.devices")
            if name is not None and replicas is not None and rename is not None:
                yield Share(strategy, name, replicas, rename, devices, self._document.where(here))


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _folders() -> dict[str, tuple[str, ...]]:
    """Return which keys may stand below `flags`, `flags.plugin` and so on."""
    below: dict[str, list[str]] = {}
    for setting in SETTINGS:
        parts = setting.name.split(".") if setting.in_file else []
        for depth in range(1, len(parts)):
            keys = below.setdefault(".".join(parts[:depth]), [])
            if parts[depth] not in keys:
                keys.append(parts[depth])
    return {folder: tuple(keys) for folder, keys in below.items()}


_BELOW = _folders()
_PLACES: dict[str, tuple[str, ...]] = {
    **_BELOW,
    "resources": _RESOURCES,
    "resources.gpus": _PATTERN,
    "resources.mig": _PATTERN,
    "sharing": _SHARING,
    **{f"sharing.{each}": _SHARING_KEYS for each in _SHARING},
    **{f"sharing.{each}.resources": _SHARE for each in _SHARING},
}
