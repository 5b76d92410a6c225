"""Renders our handler for the containerd that a Kubernetes distribution brings: k3s, RKE2, k0s, microk8s.

Each writes containerd's file again when its service starts, so nothing of it can be edited. Two ways lead into it:

- a folder of drop-ins that the written file imports (k3s and RKE2 since March 2026, k3s-io/k3s#13680; k0s since 1.27);
- the template that it is written from (k3s and RKE2 before that; microk8s), at whose end our tables stand in a block of
  their own. What stands above them, ours or somebody else's, stays as it is.

Tables of a drop-in are merged there (containerd 2; k0s before 1.36 does it by itself), so nothing but the handler is
written, and a later release of the distribution finds nothing outdated.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from provision.planning.engines.containerd.handler import (
    BASE_SPEC_PATH,
    BUILT_IN_DEFAULT,
    find_base_spec,
    render_handler,
    require_types,
)
from provision.planning.engines.containerd.imports import PLUGINS, merged
from provision.planning.engines.files.engine_file import DISTINCT_FILES, Table, parse_toml, require_default, shown
from provision.planning.engines.files.runtimes import is_injector
from provision.planning.engines.files.toml_text import render_toml
from provision.planning.render.errors import EngineConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_OF_RUNC = ("runc", "crun")


@dataclass(frozen=True)
class Written:
    """What containerd reads today: the file that the distribution has written, and what is imported beside ours."""

    path: str
    text: str = field(repr=False)
    others: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@lru_cache(maxsize=DISTINCT_FILES)
def imports_of(path: str, text: str) -> tuple[str, ...]:
    """Return what a configuration imports; raises `EngineConfigError`."""
    return parse_toml(path, text, show=_show(path)).texts("imports")


@lru_cache(maxsize=DISTINCT_FILES)
def version_of(path: str, text: str) -> int:
    """Return the version of a configuration; raises `EngineConfigError` for one that cannot be added to."""
    version = parse_toml(path, text, show=_show(path)).number("version", 1)
    if version not in PLUGINS:
        raise EngineConfigError(
            f"{shown(path)} has version {shown(str(version))}, to which no handler can be added",
            hint="update the distribution of Kubernetes, or its template of that file",
        )
    return version


@lru_cache(maxsize=DISTINCT_FILES)
def render_kubernetes_drop_in(written: Written, handlers: tuple[str, ...], adopted: tuple[str, ...] = ()) -> str:
    """Return the drop-in's text, remembered for nodes with equal files.

    Handlers that are ``adopted`` go: ours is made of another one. Raises `EngineConfigError` when nothing should be
    touched.
    """
    version = version_of(written.path, written.text)
    containerd = _containerd(written, version)
    for handler in (each for each in handlers if each not in adopted):
        _require_free(written, containerd, handler)
    plain = _without_ours(containerd, adopted)
    if adopted and plain.table("runtimes").values.keys().isdisjoint(_OF_RUNC):
        raise EngineConfigError(
            f"{shown(written.path)} has no handler runc beside {adopted[0]!r}, which is to be taken over",
            hint="containers of the new handler need an ordinary runtime's options: add a handler runc with them",
        )
    require_default(
        "default_runtime_name",
        containerd.text("default_runtime_name"),
        {BUILT_IN_DEFAULT, *plain.table("runtimes").values, *handlers},
        [(written.path, written.text), *written.others],
        handlers,
    )
    ours = {handler: render_handler(plain) for handler in handlers}
    return render_toml({"version": version, "plugins": {PLUGINS[version]: {"containerd": {"runtimes": ours}}}})


@lru_cache(maxsize=DISTINCT_FILES)
def base_spec_of(written: Written) -> str:
    """Return the base specification of the default runtime, empty without one; raises `EngineConfigError`."""
    return find_base_spec(_without_ours(_containerd(written, version_of(written.path, written.text))))


def _containerd(written: Written, version: int) -> Table:
    """Return the table ``containerd`` that is in force."""
    plugin = PLUGINS[version]
    found = [_plugin_of(path, text, plugin) for path, text in [(written.path, written.text), *written.others]]
    return Table(written.path, merged(found), ("plugins", plugin)).table("containerd")


def _without_ours(containerd: Table, adopted: tuple[str, ...] = ()) -> Table:
    entries = containerd.table("runtimes").values
    runtimes = {name: entry for name, entry in entries.items() if not (_is_ours(entry) or name in adopted)}
    return Table(containerd.path, {**containerd.values, "runtimes": runtimes}, containerd.keys)


def _plugin_of(path: str, text: str, plugin: str) -> Mapping[str, Any]:
    table = parse_toml(path, text, show=_show(path)).table("plugins").table(plugin)
    require_types(table.table("containerd"))
    return table.values


def _require_free(written: Written, containerd: Table, handler: str) -> None:
    entry = containerd.table("runtimes").values.get(handler)
    if entry is None or _is_ours(entry):
        return
    if is_injector(_texts(entry)):
        raise EngineConfigError(
            f"{shown(written.path)} has a handler {handler!r} already: NVIDIA's runtime, which k3s and RKE2 add where "
            "they find its program, and the toolkit and microk8s's addon for GPUs in a template",
            hint="uninstall the toolkit (and the addon), restart the service, then plan again; or declare another "
            "runtime.handler: docs/engines/distributions.md has both ways",
        )
    raise EngineConfigError(
        f"the runtime handler {handler!r} already exists in {shown(written.path)}, and grapnel did not create it",
        hint="remove it, or declare another runtime.handler: docs/migrate.md has both ways",
    )


def _is_ours(entry: object) -> bool:
    return isinstance(entry, dict) and entry.get("base_runtime_spec") == BASE_SPEC_PATH


def _texts(entry: Mapping[str, Any]) -> Iterable[object]:
    options = entry.get("options")
    return [*entry.values(), *(options.values() if isinstance(options, dict) else [])]


def _show(path: str) -> str:
    return f"containerd --config {shown(path)} config dump"
