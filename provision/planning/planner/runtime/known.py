"""Describes the container engines that a node can be planned for: names, packages, and the files of our handler.

What a plan does with them is `provision.planning.planner.runtime.runtime`'s; how a file is written is
`provision.planning.render`'s.
"""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from provision.declaration.spec.model import Engine
from provision.planning.engines import crio, docker
from provision.planning.engines.containerd import configuration as containerd
from provision.planning.engines.containerd.base_spec import InheritedSpec, inherit_base_spec, render_base_spec
from provision.planning.engines.docker_gpus import GPUS_PATH
from provision.planning.engines.files.engine_file import DISTINCT_FILES, shown
from provision.planning.engines.files.hook_folders import DEFAULT_FOLDER, OVERRIDE_FOLDER, require_no_injector
from provision.planning.engines.files.hooks_d import HOOK_FILE_PATH, PODMAN_HOOK_FILE_PATH, render_hooks_d
from provision.planning.node_plan import FileContent, Problem
from provision.planning.planner.runtime.docker_gpus import gpus_files, gpus_warnings
from provision.planning.render.errors import EngineConfigError
from provision.planning.render.hook_config import HOOK_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec

Files = tuple[FileContent, ...]

_MODE = re.compile(r"[0-7]{4}")
_USUAL_MODE = "0644"
_MOST_BROUGHT = 3


@dataclass(frozen=True)
class NodeEngine:
    """A container engine as the planner sees it.

    ``packages`` are the distribution's, none where no distribution has it. ``own_files`` need nothing but the
    declaration; ``engine_files`` follow from the engine's present configuration, are written to ``main_path`` and
    ``drop_in_path``, and raise `EngineConfigError`. ``live_files`` need no restart: the engine notices them by itself.
    ``drop_in_path`` is ours alone where there is a ``kept_folder``, in which a text that somebody wrote there is kept:
    not beside it, where the engine might read that, too. With ``is_block`` only the end of that file is ours.
    One that ``reloads`` takes its files in without a restart. ``service`` is empty for an engine that is no service.
    ``has_shims``: what keeps its containers running is in its service's control group, where systemd kills what its
    KillMode says. ``warnings`` are what a plan says of it besides. ``base_spec`` is the file that the default runtime
    names, which our base specification follows from; empty where it names none.
    """

    name: str
    service: str
    packages: tuple[str, ...]
    show_config: str
    engine_paths: tuple[str, ...]
    drop_in_path: str
    own_files: Callable[[StackSpec], Files] = field(repr=False)
    engine_files: Callable[[NodeFacts, StackSpec], Files] = field(repr=False)
    live_files: frozenset[str] = frozenset()
    reloads: bool = False
    has_shims: bool = False
    kept_folder: str = ""
    is_block: bool = False
    warnings: Callable[[NodeFacts, StackSpec], tuple[Problem, ...]] = field(default=lambda *_: (), repr=False)
    base_spec: Callable[[NodeFacts, StackSpec], str] = field(default=lambda *_: "", repr=False)


def _containerd_files(facts: NodeFacts, stack: StackSpec) -> Files:
    rendered = _containerd(facts, stack)
    return (
        base_spec_file(facts, rendered.base_spec),
        FileContent(containerd.MAIN_PATH, rendered.main, mode_of(facts, containerd.MAIN_PATH)),
        FileContent(
            containerd.DROP_IN_PATH, rendered.drop_in, strictest(facts, [containerd.MAIN_PATH, *_drop_ins(facts)])
        ),
    )


def _containerd(facts: NodeFacts, stack: StackSpec) -> containerd.ContainerdFiles:
    return _rendered_containerd(
        text_of(facts, containerd.MAIN_PATH),
        tuple(_drop_ins(facts).items()),
        stack.runtime.handlers,
        _version(facts, Engine.CONTAINERD),
        frozenset(_imports(facts)),
        adopt=stack.runtime.adopt,
    )


