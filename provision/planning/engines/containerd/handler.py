"""Renders our runtime handler of containerd: the node's ordinary runtime, with the base specification of the hook.

Which file it goes into, and what else has to stand there, belongs to `configuration`.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from provision.planning.engines.files.engine_file import Table, shown
from provision.planning.engines.files.runtimes import is_injector, is_ordinary
from provision.planning.render.errors import EngineConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BASE_SPEC_PATH = "/etc/grapnel/containerd/base-spec.json"
CONTAINER_ANNOTATIONS = "grapnel.dev/*"
RUNC_SHIM = "io.containerd.runc.v2"
BUILT_IN_DEFAULT = "runc"  # containerd's own, in force while no file says default_runtime_name

_NOT_INHERITED = {"options", "pod_annotations"}
_PROGRAM = "BinaryName"


def require_types(containerd: Table) -> None:
    """Check what this module reads of a ``containerd`` table, where it is known which file says it."""
    containerd.text("default_runtime_name")
    for entry in containerd.table("runtimes").tables().values():
        entry.text("runtime_type")
        entry.text("base_runtime_spec")
        entry.texts("container_annotations")
        entry.table("options").text(_PROGRAM)


def render_handler(containerd: Table, replaced: str = "") -> dict[str, Any]:
    """Return our handler; where no other runtime is configured, with the options of the one that it replaces.

    Annotations of pods are never let through: a pod could then entitle itself. Raises `EngineConfigError`.
    """
    ordinary = _ordinary_runtime(containerd, replaced)
    annotations = [each for each in ordinary.texts("container_annotations") if each != CONTAINER_ANNOTATIONS]
    inherited = {key: value for key, value in ordinary.values.items() if key not in _NOT_INHERITED}
    handler = copy.deepcopy(inherited) | {
        "runtime_type": RUNC_SHIM,
        "base_runtime_spec": BASE_SPEC_PATH,
        "container_annotations": [*annotations, CONTAINER_ANNOTATIONS],
    }
    options = ordinary.table("options").values
    return handler | {"options": copy.deepcopy(dict(options))} if options else handler


def find_base_spec(containerd: Table, replaced: str = "") -> str:
    """Return the base specification of the runtime that our handler is made of, empty where it has none.

    Raises `EngineConfigError` where that is ours.
    """
    base = _ordinary_runtime(containerd, replaced).text("base_runtime_spec")
    if base == BASE_SPEC_PATH:
        raise EngineConfigError(
            f"the default runtime has grapnel's base specification, {base}: its hook would start for every container",
            hint="take base_runtime_spec out of the default runtime, or name the one there that it had before",
        )
    return base


def cover_handler(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """Return our handler with all that it takes to replace one of the same name in an engine that merges the two.

    What only they set is set to nothing. Lists are joined by the engine, so what they let through of a container stays;
    of a pod it must not, and raises `EngineConfigError`.
    """
    if theirs.get("pod_annotations"):
        raise EngineConfigError(
            "the runtime handler that would be taken over lets annotations of pods through to containers",
            hint="a pod could then entitle itself: remove pod_annotations from that handler first",
        )
    covered = dict(ours)
    for key, value in theirs.items():
        if isinstance(value, dict):
            below = covered.get(key, {})
            covered[key] = cover_handler(value, below if isinstance(below, dict) else {})
        elif not isinstance(value, list) and value:
            covered.setdefault(key, type(value)())
    return covered


def without_handlers(cri: Mapping[str, Any], handlers: Iterable[str]) -> dict[str, Any]:
    """Return a copy of the CRI plugin's table without some of its handlers."""
    table = copy.deepcopy(dict(cri))
    for handler in handlers:
        table.get("containerd", {}).get("runtimes", {}).pop(handler, None)
    return table


def _ordinary_runtime(containerd: Table, last: str) -> Table:
    """Return the default runtime's table if it is runc or something like it, else that of one which is.

    An empty one is containerd's own runc. NVIDIA's wrapper ends in that as well, so where only the wrapper is
    configured, its other options (``SystemdCgroup``) are kept. What a program of an unknown name does to a container
    cannot be seen from here, so nothing is guessed about it.
    """
    runtimes = containerd.table("runtimes").tables()
    default = containerd.text("default_runtime_name") or BUILT_IN_DEFAULT
    found = [runtimes[name] for name in dict.fromkeys((default, "runc", "crun", last)) if name in runtimes]
    of_runc = [each for each in found if each.text("runtime_type", RUNC_SHIM) == RUNC_SHIM]
    if ordinary := next((each for each in of_runc if not _is_injector(each) and is_ordinary(_program(each))), None):
        return ordinary
    if unknown := next((each for each in of_runc if not _is_injector(each)), None):
        name, program = shown(unknown.keys[-1]), shown(_program(unknown))
        raise EngineConfigError(
            f"the runtime {name!r} runs {program}, which may inject devices itself",
            hint="containers of the new handler need a plain runtime: add a handler runc or crun with its BinaryName",
        )
    return _unwrapped(of_runc[0]) if of_runc else Table(containerd.path, {})


def _program(runtime: Table) -> str:
    """Return a runtime's program; containerd takes the key in any case, and kubespray writes it in another one."""
    options = runtime.table("options")
    key = next((key for key in options.values if key.casefold() == _PROGRAM.casefold()), _PROGRAM)
    return options.text(key) or "runc"


def _is_injector(runtime: Table) -> bool:
    return is_injector([*runtime.values.values(), *runtime.table("options").values.values()])


def _unwrapped(runtime: Table) -> Table:
    """Return what is left of NVIDIA's runtime without NVIDIA: options that are not about it, and limits."""
    options: Mapping[str, Any] = {
        key: value for key, value in runtime.table("options").values.items() if not is_injector([value])
    }
    values = {"options": dict(options), "base_runtime_spec": runtime.text("base_runtime_spec")}
    return Table(runtime.path, values, runtime.keys)
