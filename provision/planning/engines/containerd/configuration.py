"""Renders containerd's configuration: its main file imports our drop-in, the drop-in adds one runtime handler.

Up to containerd 1.7 a drop-in that names a plugin replaces that plugin's whole table (``mergeConfig``), so with
configuration version 2 our drop-in carries the entire CRI table that is in force without it. With version 3
(containerd 2) tables are merged, over the built-in defaults as well, and the drop-in is small. Either way the handler
is the only thing that differs, and the default runtime is never changed. That it is so, the node itself sees before
anything is swapped in (``module_utils/engines/rehearsal.py`` of the collection).
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from provision.planning.engines.containerd.handler import (
    BASE_SPEC_PATH,
    BUILT_IN_DEFAULT,
    RUNC_SHIM,
    cover_handler,
    find_base_spec,
    render_handler,
    require_types,
    without_handlers,
)
from provision.planning.engines.files.engine_file import (
    DISTINCT_FILES,
    Table,
    bom_of,
    is_match,
    parse_toml,
    require_default,
    shown,
    version_numbers,
    without_bom,
)
from provision.planning.engines.files.toml_text import render_toml
from provision.planning.render.errors import EngineConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

__all__ = [
    "BASE_SPEC_PATH",
    "DROP_IN_PATH",
    "MAIN_PATH",
    "PLUGINS",
    "ContainerdFiles",
    "is_same_configuration",
    "merged",
    "render_containerd",
]

MAIN_PATH = "/etc/containerd/config.toml"
DROP_IN_FOLDER = "/etc/containerd/conf.d"
DROP_IN_PATH = f"{DROP_IN_FOLDER}/99-nvidia.toml"
# The plugin with the CRI's runtimes by the configuration's version; 4 moved sockets into plugins and left this one.
PLUGINS = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime", 4: "io.containerd.cri.v1.runtime"}

_IMPORT = f"{DROP_IN_FOLDER}/*.toml"
_OWN_IMPORT = f"{DROP_IN_FOLDER}/99-nvidia*.toml"  # a pattern: containerd does not start without a file that is named
_OLD_VERSION = 2  # whole tables are replaced on import
_CRI_NAMES = {"cri", *PLUGINS.values()}
_FIRST_THAT_MERGES = (2,)
_SHOW = "containerd config dump"
_MAX_FILES = 32
_MAX_HEAD_CHARACTERS = 16 * 1024  # two seconds of tomlkit at most
_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)


@dataclass(frozen=True)
class ContainerdFiles:
    """The texts of both files as they should be; ``base_spec`` is the default runtime's own, empty without one."""

    main: str
    drop_in: str
    base_spec: str = ""


@dataclass(frozen=True)
class _Config:
    """One configuration file, its values checked."""

    path: str
    text: str
    version: int | None
    imports: tuple[str, ...]
    disabled_plugins: tuple[str, ...]
    is_empty: bool
    has_plugins: bool
    cri: Mapping[str, Mapping[str, Any]]
    """Tables of the CRI plugin by its name."""


def render_containerd(  # noqa: PLR0913 - what is known of an engine, and what is asked
    *,
    main: str | None,
    drop_ins: Mapping[str, str],
    handlers: Sequence[str],
    engine_version: str,
    looked_at: Collection[str] = (),
    adopt: bool = False,
) -> ContainerdFiles:
    """Return both files for a handler and its other names.

    ``main`` is the text of the main file (None: absent), ``drop_ins`` are the texts of other configuration files by
    path, whether imported or not: at least all of `DROP_IN_FOLDER`. ``looked_at`` are the imports, as absolute
    paths and patterns, of which all files are in ``drop_ins``. With ``adopt`` handlers of these names are taken over
    from whoever added them. Raises `EngineConfigError` when nothing should be touched.
    """
    config = _parse(MAIN_PATH, main or "")
    version = _version_of(config, engine_version)
    addition = _missing_import(config, drop_ins)
    before, after = _imported(config, drop_ins, addition, looked_at)
    others = [*before, *after]
    _require_cri([config, *others])
    _require_one_version(version, config, others, engine_version)
    plugin = PLUGINS[version]
    _require_last_word(version, after, handlers)
    tables = [table for each in [config, *others] if (table := each.cri.get(plugin)) is not None]
    merges = version != _OLD_VERSION or version_numbers(engine_version) >= _FIRST_THAT_MERGES
    table = merged(tables) if merges else merged(tables[-1:])
    in_force = Table("the merged configuration", table).table("containerd")
    require_default(
        "default_runtime_name",
        in_force.text("default_runtime_name"),
        {BUILT_IN_DEFAULT, *in_force.table("runtimes").values, *handlers},
        ((each.path, each.text) for each in [config, *others]),
        handlers,
    )
    replaced = next(filter(in_force.table("runtimes").values.__contains__, handlers), "")
    return ContainerdFiles(
        main=_render_main(config, version, addition),
        drop_in=_render_drop_in(table, version, handlers, adopt=adopt),
        base_spec=find_base_spec(in_force, replaced),
    )


