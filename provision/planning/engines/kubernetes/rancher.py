"""Knows k3s and RKE2: their containerd imports drop-ins since March 2026 (k3s-io/k3s#13680), before that by a template.

With containerd 2 (configuration of version 3) both render a template of another name, and where there is none the older
one.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import Engine
from provision.planning.engines.files.engine_file import shown
from provision.planning.engines.files.mark import has_mark
from provision.planning.engines.files.present import text_of
from provision.planning.engines.kubernetes.distribution import DROP_IN, Distribution, Way
from provision.planning.engines.kubernetes.handler import imports_of, version_of
from provision.planning.engines.model import KnownEngine
from provision.planning.render.errors import EngineConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.declaration.fleet.facts.node import NodeFacts

_V3: Final = 3
_SAYS_V3: Final = re.compile(r"^[ \t]*version[ \t]*=[ \t]*3\b", re.MULTILINE)
_TOOLKIT: Final = "/usr/bin/nvidia-container-runtime"
_MADE: Final = "nvidia"
_FOUND_RUNTIMES: Final = ('"base"', ".ExtraRuntimes")


def _find_way(facts: NodeFacts, name: str, config: str) -> Way:
    """Return the way in: a template that has our block stays the way, whatever is imported by now."""
    folder, text = posixpath.dirname(config), facts.content(config) or ""
    files = [f"{folder}/config-v3.toml", f"{folder}/config.toml"]
    for file in files:
        if has_mark(facts.content(f"{file}.tmpl") or ""):
            return Way(name, config, f"{file}.tmpl", is_template=True)
    try:
        imported, version = imports_of(config, text), version_of(config, text)
    except EngineConfigError:  # says what is wrong when the file is rendered
        imported, version = (), _V3
    for file in files:
        if f"{file}.d/*.toml" in imported and _takes_in_drop_ins(facts.content(f"{file}.tmpl"), file):
            return Way(name, config, f"{file}.d/{DROP_IN}", is_template=False)
    is_older = version < _V3 or _has_older_alone(facts, folder)
    return Way(name, config, f"{files[1 if is_older else 0]}.tmpl", is_template=True)


def _takes_in_drop_ins(text: str | None, file: str) -> bool:
    """Tell whether what is rendered next imports drop-ins, as what was written last does: ``text`` is its template."""
    return text is None or '"base"' in text or f"{file}.d" in text


def _has_older_alone(facts: NodeFacts, folder: str) -> bool:
    """Tell whether k3s and RKE2 with containerd 2 render the template of version 2, as there is no other."""
    return facts.file(f"{folder}/config-v3.toml.tmpl") is None and facts.file(f"{folder}/config.toml.tmpl") is not None


def _templates(facts: NodeFacts, way: Way) -> tuple[str, ...]:
    """Return the templates that may be rendered next; raises `EngineConfigError` for one that has yet to be read.

    With containerd 2 that is the one of version 3, and where there is none that of version 2.
    """
    config, folder = way.config, posixpath.dirname(way.config)
    newer, older = f"{folder}/config-v3.toml.tmpl", f"{folder}/config.toml.tmpl"
    text = text_of(facts, config) if config else None
    if text is None or version_of(config, text) < _V3:
        return (newer, older)
    # A template has a text of its own of version 3, whatever its name says.
    if _has_older_alone(facts, folder) and not _SAYS_V3.search(text_of(facts, older) or ""):
        raise EngineConfigError(
            f"{way.name} has not started since {shown(older)} was written: {shown(config)} has version 3 still",
            hint="restart its service, or take that template away; then plan again",
        )
    return (older,) if _has_older_alone(facts, folder) else (newer,)


def _require_none_made(facts: NodeFacts, way: Way, templates: Sequence[str], handlers: tuple[str, ...]) -> None:
    """Refuse a handler that k3s and RKE2 add themselves at their next start, as they find NVIDIA's program then.

    Of templates only in those that have k3s's own text, or name what it has found. Raises `EngineConfigError`.
    """
    makes = not templates or any(word in text for text in templates for word in _FOUND_RUNTIMES)
    if _TOOLKIT in facts.product_files and makes and _MADE in handlers:
        raise EngineConfigError(
            f"{way.name} adds a handler {_MADE!r} of its own when it starts next: it finds {_TOOLKIT}",
            hint="uninstall NVIDIA's toolkit, then plan again; or declare another runtime.handler: "
            "docs/engines/distributions.md has both ways",
        )


def _known(engine: Engine, *units: str) -> KnownEngine:
    distribution = Distribution(engine, units, find_way=_find_way, templates=_templates, check=_require_none_made)
    return KnownEngine(distribution.on_node, toolkit_paths=(f"/var/lib/rancher/{engine.value}",))


K3S: Final = _known(Engine.K3S, "k3s.service", "k3s-agent.service")
RKE2: Final = _known(Engine.RKE2, "rke2-server.service", "rke2-agent.service")
