"""Plans how a handler of another product is taken over: what of its files goes on in force under another name.

A drop-in of theirs may be at the place of ours (NVIDIA's toolkit and the GPU operator use the same names), or an engine
may read it after ours. What stands in it stays in force under a name that sorts just before ours: it may have more
handlers than the one. A handler in a file of its own stays there, and ours is read later; in Docker's one file, and in
templates of Kubernetes distributions, ours takes its place. What a node's files were before, the node itself remembers,
and `grapnel remove` gives it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from provision.declaration.fleet.facts.node import FileState
from provision.planning.engines.files.present import text_of
from provision.planning.engines.table import find_engine
from provision.planning.node_plan import Action, FileContent, Item, Role
from provision.planning.planner.part import differs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import Runtime
    from provision.planning.engines.model import NodeEngine

_OURS: Final = "# managed by grapnel"
_EMPTIED: Final = f"{_OURS}: its text is in {{place}}, which is read before grapnel's drop-in\n"


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
    engine = find_engine(facts, declared.engine)
    theirs = _theirs(facts, engine)
    steps = [step for step in _steps(facts, engine, theirs) if differs(facts, step.file)]
    files = {**facts.files, **{step.file.path: _state_of(step.file) for step in steps}}
    emptied = dict.fromkeys(theirs.keys() & {engine.drop_in_path})
    items = (Item(role=Role.RUNTIME, action=Action.WRITE, target=each.file.path, reason=each.reason) for each in steps)
    return Adoption(
        msgspec.structs.replace(facts, files=files | emptied), tuple(step.file for step in steps), tuple(items)
    )


def _steps(facts: NodeFacts, engine: NodeEngine, theirs: Mapping[str, str]) -> Iterator[_Step]:
    for path, text in theirs.items():
        mode, place = _mode_of(facts, path), engine.adopted[path]
        yield _Step(FileContent(place, text, mode), f"{path} stays in force there, and grapnel's is read after it")
        if path != engine.drop_in_path:
            yield _Step(
                FileContent(path, _EMPTIED.format(place=place), mode), "it would be read after grapnel's drop-in"
            )


def _theirs(facts: NodeFacts, engine: NodeEngine) -> dict[str, str]:
    """Return the texts of others' files that ours take the place of, by path."""
    texts = {path: text_of(facts, path) or "" for path in engine.adopted}
    return {path: text for path, text in texts.items() if text.strip() and not text.startswith(_OURS)}


def _mode_of(facts: NodeFacts, path: str) -> str:
    state = facts.file(path)
    return "0600" if state is None else f"0{state.mode[-3:]}"


def _state_of(file: FileContent) -> FileState:
    return FileState(mode=file.mode, uid=0, gid=0, sha256="0" * 64, content=file.content)