@lru_cache(maxsize=4 * DISTINCT_FILES)
def is_same_configuration(before: str | None, after: str) -> bool:
    """Tell whether two texts mean the same to the engine: comments and layout do not count."""
    if before is None or before == after:
        return before is not None
    try:
        known, wanted = (parse_toml("", text, show=_SHOW) for text in (before, after))
    except EngineConfigError:
        return False
    return known.values == wanted.values


def _parse(path: str, text: str) -> _Config:
    if path == MAIN_PATH:
        _require_own_hand(text)
    tree = parse_toml(path, text, show=f"containerd --config {shown(path)} config dump")
    plugins = tree.table("plugins")
    return _Config(
        path=path,
        text=text,
        version=tree.number("version", 1) if "version" in tree.values else None,
        imports=tree.texts("imports"),
        disabled_plugins=tree.texts("disabled_plugins"),
        is_empty=not tree.values,
        has_plugins=bool(plugins.values),
        cri={name: plugins.table(name).values for name in _CRI_NAMES if _checked(plugins, name)},
    )


def _require_own_hand(text: str) -> None:
    for line in text.splitlines():
        _, generated, after = line.casefold().partition("generated by")
        if line.startswith("#") and generated and "do not edit" in after:
            raise EngineConfigError(
                f"{MAIN_PATH} is managed by another program: {shown(line.strip('# '))!r}",
                hint="add the handler in that program's settings, or stop it from managing the file",
            )


def _checked(plugins: Table, name: str) -> bool:
    """Check the types of a CRI table; False when there is none."""
    if name not in plugins.values:
        return False
    require_types(plugins.table(name).table("containerd"))
    return True


def _version_of(config: _Config, engine_version: str) -> int:
    """Return the file's version; one that says nothing at all gets the engine's own."""
    if config.is_empty:
        return _OLD_VERSION if _is_before_2(engine_version) else 3
    version = 1 if config.version is None else config.version
    if version not in PLUGINS:
        raise EngineConfigError(
            f"{config.path} has version {shown(str(version))}, which has no drop-ins that can be added to",
            hint=f"bring it to {_newest_version(engine_version)}",
        )
    return version


def _is_before_2(engine_version: str) -> bool:
    return () < version_numbers(engine_version) < _FIRST_THAT_MERGES


def _newest_version(engine_version: str) -> str:
    """Return the version to bring a file to, and the engine's command for it: 1.x has no ``config migrate``."""
    if _is_before_2(engine_version):
        return f"version {_OLD_VERSION}, in which this prints the settings in force: containerd config dump"
    return "the newest version, in which this prints a file: containerd --config FILE config migrate"


def _missing_import(config: _Config, texts: Mapping[str, str]) -> str:
    """Return the import that the main file lacks, empty when it has ours.

    Files of the folder that the engine does not read today are not put in force by the way.
    """
    if any(_matches(DROP_IN_PATH, pattern) for pattern in config.imports):
        return ""
    idle = (path for path in texts if path != DROP_IN_PATH and _matches(path, _IMPORT))
    is_new = any(not any(_matches(path, pattern) for pattern in config.imports) for path in idle)
    return _OWN_IMPORT if is_new else _IMPORT


