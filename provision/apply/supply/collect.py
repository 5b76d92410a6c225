"""Has nodes with a network collect drivers and engines for others, and unpacks what they answer as sets for a bundle.

A node may answer anything: an archive is bounded, its files are plain, and the set's own list is checked afterwards.
"""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from provision.apply.follow import follow
from provision.apply.gather import facts_in
from provision.apply.playbooks import handed_files
from provision.base.plain_tar import open_plain, plain_members
from provision.base.printable import printable
from provision.declaration.fleet.facts.node import NodeFacts
from provision.planning.driver.packages.catalogue import find_distribution
from provision.planning.driver.packages.repository import render
from provision.planning.driver_change import change_id
from provision.planning.engines.package import render_sources
from provision.planning.node_plan import Problem, Role
from provision.planning.planner.collection import bundle_name
from provision.planning.planner.part import choose_python, plan_deployment, plan_files, python_problems
from provision.planning.supply.bundle.errors import BundleError
from provision.planning.supply.bundle.model import is_place
from provision.planning.supply.bundle.sets import StagedSet

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence
    from pathlib import Path

    from provision.apply.context import ApplyContext
    from provision.apply.model import Observer
    from provision.declaration.spec.model import Driver, StackSpec
    from provision.planning.driver_change import DriverChange
    from provision.planning.node_plan import FileContent
    from provision.planning.supply.bundle.handover import HandedFile
    from provision.planning.supply.payload.model import Artifact

_MAX_BYTES: Final = 16 * 1024**3  # of one driver, unpacked: ten times what the largest comes to
_MAX_FILES: Final = 10_000
_CHUNK_BYTES: Final = 1024 * 1024
_FORGETFUL: Final = "{node} does not keep the files of its package sources"


@dataclass
class Collector:
    """A node with a network, its facts as they were read last, and who collects on it."""

    context: ApplyContext
    program: Artifact
    node: str
    facts: NodeFacts
    observe: Observer
    cancel: threading.Event

    def collect(
        self, change: DriverChange, folder: Path, *, with_modules: bool, files: Sequence[HandedFile] = ()
    ) -> StagedSet:
        """Have a driver collected, and return it as a set below a folder; raises `BundleError`.

        ``files`` are packages of it that no package source has.
        """
        name = bundle_name(self.facts)
        if isinstance(name, Problem):
            raise refused(name)
        identifier = change_id(change)
        archive = folder / f"{self.node}-{identifier}.tar"
        self._run((), change, archive, with_modules=with_modules, files=files)
        target = folder / f"{self.node}-{identifier}"
        unpack(archive, target)
        archive.unlink()
        return StagedSet(name, target)

    def with_sources(self, declared: Driver) -> NodeFacts:
        """Return the node's facts once it has the declared package sources; raises `BundleError`.

        No module stream is enabled for it: packages are named exactly, and dnf finds those of any stream.
        """
        if missing := _missing_sources(self.facts, declared):
            known = self._run(missing, None, None, with_modules=False)
            if _missing_sources(known, declared):
                raise BundleError(_FORGETFUL.format(node=self.node), hint="see its disk")
            self.facts = known
        return self.facts

    def with_engine_source(self, stack: StackSpec) -> NodeFacts:
        """Return the node's facts once it has the declared package source of an engine; raises `BundleError`."""
        files = render_sources(self.facts, stack.runtime)
        if plan_files(self.facts, Role.RUNTIME, files):
            self.facts = self._run(files, None, None, with_modules=False)
            if plan_files(self.facts, Role.RUNTIME, files):
                raise BundleError(_FORGETFUL.format(node=self.node), hint="see its disk")
        return self.facts

    def _run(
        self,
        sources: Sequence[FileContent],
        change: DriverChange | None,
        target: Path | None,
        *,
        with_modules: bool,
        files: Sequence[HandedFile] = (),
    ) -> NodeFacts:
        if problems := python_problems(self.facts, "driver", self.program):
            raise refused(problems[0])
        deploys = change is not None and plan_deployment(self.facts, Role.DRIVER, "driver", self.program)
        collection = {
            "archive": self.program.path if deploys else "",
            "digest": self.program.digest,
            "python": choose_python(self.facts, self.program),
            "sources": [msgspec.to_builtins(each) for each in sources],
            "change": None if change is None else msgspec.to_builtins(change),
            "id": "" if change is None else change_id(change),
            "modules": with_modules,
            "files": handed_files(files),
            "target": str(target or ""),
        }
        request = self.context.playbooks.collect(self.node, collection)
        done = follow(self.context.runner, request, self.observe, self.cancel)
        if done.failure is not None:
            raise BundleError(
                f"{self.node} has not collected what it was to: {done.failure.message}",
                hint="it needs a network, and the package sources of driver and engine",
            )
        facts = facts_in(done.values, self.node)
        return facts if isinstance(facts, NodeFacts) else self.facts


def refused(problem: Problem) -> BundleError:
    """Return a planner's problem as an error."""
    return BundleError(problem.message, hint=problem.hint)


def _missing_sources(facts: NodeFacts, declared: Driver) -> tuple[FileContent, ...]:
    """Return the files of package sources that a node does not have yet; raises `BundleError`."""
    distribution = find_distribution(facts.node)
    if isinstance(distribution, Problem):
        raise refused(distribution)
    files = render(distribution, declared.source, declared.repository)
    if isinstance(files, Problem):
        raise refused(files)
    return tuple(files) if plan_files(facts, Role.DRIVER, files) else ()


def unpack(archive: Path, folder: Path) -> None:
    """Unpack what a node has collected; raises `BundleError` for anything but plain files in bounds."""
    size, count = 0, 0
    try:
        with open_plain(archive, "r:") as opened:
            for member in plain_members(opened):
                count, size = count + 1, size + member.size
                stream = opened.extractfile(member) if member.isreg() else None
                if stream is None or not is_place(member.name):
                    raise BundleError(f"{archive.name}: {printable(member.name)} is no plain file", hint=_HINT)
                if count > _MAX_FILES or size > _MAX_BYTES:
                    raise BundleError(f"{archive.name} holds more than a driver can be", hint=_HINT)
                place = folder / member.name
                place.parent.mkdir(parents=True, exist_ok=True)
                with place.open("xb") as out:
                    while chunk := stream.read(_CHUNK_BYTES):
                        out.write(chunk)
    except (tarfile.TarError, EOFError) as error:
        raise BundleError(f"{archive.name} cannot be read: {printable(str(error))}", hint=_HINT) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BundleError(f"{error.filename or archive}: {reason}", hint="is there enough space?") from error


_HINT: Final = "a node that collects drivers answers like this only if somebody else has changed it"