def base_spec_file(facts: NodeFacts, default: str) -> FileContent:
    """Return our handler's base specification; ``default`` is the default runtime's own, empty where it has none."""
    if not default:
        return FileContent(containerd.BASE_SPEC_PATH, render_base_spec(hook_timeout_s=HOOK_TIMEOUT_S))
    return FileContent(containerd.BASE_SPEC_PATH, _inherited(facts, default).text, strictest(facts, [default]))


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
        "docs/engines.md",
    )


@lru_cache(maxsize=DISTINCT_FILES)
def _rendered_containerd(  # noqa: PLR0913 - as render_containerd
    main: str | None,
    drop_ins: tuple[tuple[str, str], ...],
    handlers: tuple[str, ...],
    engine_version: str,
    looked_at: frozenset[str],
    *,
    adopt: bool,
) -> containerd.ContainerdFiles:
    """Return the files, remembered for nodes with equal ones: to parse and write TOML takes most of a plan's time."""
    return containerd.render_containerd(
        main=main,
        drop_ins=dict(drop_ins),
        handlers=handlers,
        engine_version=engine_version,
        looked_at=looked_at,
        adopt=adopt,
    )


def _crio_files(facts: NodeFacts, stack: StackSpec) -> Files:
    drop_ins = _below(facts, crio.DROP_IN_FOLDER, crio.DROP_IN_PATH)
    main = text_of(facts, crio.MAIN_PATH)
    version = _version(facts, Engine.CRIO)
    rendered = _rendered_crio(main, tuple(drop_ins.items()), stack.runtime.handlers, version, adopt=stack.runtime.adopt)
    require_no_injector(
        _others(facts, HOOK_FILE_PATH), crio.hooks_folders(main=main, drop_ins=drop_ins), engine="CRI-O"
    )
    return (FileContent(crio.DROP_IN_PATH, rendered, strictest(facts, [crio.MAIN_PATH, *drop_ins])),)


@lru_cache(maxsize=DISTINCT_FILES)
def _rendered_crio(
    main: str | None,
    drop_ins: tuple[tuple[str, str], ...],
    handlers: tuple[str, ...],
    engine_version: str,
    *,
    adopt: bool,
) -> str:
    """Return the drop-in, remembered for nodes with equal files."""
    return crio.render_crio(
        main=main, drop_ins=dict(drop_ins), handlers=handlers, engine_version=engine_version, adopt=adopt
    )


def _podman_files(facts: NodeFacts, _: StackSpec) -> Files:
    folders = (DEFAULT_FOLDER, OVERRIDE_FOLDER)
    require_no_injector(_others(facts, PODMAN_HOOK_FILE_PATH), folders, engine="Podman")
    return ()


def _others(facts: NodeFacts, ours: str) -> dict[str, str | None]:
    """Return the texts of all files but ours, which is about to be put right; None for one that is no text."""
    return {path: state.content for path, state in facts.files.items() if state is not None and path != ours}


def _docker_files(facts: NodeFacts, stack: StackSpec) -> Files:
    rendered = docker.render_docker(
        main=text_of(facts, docker.MAIN_PATH),
        handlers=stack.runtime.handlers,
        engine_version=_version(facts, Engine.DOCKER),
        adopt=stack.runtime.adopt,
    )
    return (*gpus_files(facts), FileContent(docker.MAIN_PATH, rendered, mode_of(facts, docker.MAIN_PATH)))


def text_of(facts: NodeFacts, path: str) -> str | None:
    """Return a file's text, None when it is absent; raises `EngineConfigError` when it is there and no text."""
    state = facts.file(path)
    if state is not None and state.content is None:
        raise EngineConfigError(f"{shown(path)} is not text, or is too large", hint="check what it is")
    return None if state is None else state.content


def mode_of(facts: NodeFacts, path: str) -> str:
    """Return the mode that a file of somebody else keeps, the usual one for a file that is absent."""
    state = facts.file(path)
    if state is None:
        return _USUAL_MODE
    if not _MODE.fullmatch(state.mode):
        raise EngineConfigError(
            f"{path} has mode {shown(state.mode)}, which is not four octal digits", hint="gather the facts again"
        )
    return f"0{state.mode[1:]}"


