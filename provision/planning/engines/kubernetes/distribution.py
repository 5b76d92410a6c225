"""Describes the containerd that a distribution of Kubernetes brings, as what the distributions have in common.

Which file leads into it and which service it is in, both follow from the facts.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from provision.planning.engines.containerd.engine import base_spec_file, base_spec_source, base_spec_warnings
from provision.planning.engines.files.engine_file import shown
from provision.planning.engines.files.mark import has_mark
from provision.planning.engines.files.present import mode_of, strictest, text_of
from provision.planning.engines.kubernetes.handler import Written, base_spec_of, render_kubernetes_drop_in
from provision.planning.engines.kubernetes.template import (
    handlers_of,
    render_template,
    require_free_template,
    without_handlers,
)
from provision.planning.engines.model import Files, NodeEngine
from provision.planning.node_plan import FileContent
from provision.planning.render.errors import EngineConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import Engine, StackSpec

DROP_IN: Final = "99-nvidia.toml"


@dataclass(frozen=True)
class Way:
    """The file at ``path`` through which our handler gets into ``config``, which the distribution ``name`` writes.

    It is the distribution's own template, or a drop-in.
    """

    name: str
    config: str
    path: str
    is_template: bool


def written_by(facts: NodeFacts, way: Way) -> Written:
    """Return what a distribution has written, and what is imported beside ours; raises `EngineConfigError`."""
    text = require_text(facts, way, way.config)
    folder = posixpath.dirname(way.path)
    others = {
        path: found
        for path in facts.files
        if _is_imported(path, folder, way) and (found := text_of(facts, path)) is not None
    }
    return Written(way.config, text, tuple(others.items()))


def require_text(facts: NodeFacts, way: Way, path: str) -> str:
    """Return the text of a file that the distribution writes; raises `EngineConfigError` before it has."""
    text = text_of(facts, path) if path else None
    if text is None:
        raise EngineConfigError(
            f"{way.name} has not written {shown(path) or 'the configuration of its containerd'} yet",
            hint="start its service, then plan again",
        )
    return text


def _is_imported(path: str, folder: str, way: Way) -> bool:
    is_drop_in = posixpath.dirname(path) == folder and path.endswith(".toml")
    return not way.is_template and is_drop_in and path != way.path


@dataclass(frozen=True)
class Distribution:
    """What one has of its own.

    ``units`` are the services that its containerd may be in. ``find_way`` gets its name and the file that it writes.
    ``read`` returns what containerd reads beside our part, ``templates`` the paths of those that may be rendered next,
    and ``check`` gets their texts and our handlers: all three raise `EngineConfigError`.
    """

    engine: Engine
    units: tuple[str, ...]
    find_way: Callable[[NodeFacts, str, str], Way]
    read: Callable[[NodeFacts, Way], Written] = written_by
    templates: Callable[[NodeFacts, Way], tuple[str, ...]] = lambda *_: ()
    check: Callable[[NodeFacts, Way, Sequence[str], tuple[str, ...]], None] = lambda *_: None

    def on_node(self, facts: NodeFacts) -> NodeEngine:
        """Return how it is configured on a node."""
        found = facts.engines.get(self.engine.value)
        way = self.find_way(facts, self.engine.value, "" if found is None else found.config or "")
        unit = self._unit(facts)
        return NodeEngine(
            name=self.engine.value,
            service=unit,
            show_config=f"journalctl -u {unit}",
            engine_paths=(way.path,),
            drop_in_path=way.path,
            engine_files=partial(self._files, way=way),
            follows_from=lambda facts, _: base_spec_source(base_spec_of(self.read(facts, way))),
            warnings=lambda facts, _: base_spec_warnings(facts, base_spec_of(self.read(facts, way))),
            has_shims=True,
            kept_folder=posixpath.dirname(way.config) or "/etc",
            is_block=way.is_template,
        )

    def _unit(self, facts: NodeFacts) -> str:
        """Return the unit that runs, else one that is there, else the first."""
        running = [unit for unit in self.units if facts.service(unit).is_running]
        loaded = [unit for unit in self.units if facts.service(unit).load == "loaded"]
        return (*running, *loaded, *self.units)[0]

    def _files(self, facts: NodeFacts, stack: StackSpec, *, way: Way) -> Files:
        handlers = stack.runtime.handlers
        templates = {path: text_of(facts, path) for path in self.templates(facts, way)}
        adopted: tuple[str, ...] = ()
        if stack.runtime.adopt and way.is_template and (theirs := templates.get(way.path)):
            # Where ours is in it already, a former run has taken out what was rendered before that run.
            adopted = handlers if has_mark(theirs) else handlers_of(theirs, handlers)
            templates[way.path] = without_handlers(way.path, theirs, adopted)
        for path, template in templates.items():
            require_free_template(way.name, path, template or "", handlers)
        files = self._rendered(facts, handlers, way, adopted)
        self.check(facts, way, [text for text in templates.values() if text], handlers)
        return files

    def _rendered(self, facts: NodeFacts, handlers: tuple[str, ...], way: Way, adopted: tuple[str, ...]) -> Files:
        present, written = text_of(facts, way.path), self.read(facts, way)
        spec = base_spec_file(facts, base_spec_of(written))
        if not way.is_template:
            mode = strictest(facts, [way.config, *(path for path, _ in written.others)])
            return (spec, FileContent(way.path, render_kubernetes_drop_in(written, handlers), mode))
        mode = mode_of(facts, way.path) if present else strictest(facts, [way.config])
        if present and adopted:
            present = without_handlers(way.path, present, adopted)
        return (spec, FileContent(way.path, render_template(present, written, handlers, adopted), mode))
