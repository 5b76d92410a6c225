"""Knows containerd: its files on a node, what its package brings, and what of others' stays in force."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import Engine, EngineSource
from provision.planning.engines.containerd.base_spec import InheritedSpec, inherit_base_spec, render_base_spec
from provision.planning.engines.containerd.configuration import ContainerdFiles, render_containerd
from provision.planning.engines.containerd.handler import BASE_SPEC_PATH
from provision.planning.engines.containerd.imports import DROP_IN_FOLDER, DROP_IN_PATH, FOLDER, MAIN_PATH, PLUGINS
from provision.planning.engines.files.engine_file import DISTINCT_FILES, parse_toml, shown, version_numbers
from provision.planning.engines.files.present import mode_of, strictest, text_of, texts_of, version_of_engine
from provision.planning.engines.model import Files, KnownEngine, NodeEngine
from provision.planning.engines.package import CONTAINERD_IO, DEBIAN_KIN, DOCKERS_SYSTEMS, EnginePackage
from provision.planning.node_plan import FileContent, Problem
from provision.planning.render.errors import EngineConfigError
from provision.planning.render.hook_config import HOOK_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec

# SUSE's package says nothing but where to read (containerd.spec, "Set up dummy configuration").
SUSES_MAIN: Final = "# See containerd-config.toml(5) for documentation.\n"
# The conffile of containerd 1.6.20~ds1-1+deb12u3 (Debian 12) and 1.7.24~ds1-6+deb13u1 (Debian 13), which is the same.
DEBIANS_MAIN: Final = """\
version = 2

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/usr/lib/cni"
      conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.internal.v1.opt"]
    path = "/var/lib/containerd/opt"
"""

_MOST_BROUGHT = 3
# The folder of CNI plugins, in files from version 3 on; those of version 2 containerd translates.
_FORMER, _PRESENT = "bin_dir", "bin_dirs"
_FORMER_GONE_IN: Final = "2.4"
_FIRST_WITH_PRESENT: Final = (2, 1)
_WRITTEN: Final = re.compile(rf"^[ \t]*[\"']?{_FORMER}[\"']?[ \t]*=", re.MULTILINE)


def _engine_files(facts: NodeFacts, stack: StackSpec) -> Files:
    rendered = _containerd(facts, stack)
    return (
        base_spec_file(facts, rendered.base_spec),
        FileContent(MAIN_PATH, rendered.main, mode_of(facts, MAIN_PATH)),
        FileContent(DROP_IN_PATH, rendered.drop_in, strictest(facts, [MAIN_PATH, *_drop_ins(facts)])),
    )


def _containerd(facts: NodeFacts, stack: StackSpec) -> ContainerdFiles:
    return _rendered(
        text_of(facts, MAIN_PATH),
        tuple(_drop_ins(facts).items()),
        stack.runtime.handlers,
        version_of_engine(facts, Engine.CONTAINERD),
        frozenset(_imports(facts)),
        adopt=stack.runtime.adopt,
        cdi=stack.plugin.enabled and stack.plugin.interface.has_claims,
    )


@lru_cache(maxsize=DISTINCT_FILES)
def _rendered(
    main: str | None,
    drop_ins: tuple[tuple[str, str], ...],
    handlers: tuple[str, ...],
    engine_version: str,
    looked_at: frozenset[str],
    *,
    adopt: bool,
    cdi: bool,
) -> ContainerdFiles:
    """Return the files, remembered for nodes with equal ones: to parse and write TOML takes most of a plan's time."""
    return render_containerd(
        main=main,
        drop_ins=dict(drop_ins),
        handlers=handlers,
        engine_version=engine_version,
        looked_at=looked_at,
        adopt=adopt,
        cdi=cdi,
    )


def _drop_ins(facts: NodeFacts) -> Mapping[str, str]:
    """Return the texts of containerd's other configuration files by path, wherever they are.

    Raises `EngineConfigError` for one that is no text and is read wherever the folder of drop-ins is imported.
    """
    folder = f"{DROP_IN_FOLDER}/"
    imported = {path for paths in _imports(facts).values() for path in paths}
    known = (path for path in facts.files if path.endswith(".toml") or path.startswith(folder) or path in imported)
    others = [path for path in known if path not in {MAIN_PATH, DROP_IN_PATH}]
    needed = [path for path in others if path.startswith(folder) and path.endswith(".toml")]
    return texts_of(facts, needed) | {path: text for path in others if (text := facts.content(path)) is not None}


def _imports(facts: NodeFacts) -> Mapping[str, tuple[str, ...]]:
    found = facts.engines.get(Engine.CONTAINERD.value)
    return {} if found is None else found.imports


def base_spec_file(facts: NodeFacts, default: str) -> FileContent:
    """Return our handler's base specification; ``default`` is the default runtime's own, empty where it has none."""
    if not default:
        return FileContent(BASE_SPEC_PATH, render_base_spec(hook_timeout_s=HOOK_TIMEOUT_S))
    return FileContent(BASE_SPEC_PATH, _inherited(facts, default).text, strictest(facts, [default]))