def strictest(facts: NodeFacts, paths: Iterable[str]) -> str:
    """Return the mode of a file that is made from others: it allows what all of theirs allow."""
    bits = int(_USUAL_MODE, 8)
    for path in paths:
        bits &= int(mode_of(facts, path), 8)
    return f"{bits | stat.S_IRUSR:04o}"


def _drop_ins(facts: NodeFacts) -> Mapping[str, str]:
    """Return the texts of containerd's other configuration files by path, wherever they are.

    Raises `EngineConfigError` for one that is no text and is read wherever the folder of drop-ins is imported.
    """
    folder = f"{containerd.DROP_IN_FOLDER}/"
    imported = {path for paths in _imports(facts).values() for path in paths}
    known = (path for path in facts.files if path.endswith(".toml") or path.startswith(folder) or path in imported)
    others = [path for path in known if path not in {containerd.MAIN_PATH, containerd.DROP_IN_PATH}]
    needed = [path for path in others if path.startswith(folder) and path.endswith(".toml")]
    return _texts(facts, needed) | {path: text for path in others if (text := facts.content(path)) is not None}


def _imports(facts: NodeFacts) -> Mapping[str, tuple[str, ...]]:
    found = facts.engines.get(Engine.CONTAINERD.value)
    return {} if found is None else found.imports


def _below(facts: NodeFacts, folder: str, ours: str) -> Mapping[str, str]:
    """Return the texts of all files of a folder but ours; raises `EngineConfigError` for one that is no text."""
    return _texts(facts, [path for path in facts.files if path.startswith(f"{folder}/") and path != ours])


def _texts(facts: NodeFacts, paths: Iterable[str]) -> dict[str, str]:
    return {path: text for path in paths if (text := text_of(facts, path)) is not None}


def _version(facts: NodeFacts, engine: Engine) -> str:
    found = facts.engines.get(engine.value)
    return "" if found is None else found.version


ENGINES: Mapping[Engine, NodeEngine] = {
    Engine.CONTAINERD: NodeEngine(
        name=Engine.CONTAINERD.value,
        service="containerd.service",
        has_shims=True,
        kept_folder="/etc/containerd",
        packages=("containerd",),
        show_config="containerd config dump",
        engine_paths=(containerd.BASE_SPEC_PATH, containerd.MAIN_PATH, containerd.DROP_IN_PATH),
        drop_in_path=containerd.DROP_IN_PATH,
        own_files=lambda _: (),
        engine_files=_containerd_files,
        base_spec=lambda facts, stack: _containerd(facts, stack).base_spec,
    ),
    Engine.CRIO: NodeEngine(
        name=Engine.CRIO.value,
        service="crio.service",
        packages=(),
        show_config="crio config",
        engine_paths=(crio.DROP_IN_PATH,),
        drop_in_path=crio.DROP_IN_PATH,
        own_files=lambda stack: (FileContent(HOOK_FILE_PATH, render_hooks_d(stack)),),
        engine_files=_crio_files,
        live_files=frozenset({HOOK_FILE_PATH}),
        kept_folder="/etc/crio",
    ),
    Engine.DOCKER: NodeEngine(
        name=Engine.DOCKER.value,
        service="docker.service",
        packages=("docker.io",),
        show_config="dockerd --validate",
        engine_paths=(GPUS_PATH, docker.MAIN_PATH),
        drop_in_path=docker.MAIN_PATH,
        own_files=lambda _: (),
        engine_files=_docker_files,
        live_files=frozenset({GPUS_PATH}),
        reloads=True,
        warnings=lambda facts, stack: gpus_warnings(facts, stack.runtime.handler),
    ),
    Engine.PODMAN: NodeEngine(
        name=Engine.PODMAN.value,
        service="",
        packages=("podman",),
        show_config="podman info",
        engine_paths=(),
        drop_in_path=PODMAN_HOOK_FILE_PATH,
        own_files=lambda stack: (FileContent(PODMAN_HOOK_FILE_PATH, render_hooks_d(stack)),),
        engine_files=_podman_files,
        live_files=frozenset({PODMAN_HOOK_FILE_PATH}),
    ),
}
