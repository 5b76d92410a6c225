"""Describes the containerd that a Kubernetes distribution brings: which file leads into it, and which service it is in.

Both follow from the facts. And no other engine is configured than the one that the node's kubelet uses.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import Engine, Entitlement
from provision.planning.engines.files.engine_file import shown
from provision.planning.engines.files.mark import has_mark, without_block
from provision.planning.engines.kubernetes.handler import (
    Written,
    base_spec_of,
    imports_of,
    plain_variables,
    render_kubernetes_drop_in,
    render_template,
    require_free_template,
    require_none_made,
    says_version_3,
    takes_in_drop_ins,
    version_of,
)
from provision.planning.node_plan import FileContent, Problem
from provision.planning.planner.runtime.known import (
    ENGINES,
    NodeEngine,
    base_spec_file,
    mode_of,
    strictest,
    text_of,
)
from provision.planning.render.errors import EngineConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec

_UNITS: Final[Mapping[Engine, tuple[str, ...]]] = {
    Engine.K3S: ("k3s.service", "k3s-agent.service"),
    Engine.RKE2: ("rke2-server.service", "rke2-agent.service"),
    Engine.K0S: ("k0sworker.service", "k0scontroller.service"),
    Engine.MICROK8S: ("snap.microk8s.daemon-containerd.service",),
}
_DROP_IN: Final = "99-nvidia.toml"
_K0S_FOLDER: Final = "/etc/k0s/containerd.d"
_K0S_MERGED: Final = "/run/k0s/containerd-cri.toml"  # of k0s before 1.36
_K0S_MARK: Final = "# k0s_managed=true"
_V3: Final = 3
_RANCHER: Final = {Engine.K3S, Engine.RKE2}
_TOOLKIT: Final = "/usr/bin/nvidia-container-runtime"


@dataclass(frozen=True)
class _Way:
    """The file through which our handler gets into what a distribution writes; its own template, or a drop-in."""

    path: str
    is_template: bool


def find_engine(facts: NodeFacts, engine: Engine) -> NodeEngine:
    """Return how an engine is configured on a node."""
    if engine not in _UNITS:
        return ENGINES[engine]
    found = facts.engines.get(engine.value)
    config = "" if found is None or found.config is None else found.config
    way = _find_way(facts, engine, config)
    unit = _unit(facts, _UNITS[engine])
    return NodeEngine(
        name=engine.value,
        service=unit,
        packages=(),
        show_config=f"journalctl -u {unit}",
        engine_paths=(way.path,),
        drop_in_path=way.path,
        own_files=ENGINES[Engine.CONTAINERD].own_files,
        engine_files=partial(_files, engine=engine, config=config, way=way),
        base_spec=lambda facts, _: base_spec_of(_read(facts, engine, config, way)),
        has_shims=True,
        kept_folder=posixpath.dirname(config) or "/etc",
        is_block=way.is_template,
    )


def kubelet_problem(facts: NodeFacts, stack: StackSpec) -> Problem | None:
    """Say that the kubelet uses another engine than the declared one, whose handler no pod would ever reach."""
    used, declared = facts.kubelet_engine, stack.runtime.engine.value
    by_kubelet = stack.plugin.enabled and stack.runtime.entitlement is Entitlement.KUBELET
    if not by_kubelet or used is None or used == declared:
        return None
    return Problem(
        code="kubelet-uses-another-engine",
        message=f"the kubelet of {facts.node.hostname} uses {used}, and runtime.engine is {declared}",
        hint=f"declare runtime.engine: {used} for the group of this node",
    )


def _unit(facts: NodeFacts, units: tuple[str, ...]) -> str:
    """Return the unit that runs, else one that is there, else the first."""
    active = [unit for unit in units if facts.service(unit).active in {"active", "activating", "reloading"}]
    loaded = [unit for unit in units if facts.service(unit).load == "loaded"]
    return (*active, *loaded, *units)[0]


def _find_way(facts: NodeFacts, engine: Engine, config: str) -> _Way:
    folder = posixpath.dirname(config)
    if engine is Engine.MICROK8S:
        return _Way(f"{folder}/containerd-template.toml", is_template=True)
    if engine is Engine.K0S:
        return _Way(f"{_K0S_FOLDER}/{_DROP_IN}", is_template=False)
    return _way_of_rancher(facts, config, facts.content(config) or "")


def _way_of_rancher(facts: NodeFacts, config: str, text: str) -> _Way:
    """Return the way into k3s and RKE2: a template that has our block stays the way, whatever is imported by now."""
    folder = posixpath.dirname(config)
    names = [f"{folder}/config-v3.toml", f"{folder}/config.toml"]
    for name in names:
        if has_mark(facts.content(f"{name}.tmpl") or ""):
            return _Way(f"{name}.tmpl", is_template=True)
    try:
        imported, version = imports_of(config, text), version_of(config, text)
    except EngineConfigError:  # says what is wrong when the file is rendered
        imported, version = (), _V3
    for name in names:
        if f"{name}.d/*.toml" in imported and takes_in_drop_ins(facts.content(f"{name}.tmpl"), name):
            return _Way(f"{name}.d/{_DROP_IN}", is_template=False)
    is_older = version < _V3 or _has_older_alone(facts, folder)
    return _Way(f"{names[1 if is_older else 0]}.tmpl", is_template=True)


def _has_older_alone(facts: NodeFacts, folder: str) -> bool:
    """Tell whether k3s and RKE2 with containerd 2 render the template of version 2, as there is no other."""
    return facts.file(f"{folder}/config-v3.toml.tmpl") is None and facts.file(f"{folder}/config.toml.tmpl") is not None


def _files(facts: NodeFacts, stack: StackSpec, *, engine: Engine, config: str, way: _Way) -> tuple[FileContent, ...]:
    templates = {path: text_of(facts, path) for path in _templates(facts, engine, config, way)}
    for path, template in templates.items():
        require_free_template(engine.value, path, template or "", stack.runtime.handlers)
    files = _rendered(facts, stack, engine=engine, config=config, way=way)
    if engine in _RANCHER and _TOOLKIT in facts.product_files:
        require_none_made(engine.value, _TOOLKIT, [text for text in templates.values() if text], stack.runtime.handlers)
    return files


def _rendered(facts: NodeFacts, stack: StackSpec, *, engine: Engine, config: str, way: _Way) -> tuple[FileContent, ...]:
    handlers, present = stack.runtime.handlers, text_of(facts, way.path)
    written = _read(facts, engine, config, way)
    spec = base_spec_file(facts, base_spec_of(written))
    if not way.is_template:
        modes = strictest(facts, [config, *(path for path, _ in written.others)])
        return (spec, FileContent(way.path, render_kubernetes_drop_in(written, handlers), modes))
    text = render_template(present, written, handlers)
    return (spec, FileContent(way.path, text, mode_of(facts, way.path) if present else strictest(facts, [config])))


def _read(facts: NodeFacts, engine: Engine, config: str, way: _Way) -> Written:
    """Return what containerd reads beside our part; raises `EngineConfigError`."""
    if engine is Engine.MICROK8S:
        template = _require(text_of(facts, way.path), way.path, engine)
        return Written(way.path, plain_variables(without_block(template)))
    return _written(facts, engine, config, way)


def _templates(facts: NodeFacts, engine: Engine, config: str, way: _Way) -> tuple[str, ...]:
    """Return the templates that a distribution may render next; raises `EngineConfigError` for one it has yet to read.

    k3s and RKE2 with containerd 2 take the one of version 3, and where there is none that of version 2.
    """
    if engine is Engine.K0S:
        return ()
    if engine is Engine.MICROK8S:
        return (way.path,)
    folder = posixpath.dirname(config)
    newer, older = f"{folder}/config-v3.toml.tmpl", f"{folder}/config.toml.tmpl"
    text = text_of(facts, config) if config else None
    if text is None or version_of(config, text) < _V3:
        return (newer, older)
    if _has_older_alone(facts, folder) and not says_version_3(text_of(facts, older) or ""):
        raise EngineConfigError(
            f"{engine.value} has not started since {shown(older)} was written: {shown(config)} has version 3 still",
            hint="restart its service, or take that template away; then plan again",
        )
    return (older,) if _has_older_alone(facts, folder) else (newer,)


def _written(facts: NodeFacts, engine: Engine, config: str, way: _Way) -> Written:
    """Return what containerd reads; raises `EngineConfigError`."""
    text = _require(text_of(facts, config) if config else None, config, engine)
    if engine is Engine.K0S:
        _require_k0s(config, text)
    folder = posixpath.dirname(way.path)
    others = {
        path: found
        for path in facts.files
        if _is_imported(path, folder, way) and (found := text_of(facts, path)) is not None
    }
    if engine is Engine.K0S and _K0S_MERGED in imports_of(config, text):
        merged = text_of(facts, _K0S_MERGED)
        return Written(config, text, (*others.items(), *(() if merged is None else ((_K0S_MERGED, merged),))))
    return Written(config, text, tuple(others.items()))


def _is_imported(path: str, folder: str, way: _Way) -> bool:
    is_drop_in = posixpath.dirname(path) == folder and path.endswith(".toml")
    return not way.is_template and is_drop_in and path != way.path


def _require(text: str | None, path: str, engine: Engine) -> str:
    if text is None:
        raise EngineConfigError(
            f"{engine.value} has not written {shown(path) or 'the configuration of its containerd'} yet",
            hint="start its service, then plan again",
        )
    return text


def _require_k0s(config: str, text: str) -> None:
    """Refuse a file that k0s leaves to people and that does not take our drop-in in."""
    if text.startswith(_K0S_MARK) or f"{_K0S_FOLDER}/*.toml" in imports_of(config, text):
        return
    raise EngineConfigError(
        f"{shown(config)} is not managed by k0s, so files of {_K0S_FOLDER} have no effect",
        hint=f'import them: imports = ["{_K0S_FOLDER}/*.toml"]; or take the file away and restart k0s, which writes it',
    )
