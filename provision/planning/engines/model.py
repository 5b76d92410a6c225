"""Describes a container engine: a row of the table, and what a plan has to know of it on one node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from provision.planning.engines.files.runtimes import handlers_in_toml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import EngineSource, StackSpec
    from provision.planning.engines.package import EnginePackage
    from provision.planning.node_plan import FileContent, Problem

Files = tuple["FileContent", ...]


@dataclass(frozen=True)
class NodeEngine:
    """A container engine as the planner sees it on a node.

    ``packages`` are that of each source by the system, none where no package source has it; ``defaults`` the files that
    the distribution's brings, by the system and the path, as far as that is known: None is one that it does not bring.
    ``own_files`` need
    nothing but the declaration; ``engine_files`` follow from the engine's present configuration, are written to
    ``engine_paths``, and raise `EngineConfigError`. ``live_files`` need no restart: the engine notices them by itself.
    ``drop_in_path`` is ours alone where there is a ``kept_folder``, in which a text that somebody wrote there is kept:
    not beside it, where the engine might read that, too. With ``is_block`` only the end of that file is ours.
    One that ``reloads`` takes its files in without a restart. ``service`` is empty for an engine that is no service.
    ``has_shims``: what keeps its containers running is in its service's control group, where systemd kills what its
    KillMode says. ``names_devices``: people name devices to it themselves, by the hook's CDI file. ``runs_with`` are
    packages of another engine that it needs.
    ``adopted`` are drop-ins of other products by their paths, with where each stays in force when ours takes its place,
    or would be read before it. ``follows_from`` says of files of ours what they follow from beside the declaration, in
    words, by path. ``warnings`` are what a plan says of it besides.
    """

    name: str
    service: str
    show_config: str
    engine_paths: tuple[str, ...]
    drop_in_path: str
    engine_files: Callable[[NodeFacts, StackSpec], Files] = field(repr=False)
    own_files: Callable[[StackSpec], Files] = field(default=lambda _: (), repr=False)
    packages: Mapping[EngineSource, Mapping[str, EnginePackage]] = field(default_factory=dict, repr=False)
    defaults: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict, repr=False)
    live_files: frozenset[str] = frozenset()
    reloads: bool = False
    has_shims: bool = False
    names_devices: bool = False
    runs_with: frozenset[str] = frozenset()
    kept_folder: str = ""
    is_block: bool = False
    adopted: Mapping[str, str] = field(default_factory=dict)
    follows_from: Callable[[NodeFacts, StackSpec], Mapping[str, str]] = field(default=lambda *_: {}, repr=False)
    warnings: Callable[[NodeFacts, StackSpec], tuple[Problem, ...]] = field(default=lambda *_: (), repr=False)

    @property
    def package_names(self) -> frozenset[str]:
        """Return the names of its package on all systems."""
        return frozenset(package.name for of_source in self.packages.values() for package in of_source.values())


@dataclass(frozen=True)
class KnownEngine:
    """A row of the table of engines.

    ``on_node`` says how it is configured on a node. ``folder`` is where its settings are, with a slash at its end, and
    ``handlers_in`` finds in a text of them the handlers that are no ordinary runtimes. ``toolkit_paths`` begin the
    paths by which NVIDIA's toolkit is told to configure it. ``brings_another`` engine, which people do not use.
    """

    on_node: Callable[[NodeFacts], NodeEngine] = field(repr=False)
    toolkit_paths: tuple[str, ...] = ()
    folder: str = ""
    handlers_in: Callable[[str], Iterable[str]] = field(default=handlers_in_toml, repr=False)
    brings_another: bool = False
