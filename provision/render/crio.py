"""CRI-O's configuration: one drop-in that adds a runtime handler and the folder of hook files.

CRI-O reads ``/etc/crio/crio.conf`` and then every file of ``/etc/crio/crio.conf.d`` by name; a later file replaces
single keys and whole entries of the runtimes table, and leaves everything else. So the drop-in holds our handler and
``hooks_dir`` alone. A handler of CRI-O has no base specification: the hook file (`provision.render.hooks_d`) starts the
hook, for pods that carry the annotation that our handler gives them.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from provision.render.errors import EngineConfigError
from provision.render.hooks_d import HANDLER_ANNOTATION, HOOKS_FOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAIN_PATH = "/etc/crio/crio.conf"
DROP_IN_FOLDER = "/etc/crio/crio.conf.d"
DROP_IN_PATH = f"{DROP_IN_FOLDER}/99-nvidia.conf"

_HEADER = "managed by grapnel: the next apply puts back what is changed here"
_FIRST_VERSION = (1, 32)  # default_annotations and inherit_default_runtime of a handler
_DEFAULT_HOOKS_FOLDER = "/usr/share/containers/oci/hooks.d"  # CRI-O's own, in force while no file says hooks_dir
_BUILT_IN_DEFAULT = "crun"  # CRI-O's own since 1.31, in force while no file says default_runtime
_OCI_TYPES = {"", "oci"}  # not a virtual machine, not a monitor of its own
_OTHER_INJECTORS = ("nvidia-container-runtime",)


@dataclass(frozen=True)
class _Config:
    """The ``[crio.runtime]`` table of one file."""

    path: str
    runtime: dict[str, Any]

    @property
    def handlers(self) -> dict[str, Any]:
        """Entries of the runtimes table by handler."""
        return _table(self.runtime, "runtimes")


def render_crio(*, main: str | None, drop_ins: Mapping[str, str], handler: str, engine_version: str) -> str:
    """Return the drop-in's text for a handler.

    ``main`` is the text of the main file (None: absent), ``drop_ins`` are the texts of all files of `DROP_IN_FOLDER` by
    path. Raises `EngineConfigError` when nothing should be touched.
    """
    _require_version(engine_version)
    others = {path: text for path, text in drop_ins.items() if path != DROP_IN_PATH}
    configs = [_parse(path, text) for path, text in [(MAIN_PATH, main or ""), *sorted(others.items())]]
    _require_free(configs, handler)
    _require_last_word(configs)
    runtime = {
        "hooks_dir": _hooks_folders(configs),
        "runtimes": {handler: _handler(configs, handler)},
    }
    document = tomlkit.document()
    document.add(tomlkit.comment(_HEADER))
    document.update({"crio": {"runtime": runtime}})
    return tomlkit.dumps(document)


def _require_version(engine_version: str) -> None:
    numbers = [int(part) for part in engine_version.split(".") if part.isdigit()]
    if tuple(numbers) < _FIRST_VERSION:
        first = ".".join(map(str, _FIRST_VERSION))
        raise EngineConfigError(
            f"CRI-O {engine_version or 'of an unknown version'} cannot tell the hook which pods are of our handler",
            hint=f"default_annotations of a handler came with CRI-O {first}: update it",
        )


def _parse(path: str, text: str) -> _Config:
    try:
        tree = tomlkit.parse(text).unwrap()
    except TOMLKitError as error:
        raise EngineConfigError(
            f"{path}: {str(error)[:1].lower()}{str(error)[1:]}",
            hint="see what the engine says: crio config",
        ) from error
    return _Config(path, _table(_table(tree, "crio"), "runtime"))


def _table(tree: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return a table below another one; empty when there is none, or something else in its place."""
    found = tree.get(key)
    return found if isinstance(found, dict) else {}


def _require_free(configs: Sequence[_Config], handler: str) -> None:
    for config in configs:
        if handler in config.handlers:
            raise EngineConfigError(
                f"the runtime handler {handler!r} is in {config.path} already, and was not made by grapnel",
                hint="remove it from the engine's configuration, or declare another runtime.handler",
            )


def _require_last_word(configs: Sequence[_Config]) -> None:
    """Refuse a drop-in after ours that takes the folder of hook files away again."""
    for config in configs:
        is_later = config.path != MAIN_PATH and config.path > DROP_IN_PATH
        if is_later and HOOKS_FOLDER not in config.runtime.get("hooks_dir", [HOOKS_FOLDER]):
            raise EngineConfigError(
                f"{config.path} is read after {DROP_IN_PATH} and sets hooks_dir without {HOOKS_FOLDER}",
                hint="add that folder to it, or rename the file so that it sorts first",
            )


def _hooks_folders(configs: Sequence[_Config]) -> list[str]:
    """Return the folders that are in force without us, and ours."""
    folders = _last(configs, "hooks_dir", [_DEFAULT_HOOKS_FOLDER])
    return [*(folder for folder in folders if folder != HOOKS_FOLDER), HOOKS_FOLDER]


def _last(configs: Sequence[_Config], key: str, default: Any) -> Any:  # noqa: ANN401 - a value of a foreign file
    found = [config.runtime[key] for config in configs if key in config.runtime]
    return found[-1] if found else default


def _handler(configs: Sequence[_Config], handler: str) -> dict[str, Any]:
    """Return our handler: the node's ordinary runtime, and the annotation that lets the hook file match."""
    handlers: dict[str, Any] = {}
    for config in configs:
        handlers |= config.handlers
    default = _last(configs, "default_runtime", _BUILT_IN_DEFAULT)
    name, ordinary = _ordinary_runtime(handlers, default)
    entry = {key: copy.deepcopy(value) for key, value in ordinary.items() if key != "inherit_default_runtime"}
    if not entry.get("runtime_path"):
        # An entry without a path means the program of the entry's own name: ours has another name.
        if name != default:
            raise EngineConfigError(
                f"the runtime {name!r} of CRI-O has no runtime_path, and is not its default_runtime",
                hint=f"say where the program is: runtime_path in [crio.runtime.runtimes.{name}]",
            )
        entry["inherit_default_runtime"] = True
    annotations = {**_table(entry, "default_annotations"), HANDLER_ANNOTATION: handler}
    return entry | {"default_annotations": annotations}


def _ordinary_runtime(handlers: Mapping[str, Any], default: str) -> tuple[str, dict[str, Any]]:
    """Return name and entry of the default runtime if it is runc or something like it, else of one that is.

    The entry is empty when no file has one for the default runtime: then it is CRI-O's built-in one.
    """
    if default not in handlers and PurePosixPath(default).name not in _OTHER_INJECTORS:
        return default, {}
    for name in (default, "crun", "runc"):
        entry = handlers.get(name)
        if isinstance(entry, dict) and _is_ordinary(entry):
            return name, entry
    raise EngineConfigError(
        f"CRI-O's default runtime is {default!r}, and no runc or crun is beside it",
        hint="containers of the new handler need one: add [crio.runtime.runtimes.runc] with its runtime_path",
    )


def _is_ordinary(entry: Mapping[str, Any]) -> bool:
    is_injector = PurePosixPath(str(entry.get("runtime_path", ""))).name in _OTHER_INJECTORS
    return entry.get("runtime_type", "") in _OCI_TYPES and not is_injector
