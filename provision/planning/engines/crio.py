"""Knows CRI-O: a hook file, and one drop-in that adds a runtime handler and the folder of hook files.

CRI-O reads ``/etc/crio/crio.conf`` and then every file of ``/etc/crio/crio.conf.d`` by name; a later file replaces
single keys and whole entries of the runtimes table, and leaves everything else. So the drop-in holds our handler and
``hooks_dir`` alone. A handler of CRI-O has no base specification: the hook file
(`provision.planning.engines.files.hook`) starts the hook, for pods that carry the annotation that our handler gives
them.
"""

from __future__ import annotations

import copy
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from provision.declaration.spec.model import Engine, EngineSource
from provision.planning.engines.files.engine_file import (
    DISTINCT_FILES,
    Table,
    parse_toml,
    require_default,
    shown,
    version_numbers,
)
from provision.planning.engines.files.hook import (
    DEFAULT_FOLDER,
    FILE_NAME,
    HANDLER_ANNOTATION,
    render_hook_file,
    require_no_injector,
)
from provision.planning.engines.files.hook import FOLDER as HOOKS_FOLDER
from provision.planning.engines.files.present import strictest, text_of, texts_beside, texts_of, version_of_engine
from provision.planning.engines.files.runtimes import is_injector, is_ordinary
from provision.planning.engines.files.toml_text import render_toml
from provision.planning.engines.model import Files, KnownEngine, NodeEngine
from provision.planning.engines.package import CRI_O, CRI_O_WITH_SELINUX, DEBIAN_KIN, RHEL_KIN
from provision.planning.node_plan import FileContent
from provision.planning.render.errors import EngineConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec

MAIN_PATH = "/etc/crio/crio.conf"
DROP_IN_FOLDER = "/etc/crio/crio.conf.d"
DROP_IN_PATH = f"{DROP_IN_FOLDER}/99-nvidia.conf"
HOOK_FILE_PATH = f"{HOOKS_FOLDER}/{FILE_NAME}"

_FIRST_VERSION = (1, 32)  # default_annotations and inherit_default_runtime of a handler
_BUILT_IN_DEFAULT = "crun"  # CRI-O's own since 1.31, in force while no file says default_runtime
_OCI_TYPES = {"", "oci"}  # not a virtual machine, not a monitor of its own
_MAX_FILES = 32


@dataclass(frozen=True)
class _Config:
    """What one file says in ``[crio.runtime]``; None where it says nothing."""

    path: str
    hooks_dir: tuple[str, ...] | None
    default_runtime: str | None
    handlers: Mapping[str, Table]


def render_crio(
    *,
    main: str | None,
    drop_ins: Mapping[str, str],
    handlers: Sequence[str],
    engine_version: str,
    adopt: bool = False,
) -> str:
    """Return the drop-in's text for a handler and its other names.

    ``main`` is the text of the main file (None: absent), ``drop_ins`` are the texts of all files of `DROP_IN_FOLDER` by
    path. With ``adopt`` a handler of that name in an earlier file is taken over. Raises `EngineConfigError` when
    nothing should be touched.
    """
    _require_version(engine_version)
    others = {path: text for path, text in drop_ins.items() if path != DROP_IN_PATH}
    if len(others) > _MAX_FILES:
        raise EngineConfigError(f"{DROP_IN_FOLDER} has more than {_MAX_FILES} files", hint="merge them")
    configs = _parse_all(main, others)
    bound = [each for each in configs if _is_later(each)] if adopt else configs
    for handler in handlers:
        _require_free(bound, handler)
    _require_last_word(configs)
    ours = {handler: _handler(configs, handler) for handler in handlers}
    default = _default_of(configs)
    require_default(
        "default_runtime",
        "" if is_ordinary(default) else default,
        {*(name for config in configs for name in config.handlers), *handlers},
        [(MAIN_PATH, main or ""), *sorted(others.items())],
        handlers,
    )
    tree = {"crio": {"runtime": {"hooks_dir": _hooks_folders(configs), "runtimes": ours}}}
    text = render_toml(tree)
    if tomllib.loads(text) != tree:
        raise EngineConfigError(
            f"a runtime of {MAIN_PATH} or {DROP_IN_FOLDER} has something in it that cannot be written unchanged",
            hint="simplify it",
        )
    return text


