"""Plans how a handler of another product is taken over: what of its files goes on in force under another name.

A drop-in of theirs may be at the place of ours (NVIDIA's toolkit and the GPU operator use the same names), or an engine
may read it after ours. What stands in it stays in force under a name that sorts just before ours: it may have more
handlers than the one. A handler in a file of its own stays there, and ours is read later; Docker has one file, in which
ours takes its place. What a node's files were before, the node itself remembers, and `grapnel remove` gives it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from provision.declaration.fleet.facts.node import FileState
from provision.declaration.spec.model import Engine
from provision.planning.engines import crio
from provision.planning.engines.containerd import configuration as containerd
from provision.planning.engines.files.engine_file import shown
from provision.planning.node_plan import Action, FileContent, Item, Role
from provision.planning.planner.part import differs
from provision.planning.render.errors import EngineConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import Runtime

_OURS: Final = "# managed by grapnel"
_READ_LATER: Final = f"{crio.DROP_IN_FOLDER}/99-nvidia.toml"
_EMPTIED: Final = f"{_OURS}: its text is in {{place}}, which is read before grapnel's drop-in\n"
# Drop-ins of theirs, and where each stays in force.
_PLACES: Final[Mapping[Engine, Mapping[str, str]]] = {
    Engine.CONTAINERD: {containerd.DROP_IN_PATH: f"{containerd.DROP_IN_FOLDER}/99-nvidia-adopted.toml"},
    Engine.CRIO: {
        crio.DROP_IN_PATH: f"{crio.DROP_IN_FOLDER}/99-nvidia-adopted.conf",
        _READ_LATER: f"{crio.DROP_IN_FOLDER}/99-nvidia-adopted.toml",
    },
}


@dataclass(frozen=True)
class Adoption:
    """``files`` are written before our own, ``items`` say why; ``facts`` are the node's as if that were done."""

    facts: NodeFacts
    files: tuple[FileContent, ...] = ()
    items: tuple[Item, ...] = ()


@dataclass(frozen=True)
class _Step:
    file: FileContent
    reason: str


def plan_adoption(facts: NodeFacts, declared: Runtime) -> Adoption:
    """Return what is moved before our own files are written; nothing unless the declaration adopts.

    Raises `EngineConfigError` for a file that is to be moved and is no text.
    """
    if not declared.adopt:
        return Adoption(facts)
    steps = [step for step in _steps(facts, declared) if differs(facts, step.file)]
    files = {**facts.files, **{step.file.path: _state_of(step.file) for step in steps}}
    emptied = dict.fromkeys(_theirs(facts, declared).keys() & {containerd.DROP_IN_PATH, crio.DROP_IN_PATH})
    items = (Item(role=Role.RUNTIME, action=Action.WRITE, target=each.file.path, reason=each.reason) for each in steps)
    return Adoption(
        msgspec.structs.replace(facts, files=files | emptied), tuple(step.file for step in steps), tuple(items)
    )


def _steps(facts: NodeFacts, declared: Runtime) -> Iterator[_Step]:
    for path, text in _theirs(facts, declared).items():
        mode = _mode_of(facts, path)
        place = _PLACES[declared.engine][path]
        yield _Step(FileContent(place, text, mode), f"{path} stays in force there, and grapnel's is read after it")
        if path == _READ_LATER:
            yield _Step(
                FileContent(path, _EMPTIED.format(place=place), mode), "it would be read after grapnel's drop-in"
            )


def _theirs(facts: NodeFacts, declared: Runtime) -> dict[str, str]:
    """Return the texts of others' files that ours take the place of, by path."""
    texts = {path: _text_of(facts, path) for path in _PLACES.get(declared.engine, {})}
    return {path: text for path, text in texts.items() if text.strip() and not text.startswith(_OURS)}


def _text_of(facts: NodeFacts, path: str) -> str:
    state = facts.file(path)
    if state is not None and state.content is None:
        raise EngineConfigError(f"{shown(path)} is not text, or is too large", hint="check what it is")
    return "" if state is None else state.content or ""


def _mode_of(facts: NodeFacts, path: str) -> str:
    state = facts.file(path)
    return "0600" if state is None else f"0{state.mode[-3:]}"


def _state_of(file: FileContent) -> FileState:
    return FileState(mode=file.mode, uid=0, gid=0, sha256="0" * 64, content=file.content)