def _imported(
    main: _Config, texts: Mapping[str, str], addition: str, looked_at: Collection[str]
) -> tuple[tuple[_Config, ...], tuple[_Config, ...]]:
    """Return the other files that the engine reads before ours and after it, in its order: breadth first."""
    found: dict[str, _Config] = {}
    known = sorted({*texts, DROP_IN_PATH})
    order: list[str] = []
    pending = [(main, pattern) for pattern in (*main.imports, *([addition] if addition else []))]
    while pending:
        importer, pattern = pending.pop(0)
        for path in _files_of(importer, pattern, known, looked_at):
            if path in order or path == MAIN_PATH:
                continue
            order.append(path)
            if path != DROP_IN_PATH:
                _require_few(order)
                found[path] = _parse(path, texts[path])
                pending += [(found[path], each) for each in found[path].imports]
    place = order.index(DROP_IN_PATH)
    return tuple(found[path] for path in order[:place]), tuple(found[path] for path in order[place + 1 :])


def _files_of(importer: _Config, pattern: str, known: Iterable[str], looked_at: Collection[str]) -> list[str]:
    folder = posixpath.dirname(importer.path)
    matching = [path for path in known if is_match(path, pattern, folder)]
    absolute = posixpath.normpath(posixpath.join(folder, pattern))
    is_known = absolute in looked_at
    if matching or (is_known and "*" in absolute) or (not is_known and posixpath.dirname(absolute) == DROP_IN_FOLDER):
        return matching
    if is_known:
        raise EngineConfigError(
            f"{_place_of(importer, pattern)} imports {shown(absolute)}, which is not there or is no text: containerd "
            "does not start with that",
            hint="write that file, or take the import out",
        )
    raise EngineConfigError(
        f"{shown(importer.path)} imports {shown(pattern)}, which grapnel does not read and which may hold CRI settings",
        hint=f"move it to {DROP_IN_FOLDER}",
    )


def _place_of(importer: _Config, pattern: str) -> str:
    """Return where an import stands, with its line where that can be found."""
    lines = enumerate(importer.text.splitlines(), start=1)
    line = next((number for number, text in lines if pattern in text.partition("#")[0]), None)
    return shown(importer.path) if line is None else f"{shown(importer.path)}, line {line},"


def _require_few(order: list[str]) -> None:
    if len(order) > _MAX_FILES:
        raise EngineConfigError(
            f"{MAIN_PATH} imports more than {_MAX_FILES} files", hint="merge them, or import fewer of them"
        )


def _matches(path: str, pattern: str) -> bool:
    return is_match(path, pattern, posixpath.dirname(MAIN_PATH))


def _require_cri(configs: Iterable[_Config]) -> None:
    for config in configs:
        if _CRI_NAMES.intersection(config.disabled_plugins):
            raise EngineConfigError(
                f"{shown(config.path)} disables the CRI plugin, so no runtime handler of it can be used",
                hint='remove "cri" from disabled_plugins',
            )


def _require_one_version(version: int, main: _Config, others: Iterable[_Config], engine_version: str) -> None:
    """Refuse settings of plugins in several versions: the last file that is read decides whose are in force."""
    for config in others:
        if config.has_plugins and config.version not in (None, version):
            raise EngineConfigError(
                f"{shown(config.path)} has version {shown(str(config.version))} and {main.path} has version {version}: "
                "one more file would change which settings are in effect",
                hint=f"bring both to {_newest_version(engine_version)}",
            )


def _require_last_word(version: int, after: Iterable[_Config], handlers: Sequence[str]) -> None:
    """Refuse a drop-in that would replace ours as a whole, or a handler in it."""
    for config in after:
        if version == _OLD_VERSION and PLUGINS[version] in config.cri:
            raise EngineConfigError(
                f"{shown(config.path)} is read after {DROP_IN_PATH} and replaces its CRI settings as a whole",
                hint="rename it so that it sorts first",
            )
        theirs = Table(config.path, config.cri.get(PLUGINS[version], {})).table("containerd").table("runtimes")
        if taken := [handler for handler in handlers if handler in theirs.values]:
            raise EngineConfigError(
                f"{shown(config.path)} is read after {DROP_IN_PATH} and has a runtime handler {taken[0]!r} of its own",
                hint="rename it so that it sorts first, or remove the handler from it",
            )


