"""Knows Podman: a hook file is all that it needs, in the folder that every release reads by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import Engine, EngineSource
from provision.planning.engines.files.hook import (
    DEFAULT_FOLDER,
    FILE_NAME,
    FOLDER,
    render_hook_file,
    require_no_injector,
)
from provision.planning.engines.files.present import texts_beside
from provision.planning.engines.model import Files, KnownEngine, NodeEngine
from provision.planning.engines.package import DEBIAN_KIN, RHEL_KIN, EnginePackage
from provision.planning.node_plan import FileContent

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec

# Podman 4 reads both folders by itself, Podman 5 (containers.conf, hooks_dir) this one alone.
HOOK_FILE_PATH: Final = f"{DEFAULT_FOLDER}/{FILE_NAME}"


def _engine_files(facts: NodeFacts, _: StackSpec) -> Files:
    require_no_injector(texts_beside(facts, HOOK_FILE_PATH), (DEFAULT_FOLDER, FOLDER), engine="Podman")
    return ()


def _own_files(stack: StackSpec) -> Files:
    return (FileContent(HOOK_FILE_PATH, render_hook_file(stack)),)


_ON_NODE: Final = NodeEngine(
    name=Engine.PODMAN.value,
    service="",
    packages={EngineSource.DISTRIBUTION: dict.fromkeys((*DEBIAN_KIN, *RHEL_KIN, "sles"), EnginePackage("podman"))},
    show_config="podman info",
    engine_paths=(),
    drop_in_path=HOOK_FILE_PATH,
    own_files=_own_files,
    engine_files=_engine_files,
    live_files=frozenset({HOOK_FILE_PATH}),
    names_devices=True,
)
PODMAN: Final = KnownEngine(lambda _: _ON_NODE)
