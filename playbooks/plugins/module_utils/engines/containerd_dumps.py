"""Compares what containerd would run with, before and after: two dumps of its configuration, key by key.

Which file is read last, and in which version, decides what happens to settings that stand in a third one. Nobody has to
know these rules of every containerd to see that a value is another one.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Callable

from ansible_collections.grapnel.node.plugins.module_utils.engines.table import CONTAINERD
from ansible_collections.grapnel.node.plugins.module_utils.machine.identity import read_pythons

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

(_BASE_SPEC,) = CONTAINERD.ours  # of our handler, and of no other one

_CRI = ("io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
_ABOUT_FILES = {("imports",), ("version",)}
# containerd 1.7 fills this in where it is empty, when it starts: in a dump a runtime has either.
_SAME_AS_EMPTY = {"sandbox_mode": "podsandbox", "sandboxer": "podsandbox"}
_SECRET = re.compile(r"auth|cred|header|key|pass|secret|token|user|env|args|registry", re.IGNORECASE)
_PLAIN = re.compile(r"[A-Za-z0-9_./:-]{1,80}")
_MOST = 3
_FIRST_MINOR = 11  # Python 3.11 reads TOML by itself
_SCRIPT = "import json, sys, tomllib; json.dump(tomllib.load(open(sys.argv[1], 'rb')), sys.stdout, default=str)"
_TIMEOUT_S = 30.0
Parse = Callable[[str], "dict[str, Any]"]


def find_parser(host: Host, scratch: Path) -> Parse | None:
    """Return what reads TOML: this Python, or a later one of the machine, which is given files; None without one."""
    try:
        import tomllib  # noqa: PLC0415 - Python 3.11; Debian 12 has it
    except ImportError:
        later = [path for path, version in read_pythons(host).items() if int(version.partition(".")[2]) >= _FIRST_MINOR]
        return (lambda text: _parse_by(host, max(later), text, scratch)) if later else None
    return tomllib.loads


def _parse_by(host: Host, python: str, text: str, scratch: Path) -> dict[str, Any]:
    place = scratch / "dump.toml"
    place.touch(mode=0o600)
    place.write_text(text, encoding="utf-8")
    done = host.run([python, "-I", "-c", _SCRIPT, str(place)], _TIMEOUT_S)
    tree: dict[str, Any] = json.loads(done.stdout)
    return tree


def foreign_differences(before: str, after: str, parse: Parse | None) -> str | None:
    """Return which settings that are not ours would change, from what to what; None when none would."""
    if parse is None:
        return (
            "the comparison needs Python 3.11 or later beside the node's own, such as /usr/bin/python3.11: install one"
        )
    try:
        trees = [parse(text) for text in (before, after)]
        ours = {keys for tree in trees for keys in _handlers_of_ours(tree)}  # also of one that ours replaces
        was, becomes = (dict(_settings(tree, ours)) for tree in trees)
    except (ValueError, RecursionError):
        return "what it prints is not TOML"
    is_ours = {("plugins", name, "enable_cdi") for name in _CRI}  # switched on where GPUs are given to claims
    changed = {name for name in {*was, *becomes} if was.get(name) != becomes.get(name)}
    names = sorted(name for name in changed if not (name in is_ours and becomes.get(name) is True))
    if not names:
        return None
    told = [f"{_name(name)} would go from {_value(name, was)} to {_value(name, becomes)}" for name in names[:_MOST]]
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return f"{', '.join(told)}{more}"


def _handlers_of_ours(tree: dict[str, Any], keys: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            if value.get("base_runtime_spec") == _BASE_SPEC:
                yield (*keys, key)
            else:
                yield from _handlers_of_ours(value, (*keys, key))


def _settings(
    tree: dict[str, Any], ours: set[tuple[str, ...]], keys: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every setting by its keys; what is empty is as if it were not there, as it is in Go."""
    for key, value in tree.items():
        path = (*keys, key)
        if isinstance(value, dict):
            if path not in ours:
                yield from _settings(value, ours, path)
        elif value and path not in _ABOUT_FILES and _SAME_AS_EMPTY.get(key) != value:
            yield path, value


def _name(keys: tuple[str, ...]) -> str:
    return ".".join(key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else ascii(key) for key in keys)


def _value(keys: tuple[str, ...], settings: dict[tuple[str, ...], Any]) -> str:
    value = settings.get(keys)
    if value is None:
        return "nothing"
    is_plain = isinstance(value, (bool, int, float)) or (isinstance(value, str) and _PLAIN.fullmatch(value))
    return str(value) if is_plain and not any(map(_SECRET.search, keys[1:])) else "(not shown)"