def merged(tables: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge tables as containerd 2 does: lists are joined, other values of later tables win."""
    result: dict[str, Any] = {}
    for table in tables:
        for key, value in table.items():
            old = result.get(key)
            if isinstance(old, dict) and isinstance(value, dict):
                result[key] = merged([old, value])
            elif isinstance(old, list) and isinstance(value, list):
                result[key] = [*old, *(each for each in value if each not in old)]
            else:
                result[key] = value
    return result


def _render_main(config: _Config, version: int, addition: str) -> str:
    if not addition:
        return config.text
    head, rest = _at_first_table(without_bom(config.text))
    if len(head) > _MAX_HEAD_CHARACTERS:
        raise EngineConfigError(
            f"{MAIN_PATH} has more than {_MAX_HEAD_CHARACTERS} characters before its first table",
            hint=f'add the import yourself: imports = ["{addition}"]',
        )
    try:
        document = tomlkit.parse(head)
    except TOMLKitError as error:
        raise _unwritable(MAIN_PATH) from error
    if "version" not in document:
        document["version"] = version
    if "imports" in document:
        document["imports"].append(addition)
    else:
        document["imports"] = [addition]
    text = tomlkit.dumps(document) + rest
    values = parse_toml(MAIN_PATH, config.text, show=_SHOW).values
    _require_meaning(text, {"version": version, **values, "imports": [*config.imports, addition]}, MAIN_PATH)
    return bom_of(config.text) + text


def _at_first_table(text: str) -> tuple[str, str]:
    """Part a text into what stands outside of all tables and the rest, which stays as it is, with what leads up to it.

    ``imports`` and ``version`` are in the first part, and tomlkit takes seconds for what a table may hold.
    """
    table = _TABLE.search(text)
    if table is None:
        return text, ""
    lines = text[: table.start()].splitlines(keepends=True)
    while lines and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        lines.pop()
    head = "".join(lines)
    return head, text[len(head) :]


def _require_meaning(text: str, wanted: Mapping[str, Any], path: str) -> None:
    """Refuse to write a text that would not mean what it should, whatever the file's author made of TOML."""
    try:
        is_as_meant = tomllib.loads(text) == wanted
    except ValueError:
        is_as_meant = False
    if not is_as_meant:
        raise _unwritable(path)


def _unwritable(path: str) -> EngineConfigError:
    return EngineConfigError(
        f"{path} cannot be written: the engine's configuration has something in it that would not mean the same there",
        hint="simplify it: write every table once",
    )


def _render_drop_in(cri: Mapping[str, Any], version: int, handlers: Sequence[str], *, adopt: bool) -> str:
    containerd = Table("the merged configuration", cri).table("containerd")
    runtimes = containerd.table("runtimes").values
    if (taken := [handler for handler in handlers if handler in runtimes]) and not adopt:
        raise EngineConfigError(
            f"the runtime handler {taken[0]!r} already exists, and grapnel did not create it",
            hint="remove it, declare runtime.adopt: true or another runtime.handler: docs/migrate.md has the ways",
        )
    rendered = render_handler(containerd, taken[0] if taken else "")
    ours = {handler: cover_handler(runtimes.get(handler, {}), rendered) for handler in handlers}
    if not runtimes and version == _OLD_VERSION:
        # The table of runtimes replaces the built-in one, and an engine without its default runtime does not start.
        ours = {"runc": {"runtime_type": RUNC_SHIM}} | ours
    addition = {"containerd": {"runtimes": ours}}
    table = merged([without_handlers(cri, handlers), addition]) if version == _OLD_VERSION else addition
    tree = {"version": version, "plugins": {PLUGINS[version]: table}}
    text = render_toml(tree)
    _require_meaning(text, tree, DROP_IN_PATH)
    return text