def base_spec_source(default: str) -> Mapping[str, str]:
    """Return what our base specification follows from, in words, by its path."""
    return {BASE_SPEC_PATH: f"{shown(default)}, that of the default runtime"} if default else {}


def base_spec_warnings(facts: NodeFacts, default: str) -> tuple[Problem, ...]:
    """Return what containers of our handler get of the default runtime's specification that may surprise."""
    brings = _inherited(facts, default).brings if default else ()
    if not brings:
        return ()
    listed = f"{', '.join(brings[:_MOST_BROUGHT])}{' and more' if len(brings) > _MOST_BROUGHT else ''}"
    warning = Problem(
        code="base-spec-brings",
        message=f"{shown(default)} on {facts.node.hostname}, the base specification of the default runtime, brings "
        f"hooks or devices of its own: {listed}. Containers with GPUs get them as well, after grapnel's hook",
        hint="take them out of that file if containers with GPUs should not have them",
    )
    return (warning,)


def _inherited(facts: NodeFacts, default: str) -> InheritedSpec:
    state = facts.file(default)
    if state is not None and state.content is not None:
        return inherit_base_spec(default, state.content, hook_timeout_s=HOOK_TIMEOUT_S)
    what = "is too large, or no text"
    if state is None:
        is_looked_at = default in facts.files
        what = "is not there, or a link or pipe in place of a file" if is_looked_at else "was not read on the node"
    raise EngineConfigError(
        f"{shown(default)}, the base specification of the default runtime, {what}",
        hint="have base_runtime_spec of that runtime name a file itself, by its absolute path, or take it out: "
        "docs/engines/containerd.md",
    )


def _warnings(facts: NodeFacts, stack: StackSpec) -> tuple[Problem, ...]:
    return (*_cni_warnings(facts), *base_spec_warnings(facts, _containerd(facts, stack).base_spec))


def _cni_warnings(facts: NodeFacts) -> tuple[Problem, ...]:
    """Return that pods will have no network with a newer containerd, or have none now, for a key of the site's."""
    paths = (MAIN_PATH, *(path for path in facts.files if path.startswith(f"{DROP_IN_FOLDER}/")))
    texts = {path: text for path in paths if (text := facts.content(path)) is not None}
    return tuple(
        Problem(
            code="engine-key-gone",
            message=f"{path} on {facts.node.hostname} has cni.{_FORMER}, which containerd {_FORMER_GONE_IN} and later "
            "ignore: pods have no network where the plugins are not in /opt/cni/bin",
            hint=f"write it as a list: {_PRESENT} = [...]",
        )
        for path in _former_cni_folders(texts, version_of_engine(facts, Engine.CONTAINERD))
    )


def _former_cni_folders(texts: Mapping[str, str], engine_version: str) -> list[str]:
    """Return the files that have the former key alone, by path; none where the engine does not know the present one."""
    if version_numbers(engine_version) < _FIRST_WITH_PRESENT:
        return []
    found = [path for path, text in texts.items() if _WRITTEN.search(text) and _FORMER in _cni(path, text)]
    is_said = any(_PRESENT in _cni(path, text) for path, text in texts.items() if _PRESENT in text)
    return [] if is_said else found


def _cni(path: str, text: str) -> Iterable[str]:
    """Return the keys of the CNI table; those of a file that cannot be read are told elsewhere."""
    try:
        return parse_toml(path, text, show="").table("plugins").table(PLUGINS[3]).table("cni").values
    except EngineConfigError:
        return ()


_ON_NODE: Final = NodeEngine(
    name=Engine.CONTAINERD.value,
    service="containerd.service",
    packages={
        EngineSource.DISTRIBUTION: {
            **dict.fromkeys((*DEBIAN_KIN, "amzn"), EnginePackage("containerd")),
            "sles": EnginePackage("containerd", besides=("containerd-ctr",)),  # which is asked whether it works
        },
        EngineSource.DOCKER: dict.fromkeys(DOCKERS_SYSTEMS, CONTAINERD_IO),
    },
    defaults={"debian": {MAIN_PATH: DEBIANS_MAIN}, "ubuntu": {MAIN_PATH: None}, "sles": {MAIN_PATH: SUSES_MAIN}},
    show_config="containerd config dump",
    engine_paths=(BASE_SPEC_PATH, MAIN_PATH, DROP_IN_PATH),
    drop_in_path=DROP_IN_PATH,
    engine_files=_engine_files,
    has_shims=True,
    kept_folder=FOLDER,
    adopted={DROP_IN_PATH: f"{DROP_IN_FOLDER}/99-nvidia-adopted.toml"},
    follows_from=lambda facts, stack: base_spec_source(_containerd(facts, stack).base_spec),
    warnings=_warnings,
)
CONTAINERD: Final = KnownEngine(
    lambda _: _ON_NODE, toolkit_paths=("/etc/containerd", "/run/containerd"), folder=f"{FOLDER}/"
)
