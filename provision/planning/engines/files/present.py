"""Reads what an engine and its files are on a node, by the facts, and with which modes ours are written."""

from __future__ import annotations

import re
import stat
from typing import TYPE_CHECKING

from provision.planning.engines.files.engine_file import shown
from provision.planning.render.errors import EngineConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import Engine

_MODE = re.compile(r"[0-7]{4}")
_USUAL_MODE = "0644"


def version_of_engine(facts: NodeFacts, engine: Engine) -> str:
    """Return the version of an engine, empty where it is not there."""
    found = facts.engines.get(engine.value)
    return "" if found is None else found.version


def text_of(facts: NodeFacts, path: str) -> str | None:
    """Return a file's text, None when it is absent; raises `EngineConfigError` when it is there and no text."""
    state = facts.file(path)
    if state is not None and state.content is None:
        raise EngineConfigError(f"{shown(path)} is not text, or is too large", hint="check what it is")
    return None if state is None else state.content


def texts_of(facts: NodeFacts, paths: Iterable[str]) -> dict[str, str]:
    """Return the texts of the files that are there; raises `EngineConfigError` for one that is no text."""
    return {path: text for path in paths if (text := text_of(facts, path)) is not None}


def texts_beside(facts: NodeFacts, ours: str) -> dict[str, str | None]:
    """Return the texts of all files but ours, which is about to be put right; None for one that is no text."""
    return {path: state.content for path, state in facts.files.items() if state is not None and path != ours}


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