def hooks_folders(*, main: str | None, drop_ins: Mapping[str, str]) -> list[str]:
    """Return the folders of hook files that CRI-O reads with our drop-in; raises `EngineConfigError`."""
    return _hooks_folders(_parse_all(main, {path: text for path, text in drop_ins.items() if path != DROP_IN_PATH}))


def _parse_all(main: str | None, others: Mapping[str, str]) -> list[_Config]:
    return [_parse(path, text) for path, text in [(MAIN_PATH, main or ""), *sorted(others.items())]]


def _require_version(engine_version: str) -> None:
    if version_numbers(engine_version) < _FIRST_VERSION:
        first = ".".join(map(str, _FIRST_VERSION))
        version = shown(engine_version) or "of an unknown version"
        raise EngineConfigError(
            f"CRI-O {version} cannot tell the hook which pods use our handler",
            hint=f"default_annotations of a handler came with CRI-O {first}: update it",
        )


def _parse(path: str, text: str) -> _Config:
    runtime = parse_toml(path, text, show="crio config").table("crio").table("runtime")
    handlers = runtime.table("runtimes").tables()
    for entry in handlers.values():
        entry.text("runtime_path")
        entry.text("runtime_type")
        annotations = entry.table("default_annotations")
        for key in annotations.values:
            annotations.text(key)
    return _Config(
        path=path,
        hooks_dir=runtime.texts("hooks_dir") if "hooks_dir" in runtime.values else None,
        default_runtime=runtime.text("default_runtime") if "default_runtime" in runtime.values else None,
        handlers=handlers,
    )


def _require_free(configs: Sequence[_Config], handler: str) -> None:
    for config in configs:
        if handler in config.handlers:
            raise EngineConfigError(
                f"the runtime handler {handler!r} is already in {shown(config.path)}, and grapnel did not create it",
                hint="remove it, declare runtime.adopt: true or another runtime.handler: docs/migrate.md has the ways",
            )


def _require_last_word(configs: Sequence[_Config]) -> None:
    """Refuse a drop-in after ours that takes the folder of hook files away again."""
    for config in configs:
        if _is_later(config) and config.hooks_dir is not None and HOOKS_FOLDER not in config.hooks_dir:
            raise EngineConfigError(
                f"{shown(config.path)} is read after {DROP_IN_PATH} and sets hooks_dir without {HOOKS_FOLDER}",
                hint="add that folder to it, or rename the file so that it sorts first",
            )


def _is_later(config: _Config) -> bool:
    """Tell whether a file is read after ours."""
    return config.path != MAIN_PATH and config.path > DROP_IN_PATH


def _hooks_folders(configs: Sequence[_Config]) -> list[str]:
    """Return the folders that are in force without us, and ours."""
    said = [config.hooks_dir for config in configs if config.hooks_dir is not None]
    folders = said[-1] if said else (DEFAULT_FOLDER,)  # CRI-O's own
    return [*(folder for folder in folders if folder != HOOKS_FOLDER), HOOKS_FOLDER]


def _handler(configs: Sequence[_Config], handler: str) -> dict[str, Any]:
    """Return our handler: the node's ordinary runtime, and the annotation that lets the hook file match."""
    handlers: dict[str, Table] = {}
    for config in configs:
        handlers |= config.handlers
    default = _default_of(configs)
    name = _ordinary_runtime(handlers, default)
    ordinary = handlers[name] if name in handlers else Table(MAIN_PATH, {})
    entry = {key: copy.deepcopy(value) for key, value in ordinary.values.items() if key != "inherit_default_runtime"}
    if not ordinary.text("runtime_path"):
        # An entry without a path means the program of the entry's own name: ours has another name.
        if name != default:
            raise EngineConfigError(
                f"the runtime {name!r} of CRI-O has no runtime_path, and is not its default_runtime",
                hint=f"say where the program is: runtime_path in [crio.runtime.runtimes.{name}]",
            )
        entry["inherit_default_runtime"] = True
    annotations = {**ordinary.table("default_annotations").values, HANDLER_ANNOTATION: handler}
    return entry | {"default_annotations": annotations}


