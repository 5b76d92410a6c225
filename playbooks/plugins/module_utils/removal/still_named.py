"""Finds what would still be named when it is gone: lines of an engine's configuration that stay, with their places.

A default runtime that no handler has keeps Docker and CRI-O from starting, and containerd's CRI plugin from loading; so
does a base specification that is not there. Such a line is somebody else's: it is told before anything is touched, and
never changed. What was there before grapnel is given back together with the handler that it named.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Callable

from ansible_collections.grapnel.node.plugins.module_utils.engines.files import settings_of
from ansible_collections.grapnel.node.plugins.module_utils.engines.handlers import (
    defaults_in,
    handlers_in,
    says_default,
)
from ansible_collections.grapnel.node.plugins.module_utils.engines.of_kubernetes import config_of
from ansible_collections.grapnel.node.plugins.module_utils.engines.table import DISTRIBUTIONS, K0S, OWN_FOLDER
from ansible_collections.grapnel.node.plugins.module_utils.removal.own import PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.removal.files import FileReturn
    from ansible_collections.grapnel.node.plugins.module_utils.removal.parts import Reader

_UNITS = "/etc/systemd/system"
_LIMIT_BYTES = 256 * 1024
_SPECS, _HOOK = f"{OWN_FOLDER}/", f"{PROGRAMS}/hook/"


@dataclass(frozen=True)
class _File:
    """A file that an engine or its service reads, as it is and as it will be.

    ``is_rendered``: the service writes it again when it starts, from the others.
    """

    path: str
    present: str
    after: str
    is_rendered: bool = False

    def place(self, is_meant: Callable[[str], bool]) -> str:
        """Return the file with the first line of its present text that is meant."""
        lines = enumerate(self.present.splitlines(), start=1)
        return next((f"{self.path}:{number}" for number, line in lines if is_meant(line)), self.path)


def find_still_named(
    host: Host, returned: Iterable[FileReturn], stays: Callable[[Reader], bool], *, hook_goes: bool
) -> list[str]:
    """Return why nothing may be begun, each with its place and remedy; ``stays`` tells of an engine's service."""
    files = list(returned)
    gone = [one.path for one in files if one.change is not None and one.change.after.is_absent]
    gone = [*(path for path in gone if path.startswith(_SPECS)), *([_HOOK] if hook_goes else [])]
    found: list[str] = []
    for engine, unit in dict.fromkeys((one.reader.engine, one.reader.unit) for one in files if stays(one.reader)):
        changes = [one.change for one in files if one.change is not None and one.reader.engine == engine]
        texts = {change.after.path: change.after.content for change in changes}
        configured = _configured(host, engine, unit, texts)
        going = {
            name
            for change in changes
            if change.before is not None
            for name, handler in handlers_in(change.before.content).items()
            if handler.is_ours
        }
        found += _naming_handlers(engine, configured, going - _left(configured))
        found += _naming_paths(configured, gone)
    return list(dict.fromkeys(found))


def _naming_handlers(engine: str, files: list[_File], going: set[str]) -> Iterator[str]:
    default = _default(files)
    if default is not None and default[1] in going:
        file, name = default
        remedy = "name another one there, or take the line out, then remove again"
        if file.is_rendered:
            remedy = f"change default-runtime in the settings of {engine}, which writes this file, and restart it first"
        place = file.place(partial(says_default, name=name))
        yield f"{place} has {name!r} as default runtime, which goes with grapnel, and {engine} fails then: {remedy}"
    for file in files:
        for name in [] if file.is_rendered else sorted(going & handlers_in(file.after).keys()):
            present = handlers_in(file.present).get(name)
            place = file.path if present is None else f"{file.path}:{present.line}"
            yield (
                f"{place} configures the handler {name!r}, which is removed with grapnel: "
                "take these lines out, then remove again"
            )


def _naming_paths(files: list[_File], gone: list[str]) -> Iterator[str]:
    for file in files:
        for path in gone:
            is_meant = partial(_says_path, path=path)
            if not file.is_rendered and any(map(is_meant, file.after.splitlines())):
                place = file.place(is_meant)
                yield f"{place} names {path}, which goes with grapnel: take that handler out, then remove again"


def _says_path(line: str, path: str) -> bool:
    return path in line.partition("#")[0]


def _default(files: list[_File]) -> tuple[_File, str] | None:
    """Return the default runtime that will be in force, the last one that is said; what is rendered counts least."""
    ordered = sorted(files, key=lambda file: not file.is_rendered)
    said = [(file, name) for file in ordered for name in defaults_in(file.after)]
    return said[-1] if said else None


def _left(files: list[_File]) -> set[str]:
    """Return the handlers that will be there; what is rendered may still have ours."""
    return {
        name
        for file in files
        for name, handler in handlers_in(file.after).items()
        if handler.is_whole and not (file.is_rendered and handler.is_ours)
    }


def _configured(host: Host, engine: str, unit: str, texts: Mapping[str, str]) -> list[_File]:
    """Return what an engine and its service read, in their order; ``texts`` are those that files will have."""
    rendered = config_of(host, engine) if engine in DISTRIBUTIONS and engine != K0S.name else ""
    paths = dict.fromkeys([*settings_of(host, engine, texts), *_command_lines(host, unit)])
    files = []
    for path in filter(None, paths):
        present = _read(host, path)
        files.append(_File(path, present, texts.get(path, present), is_rendered=path == rendered))
    return files


def _command_lines(host: Host, unit: str) -> list[str]:
    """Return the files with which somebody changes the command line of a service."""
    name = unit.rpartition(".")[0]
    beside = [f"{_UNITS}/{unit}.d/{each}" for each in host.names(f"{_UNITS}/{unit}.d")]
    return [f"/etc/default/{name}", f"/etc/sysconfig/{name}", f"{_UNITS}/{unit}", *beside]


def _read(host: Host, path: str) -> str:
    try:
        with host.open(path) as stream:
            return stream.read(_LIMIT_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
