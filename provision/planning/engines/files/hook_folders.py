"""Finds NVIDIA's hook file among those that CRI-O and Podman read: it serves every container.

NVIDIA's toolkit writes ``oci-nvidia-hook.json`` (CRI-O, Podman: ``nvidia-ctk runtime configure --config-mode=hook``)
for all containers, and what it starts gives a GPU to whoever asks in its environment. The file stays behind when the
toolkit is removed by hand. What counts is what a file starts, not what it is called. Forms: oci-hooks(5), schemas 1.0.0
and 0.1.0.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any

from provision.planning.engines.files.engine_file import parse_json, shown
from provision.planning.engines.files.runtimes import is_injector
from provision.planning.render.errors import EngineConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

DEFAULT_FOLDER = "/usr/share/containers/oci/hooks.d"
OVERRIDE_FOLDER = "/etc/containers/oci/hooks.d"
_SUFFIX = ".json"  # other names are not read
_SHOWN_FILES = 3


def require_no_injector(files: Mapping[str, str | None], folders: Collection[str], *, engine: str) -> None:
    """Raise `EngineConfigError` where a file of these folders starts NVIDIA's hook.

    ``files`` are the node's files by path; None is one that is no text.
    """
    folders = {posixpath.normpath(folder) for folder in folders}
    read = (path for path in sorted(files) if posixpath.dirname(path) in folders and path.endswith(_SUFFIX))
    found = [path for path in read if _starts_injector(path, files[path])]
    if not found:
        return
    more = f" and {len(found) - _SHOWN_FILES} more" if len(found) > _SHOWN_FILES else ""
    named = ", ".join(map(shown, found[:_SHOWN_FILES]))
    raise EngineConfigError(
        f"{named}{more}: starts NVIDIA's hook for containers of {engine}, which gives a GPU to any that asks in its "
        "environment",
        hint="remove it, and the toolkit that brought it: docs/migrate.md says how",
    )


def _starts_injector(path: str, text: str | None) -> bool:
    """Tell by the program and its arguments; of a file that cannot be read, by its name."""
    try:
        values = None if text is None else parse_json(path, text, show="").values
    except EngineConfigError:
        values = None
    return is_injector([posixpath.basename(path)] if values is None else _commands(values))


def _commands(values: Mapping[str, Any]) -> Iterator[Any]:
    """Return what a file of either schema starts, with arguments; keys in any case, as the engines take them."""
    for hook in _at(values, "hook"):
        if isinstance(hook, dict):
            yield from (each for key in ("path", "args") for found in _at(hook, key) for each in _flat(found))
        yield hook
    yield from (each for found in _at(values, "arguments") for each in _flat(found))


def _at(values: Mapping[str, Any], wanted: str) -> Iterable[Any]:
    return (value for key, value in values.items() if key.casefold() == wanted)


def _flat(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else [value]
