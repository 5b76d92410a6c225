"""Plans an engine before it is installed, by the default configuration of its package.

The node writes what follows from it only if the package has brought just that. Otherwise the next pass plans from what
is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from provision.declaration.fleet.facts.node import Engine, FileState
from provision.declaration.spec.model import EngineSource
from provision.planning.planner.runtime.installation import upstream_of
from provision.planning.render.declared import digest_of
from provision.planning.render.errors import EngineConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec
    from provision.planning.engines.model import NodeEngine
    from provision.planning.node_plan import FileContent


@dataclass(frozen=True)
class ExpectedFiles:
    """Files of an engine that is to be installed.

    ``made_from`` has the SHA-256 of the files that they follow from, by path, and "" for one that does not exist.
    """

    files: tuple[FileContent, ...]
    made_from: dict[str, str]


def expect_files(facts: NodeFacts, stack: StackSpec, engine: NodeEngine, package: str) -> ExpectedFiles | None:
    """Return an engine's files as they will be, None where that cannot be known before it is installed.

    It cannot if the package's defaults are not known, or if a former installation has left our drop-in, which somebody
    may have edited. A file that the site has written beforehand stays: packages do not replace it.
    """
    is_distributions = stack.runtime.source is EngineSource.DISTRIBUTION
    defaults = engine.defaults.get(facts.node.os.id) if is_distributions else None
    version = _candidate(facts, package) if stack.runtime.version is None else stack.runtime.version
    if defaults is None or not version or (engine.kept_folder and facts.file(engine.drop_in_path) is not None):
        return None
    there = {path: facts.file(path) or _state(text) for path, text in defaults.items()}
    try:
        files = engine.engine_files(_with(facts, engine, version, there), stack)
    except EngineConfigError:  # what is in the way is told once the engine is there, of the files that are there then
        return None
    return ExpectedFiles(files, {path: "" if state is None else state.sha256 for path, state in there.items()})


def _candidate(facts: NodeFacts, package: str) -> str:
    versions = facts.available.get(package, ())
    return upstream_of(versions[0].version) if versions else ""


def _state(text: str | None) -> FileState | None:
    if text is None:
        return None
    return FileState(mode="0644", uid=0, gid=0, sha256=digest_of(text), content=text)


def _with(facts: NodeFacts, engine: NodeEngine, version: str, files: Mapping[str, FileState | None]) -> NodeFacts:
    """Return the facts as expected once the package is installed, as far as an engine's files follow from them."""
    return msgspec.structs.replace(
        facts,
        files={**facts.files, **files},
        engines={**facts.engines, engine.name: Engine(binary=f"/usr/bin/{engine.name}", version=version)},
    )
