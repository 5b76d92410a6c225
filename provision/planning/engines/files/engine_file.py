"""Parses an engine's configuration file within limits, and checks the types of what is read.

Whoever is root on a node can write anything into such a file. So a text is measured before it is parsed, and a value
of another type than the engine's own is an `EngineConfigError` that names file and key. Values never appear in a
message: they may be passwords.
"""

from __future__ import annotations

import json
import math
import posixpath
import re
import tomllib
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from provision.base.printable import printable
from provision.planning.render.errors import EngineConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

BOM = "\ufeff"
# containerd's own complete configuration has 12 KiB and 7 levels. 64 KiB take tomllib under a second.
MAX_CHARACTERS = 64 * 1024
MAX_DEPTH = 32
DISTINCT_FILES = 64  # of a fleet's are remembered with what follows from them: thousands of nodes have the same few
_MAX_DOTS = 500  # in one line: a key's cost grows with the square of its parts

_SHOWN_CHARACTERS = 120
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_QUOTED = re.compile(r"'[^']{2,}'|\"[^\"]{2,}\"")
_KINDS: dict[type, str] = {
    list: "a list",
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    type(None): "null",
}


@dataclass(frozen=True)
class Table:
    """A table (or JSON object) of the file ``path``, at ``keys``; every read checks the type."""

    path: str
    values: Mapping[str, Any] = field(repr=False)
    keys: tuple[str, ...] = ()
    kind: str = "a table"

    def text(self, key: str, default: str = "") -> str:
        """Return a string."""
        return str(self._read(key, str, "a string", default))

    def number(self, key: str, default: int) -> int:
        """Return an integer."""
        value = self._read(key, int, "a whole number", default)
        if isinstance(value, bool):
            raise self.wrong(key, "a whole number")
        return int(value)

    def texts(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return a list of strings."""
        values = self._read(key, (list, tuple), "a list of strings", default)
        if not all(isinstance(each, str) for each in values):
            raise EngineConfigError(
                f"{shown(self.path)}: {self.name(key)} holds values that are not strings", hint=_HINT
            )
        return tuple(values)

    def table(self, key: str) -> Table:
        """Return the table at a key, an empty one when there is none."""
        return Table(self.path, self._read(key, dict, self.kind, {}), (*self.keys, key), self.kind)

    def tables(self) -> dict[str, Table]:
        """Return all entries, each of which has to be a table."""
        return {key: self.table(key) for key in self.values}

    def name(self, *more: str) -> str:
        """Return the dotted name of the table, or of a key in it, short and printable."""
        keys = (*self.keys, *more)
        return shown(".".join(key if _BARE_KEY.fullmatch(key) else json.dumps(key) for key in keys))

    def wrong(self, key: str, expected: str) -> EngineConfigError:
        """Return the error about a key whose value has another type."""
        value = self.values[key]
        kind = self.kind if isinstance(value, dict) else _KINDS.get(type(value), "a date or time")
        return EngineConfigError(f"{shown(self.path)}: {self.name(key)} is {kind}, not {expected}", hint=_HINT)

    def _read(self, key: str, kind: type | tuple[type, ...], expected: str, default: Any) -> Any:
        value = self.values.get(key, default)
        if not isinstance(value, kind):
            raise self.wrong(key, expected)
        return value


_HINT = "fix it: the engine does not accept it either"


def parse_toml(path: str, text: str, *, show: str) -> Table:
    """Parse a TOML file; ``show`` is the command that lets the engine itself say what is wrong."""
    return Table(path, _parse(path, text, tomllib.loads, f"see what the engine says: {show}"))


def parse_json(path: str, text: str, *, show: str) -> Table:
    """Parse a JSON file whose outermost value is an object; an empty file has none in it."""
    values = _parse(path, text, _load_json, f"see what the engine says: {show}")
    if not isinstance(values, dict):
        raise EngineConfigError(f"{shown(path)} is not a JSON object", hint="fix it")
    return Table(path, values, kind="an object")


@lru_cache(maxsize=4 * DISTINCT_FILES)
def is_same(path: str, before: str | None, after: str) -> bool:
    """Tell whether two texts of a file mean the same to the engine: comments and layout do not count."""
    if before is None or before == after:
        return before is not None
    try:
        if path.endswith(".json"):
            return bool(json.loads(before) == json.loads(after))
        known, wanted = (parse_toml("", text, show="") for text in (before, after))
    except (EngineConfigError, ValueError):
        return False
    return known.values == wanted.values


def without_bom(text: str) -> str:
    """Return a text without its byte order mark, which the engines skip."""
    return text.removeprefix(BOM)


def bom_of(text: str) -> str:
    """Return the byte order mark that a text begins with, or nothing."""
    return BOM if text.startswith(BOM) else ""


def shown(text: str) -> str:
    """Return a name or path of the node, short and without characters that a terminal would obey."""
    return printable(text, limit=_SHOWN_CHARACTERS)


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers that an engine's version begins with: (1, 7, 24)."""
    found = re.match(r"[0-9]{1,6}(?:\.[0-9]{1,6})*", version)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def is_match(path: str, pattern: str, folder: str) -> bool:
    """Tell whether an import means a file, as containerd reads it: relative to ``folder``, a glob if it has a star."""
    absolute = posixpath.normpath(posixpath.join(folder, pattern))
    if "*" not in absolute:
        return path == absolute
    parts, wanted = path.split("/"), absolute.split("/")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def require_default(
    key: str, name: str, known: Collection[str], texts: Iterable[tuple[str, str]], handlers: Sequence[str]
) -> None:
    """Refuse a default runtime that no handler will have: an engine, or its CRI plugin, does not start with that.

    ``known`` are the names of all handlers with ours, ``texts`` the files by path in the order in which they are read.
    It may have been ``handlers``, ours, under a former name. Raises `EngineConfigError`.
    """
    if not name or name in known:
        return
    said = re.compile(rf"""{key}["']?[ \t]*=[ \t]*["']{re.escape(name)}["']""")
    places = [
        f"{path}:{number}"
        for path, text in texts
        for number, line in enumerate(text.splitlines(), start=1)
        if said.search(line.partition("#")[0])
    ]
    place = shown(places[-1]) if places else key
    raise EngineConfigError(
        f"{place} has {shown(name)!r} as default runtime, and no handler of that name is left",
        hint=f"name another one there, such as {handlers[0]}, or keep it: runtime.handlerAliases: [{shown(name)}]",
    )


def _parse(path: str, text: str, load: Callable[[str], Any], hint: str) -> Any:
    _require_small(path, text)
    try:
        values = load(without_bom(text))
    except RecursionError as error:
        raise _too_deep(path) from error
    except ValueError as error:
        raise EngineConfigError(f"{shown(path)}: {_complaint(error, text)}", hint=hint) from None
    _require_shallow(path, values)
    return values


def _require_small(path: str, text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise EngineConfigError(
            f"{shown(path)} has more than {MAX_CHARACTERS} characters", hint="grapnel does not edit files of that size"
        )
    long = next((number for number, line in enumerate(text.split("\n"), 1) if line.count(".") > _MAX_DOTS), None)
    if long is not None:
        raise EngineConfigError(
            f"{shown(path)}: line {long} has more than {_MAX_DOTS} dots in it",
            hint="no key has that many parts: fix it, or write a long value on several lines",
        )


def _require_shallow(path: str, values: Any) -> None:
    """Refuse a tree that is nested too deep; walks without recursion."""
    pending: list[tuple[tuple[str, ...], Any]] = [((), values)]
    while pending:
        keys, value = pending.pop()
        if len(keys) > MAX_DEPTH:
            raise _too_deep(path, keys)
        if isinstance(value, dict):
            pending += [((*keys, key), each) for key, each in value.items()]
        elif isinstance(value, list):
            pending += [((*keys, str(index)), each) for index, each in enumerate(value)]


def _too_deep(path: str, keys: tuple[str, ...] = ()) -> EngineConfigError:
    where = f": {Table(path, {}, keys).name()} is" if keys else " is"
    return EngineConfigError(
        f"{shown(path)}{where} nested more than {MAX_DEPTH} levels deep",
        hint="no setting of an engine is: fix it",
    )


def _complaint(error: ValueError, text: str) -> str:
    """Return what a parser says, without pieces of the file."""
    said = _QUOTED.sub("…", str(error))
    template = " (it looks like a template)" if "{{" in text else ""
    return f"{said[:1].lower()}{shown(said[1:])}{template}"


def _load_json(text: str) -> Any:
    if not text.strip():
        return {}
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except ValueError as error:
        said = str(error)
        raise ValueError(f"not JSON: {said[:1].lower()}{said[1:]}") from error


def _no_number(_: str) -> float:
    raise ValueError("it holds NaN or infinity")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value
