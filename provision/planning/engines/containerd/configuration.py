"""Renders containerd's configuration: its main file imports our drop-in, the drop-in adds one runtime handler.

Up to containerd 1.7 a drop-in that names a plugin replaces that plugin's whole table (``mergeConfig``), so with
configuration version 2 our drop-in carries the entire CRI table that is in force without it. With version 3 (containerd
2) tables are merged, over the built-in defaults as well, and the drop-in is small. Either way the handler is the only
thing that differs, and where GPUs are given to claims that CDI devices are taken; the default runtime is never changed.
That it is so, the node itself sees before anything is swapped in (``module_utils/engines/rehearsal.py`` of the
collection).
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from provision.planning.engines.containerd.handler import (
    BUILT_IN_DEFAULT,
    RUNC_SHIM,
    cover_handler,
    find_base_spec,
    render_handler,
    without_handlers,
)
from provision.planning.engines.containerd.imports import (
    CRI_NAMES,
    DROP_IN_PATH,
    MAIN_PATH,
    PLUGINS,
    Config,
    files_around_ours,
    merged,
    missing_import,
    parse_config,
)
from provision.planning.engines.files.engine_file import (
    Table,
    bom_of,
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

_CDI = "enable_cdi"  # of the CRI plugin: off by default before containerd 2.0
_CDI_ALWAYS_ON = (2, 4)
_OLD_VERSION = 2  # whole tables are replaced on import
_FIRST_THAT_MERGES = (2,)
_SHOW = "containerd config dump"
_MAX_HEAD_CHARACTERS = 16 * 1024  # two seconds of tomlkit at most
_CRI_OFF = re.compile(r"""^[ \t]*disabled_plugins[ \t]*=[ \t]*\[[ \t]*["']cri["'][ \t]*\][ \t]*\n?""", re.MULTILINE)
_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)


@dataclass(frozen=True)
class ContainerdFiles:
    """The texts of both files as they should be; ``base_spec`` is the default runtime's own, empty without one."""

    main: str
    drop_in: str
    base_spec: str = ""


def render_containerd(
    *,
    main: str | None,
    drop_ins: Mapping[str, str],
    handlers: Sequence[str],
    engine_version: str,
    looked_at: Collection[str] = (),
    adopt: bool = False,
    cdi: bool = False,
) -> ContainerdFiles:
    """Return both files for a handler and its other names.

    ``main`` is the text of the main file (None: absent), ``drop_ins`` are the texts of other configuration files by
    path, whether imported or not: at least all of `DROP_IN_FOLDER`. ``looked_at`` are the imports, as absolute paths
    and patterns, of which all files are in ``drop_ins``. With ``adopt`` handlers of these names are taken over from
    whoever added them, and with ``cdi`` CDI devices are switched on where they are off. Raises `EngineConfigError` when
    nothing should be touched.
    """
    cdi = cdi and version_numbers(engine_version) < _CDI_ALWAYS_ON
    config = parse_config(MAIN_PATH, _without_dockers_default(main or ""))
    version = _version_of(config, engine_version)
    addition = missing_import(config, drop_ins)
    before, after = files_around_ours(config, drop_ins, addition, looked_at)
    others = [*before, *after]
    _require_cri([config, *others])
    _require_one_version(version, config, others, engine_version)
    plugin = PLUGINS[version]
    _require_last_word(version, after, handlers, cdi=cdi)
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
        drop_in=_render_drop_in(
            table, version, handlers, adopt=adopt, cdi=cdi and not table.get(_CDI, not _is_before_2(engine_version))
        ),
        base_spec=find_base_spec(in_force, replaced),
    )


def _without_dockers_default(text: str) -> str:
    """Return a main file without the line that Docker's package brings, if that is all that the file says.

    The site has not written it, and a kubelet cannot use an engine that has it. Beside anything else it counts.
    """
    rest = _CRI_OFF.sub("", text, count=1)
    try:
        is_default = rest != text and tomllib.loads(text) == {"disabled_plugins": ["cri"]} and not tomllib.loads(rest)
    except (ValueError, RecursionError):
        return text
    return rest if is_default else text


def _version_of(config: Config, engine_version: str) -> int:
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


def _require_cri(configs: Iterable[Config]) -> None:
    for config in configs:
        if CRI_NAMES.intersection(config.disabled_plugins):
            raise EngineConfigError(
                f"{shown(config.path)} disables the CRI plugin, so no runtime handler of it can be used",
                hint='remove "cri" from disabled_plugins',
            )


def _require_one_version(version: int, main: Config, others: Iterable[Config], engine_version: str) -> None:
    """Refuse settings of plugins in several versions: the last file that is read decides whose are in force."""
    for config in others:
        if config.has_plugins and config.version not in (None, version):
            raise EngineConfigError(
                f"{shown(config.path)} has version {shown(str(config.version))} and {main.path} has version {version}: "
                "one more file would change which settings are in effect",
                hint=f"bring both to {_newest_version(engine_version)}",
            )


def _require_last_word(version: int, after: Iterable[Config], handlers: Sequence[str], *, cdi: bool) -> None:
    """Refuse a drop-in that would replace ours as a whole, or a handler in it, or takes no CDI devices after all."""
    for config in after:
        if version == _OLD_VERSION and PLUGINS[version] in config.cri:
            raise EngineConfigError(
                f"{shown(config.path)} is read after {DROP_IN_PATH} and replaces its CRI settings as a whole",
                hint="rename it so that it sorts first",
            )
        cri = config.cri.get(PLUGINS[version], {})
        if cdi and cri.get(_CDI) is False:
            raise EngineConfigError(
                f"{shown(config.path)} is read after {DROP_IN_PATH} and has {_CDI} = false, with which containers "
                "start without the GPUs of their claims",
                hint="take that line out, or declare plugin.interface: devicePlugin for this node",
            )
        theirs = Table(config.path, cri).table("containerd").table("runtimes")
        if taken := [handler for handler in handlers if handler in theirs.values]:
            raise EngineConfigError(
                f"{shown(config.path)} is read after {DROP_IN_PATH} and has a runtime handler {taken[0]!r} of its own",
                hint="rename it so that it sorts first, or remove the handler from it",
            )


def _render_main(config: Config, version: int, addition: str) -> str:
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


def _render_drop_in(cri: Mapping[str, Any], version: int, handlers: Sequence[str], *, adopt: bool, cdi: bool) -> str:
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
    addition = {**({_CDI: True} if cdi else {}), "containerd": {"runtimes": ours}}
    table = merged([without_handlers(cri, handlers), addition]) if version == _OLD_VERSION else addition
    tree = {"version": version, "plugins": {PLUGINS[version]: table}}
    text = render_toml(tree)
    _require_meaning(text, tree, DROP_IN_PATH)
    return text