def _default_of(configs: Sequence[_Config]) -> str:
    said = [config.default_runtime for config in configs if config.default_runtime]
    return said[-1] if said else _BUILT_IN_DEFAULT


def _ordinary_runtime(handlers: Mapping[str, Table], default: str) -> str:
    """Return the name of the default runtime if it is runc or something like it, else of one that is.

    A default runtime that no file describes is CRI-O's built-in one.
    """
    if default not in handlers and is_ordinary(default):
        return default
    for name in (default, "crun", "runc"):
        if name in handlers and _is_ordinary(name, handlers[name]):
            return name
    program = (handlers[default].text("runtime_path") if default in handlers else "") or default
    behind = "" if program == default else f", the program {shown(program)}"
    raise EngineConfigError(
        f"CRI-O's default runtime is {shown(default)!r}{behind}, and no runc or crun is beside it",
        hint="containers of the new handler need one: add [crio.runtime.runtimes.runc] with its runtime_path, "
        "a program that is called runc or crun",
    )


def _is_ordinary(name: str, entry: Table) -> bool:
    program = entry.text("runtime_path") or name
    is_oci = entry.text("runtime_type") in _OCI_TYPES
    return is_oci and is_ordinary(program) and not is_injector(entry.values.values())


def _own_files(stack: StackSpec) -> Files:
    return (FileContent(HOOK_FILE_PATH, render_hook_file(stack, has_handlers=True)),)


def _engine_files(facts: NodeFacts, stack: StackSpec) -> Files:
    beside = [path for path in facts.files if path.startswith(f"{DROP_IN_FOLDER}/") and path != DROP_IN_PATH]
    drop_ins, main = texts_of(facts, beside), text_of(facts, MAIN_PATH)
    version = version_of_engine(facts, Engine.CRIO)
    rendered = _rendered(main, tuple(drop_ins.items()), stack.runtime.handlers, version, adopt=stack.runtime.adopt)
    folders = hooks_folders(main=main, drop_ins=drop_ins)
    require_no_injector(texts_beside(facts, HOOK_FILE_PATH), folders, engine="CRI-O")
    return (FileContent(DROP_IN_PATH, rendered, strictest(facts, [MAIN_PATH, *drop_ins])),)


@lru_cache(maxsize=DISTINCT_FILES)
def _rendered(
    main: str | None,
    drop_ins: tuple[tuple[str, str], ...],
    handlers: tuple[str, ...],
    engine_version: str,
    *,
    adopt: bool,
) -> str:
    """Return the drop-in, remembered for nodes with equal files."""
    return render_crio(
        main=main, drop_ins=dict(drop_ins), handlers=handlers, engine_version=engine_version, adopt=adopt
    )


_ON_NODE: Final = NodeEngine(
    name=Engine.CRIO.value,
    service="crio.service",
    packages={
        EngineSource.CRIO: {
            **dict.fromkeys((*DEBIAN_KIN, "sles"), CRI_O),
            **dict.fromkeys((*RHEL_KIN, "amzn"), CRI_O_WITH_SELINUX),
        },
    },
    show_config="crio config",
    engine_paths=(DROP_IN_PATH,),
    drop_in_path=DROP_IN_PATH,
    own_files=_own_files,
    engine_files=_engine_files,
    live_files=frozenset({HOOK_FILE_PATH}),
    kept_folder="/etc/crio",
    adopted={
        DROP_IN_PATH: f"{DROP_IN_FOLDER}/99-nvidia-adopted.conf",
        f"{DROP_IN_FOLDER}/99-nvidia.toml": f"{DROP_IN_FOLDER}/99-nvidia-adopted.toml",
    },
)
CRIO: Final = KnownEngine(lambda _: _ON_NODE, toolkit_paths=("/etc/crio", "/run/crio"), folder="/etc/crio/")
