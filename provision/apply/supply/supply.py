"""Holds what nodes may be handed to stage drivers from: a bundle's files, packages of a runfile, built modules."""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from provision.apply.model import Assessment
from provision.declaration.spec.model import DriverSource
from provision.planning.node_plan import Roles
from provision.planning.planner.bundled import (
    compare_with_bundle,
    declared_bundle,
    find_engine_handover,
    find_handover,
    refuse_bundle,
)
from provision.planning.planner.drivers.runfile import as_problem, choose_packages
from provision.planning.supply.builds.needs import needed_builds
from provision.planning.supply.bundle.errors import BundleError
from provision.planning.supply.bundle.handover import HandedFile, Handover
from provision.planning.supply.bundle.model import BundleList
from provision.planning.supply.bundle.offer import with_offer
from provision.planning.supply.bundle.read import open_place
from provision.planning.supply.runfile.errors import RunfileError
from provision.planning.supply.runfile.store import RunfileStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from provision.apply.declarations import Declarations
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import Driver, Runfile
    from provision.planning.driver_change import DriverChange
    from provision.planning.node_plan import NodePlan
    from provision.planning.supply.builds.model import BuiltModule, ModuleBuild
    from provision.planning.supply.builds.shelf import Shelf
    from provision.planning.supply.bundle.read import Bundle
    from provision.planning.supply.runfile.store import Converted


def drawn(nodes: Sequence[str]) -> Sequence[str]:
    """Return the nodes in an order by chance."""
    return secrets.SystemRandom().sample(nodes, len(nodes))


@dataclass(frozen=True)
class Bundles:
    """The declared bundles of a command; what is wrong with one is found once, and said for each node.

    With ``signers``, a file of allowed signers, each has to be signed by one of them.
    """

    cache: Path
    signers: Path | None = None
    _known: dict[Path, Bundle | BundleError] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def open(self, place: Path) -> Bundle:
        """Return a bundle, checked; raises `BundleError`. May be called on any thread."""
        with self._turn:
            if place not in self._known:
                try:
                    self._known[place] = open_place(place, self.cache, self.signers)
                except BundleError as error:
                    self._known[place] = error
            known = self._known[place]
        if isinstance(known, BundleError):
            raise BundleError(known.message, hint=known.hint)
        return known


@dataclass(frozen=True)
class Runfiles:
    """The runfiles of a command; what is wrong with one is found once, and said for each node."""

    cache: Path
    _known: dict[Runfile, Converted | RunfileError] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def files(self, change: DriverChange, declared: Driver, architecture: str) -> tuple[HandedFile, ...]:
        """Return the files that a node is handed for a change; raises `RunfileError`. May be called on any thread."""
        if declared.runfile is None:
            return ()

        converted = self._converted(declared.runfile)
        return tuple(
            HandedFile(converted.path(package), f"packages/{package.file}", package.sha256)
            for package in choose_packages(change, declared, converted, architecture)
        )

    def _converted(self, runfile: Runfile) -> Converted:
        with self._turn:
            if runfile not in self._known:
                try:
                    self._known[runfile] = RunfileStore(self.cache).convert(runfile)
                except RunfileError as error:
                    self._known[runfile] = error
            known = self._known[runfile]
        if isinstance(known, RunfileError):
            raise RunfileError(known.message, hint=known.hint)
        return known


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """Bundles, and what nodes have built for others, with the declarations that say who may have it.

    ``bundle`` is for all nodes, whatever they declare; ``bundles`` opens those that are declared. ``runfiles`` makes
    packages of declared runfiles. ``shelf`` keeps modules that nodes have built for others; without one, every node
    builds its own. ``built`` are those that are handed over now. ``endpoints`` are where nodes are reached: two names
    with one endpoint are one machine. ``draw`` puts nodes into an order that none of them can know.
    """

    declarations: Declarations
    bundle: Bundle | None = None
    bundles: Bundles | None = None
    runfiles: Runfiles | None = None
    shelf: Shelf | None = None
    built: dict[ModuleBuild, BuiltModule] = field(default_factory=dict)
    endpoints: Mapping[str, str] = field(default_factory=dict)
    draw: Callable[[Sequence[str]], Sequence[str]] = drawn

    def builds(self, assessment: Assessment) -> tuple[ModuleBuild, ...]:
        """Return the modules that a node needs for its change and may be handed; none that a bundle has for it."""
        driver, stack = assessment.plan.roles.driver, self.declarations.stacks.get(assessment.plan.node)
        if driver is None or stack is None or self.shelf is None:
            return ()
        needed = needed_builds(assessment.facts, driver.driver_change, stack.driver)
        carried = {file.place for file in self._carried(assessment)} if needed else set()
        return tuple(build for build in needed if build.place not in carried)

    def _carried(self, assessment: Assessment) -> tuple[HandedFile, ...]:
        try:
            handover = self._from_bundle(assessment)
        except BundleError:  # it is the node's failure when it is staged
            return ()
        return () if handover is None else handover.files

    def machine(self, node: str, facts: NodeFacts) -> tuple[str, ...]:
        """Return what tells a node's machine from others: what it says of itself, and where it is reached."""
        said, place = facts.node.machine_id, self.endpoints.get(node, "")
        return (*([f"id {said}"] if said else []), *([f"at {place}"] if place else []))

    def handover(self, assessment: Assessment) -> Handover | None:
        """Return what a node is handed to stage its driver from, None where that is nothing.

        Raises BundleError, RunfileError.
        """
        driver = assessment.plan.roles.driver
        if driver is None or not driver.driver_stage:
            return None
        carried = self._from_bundle(assessment) or self._from_runfile(assessment.plan, assessment.facts)
        modules = tuple(
            HandedFile(module.path, build.place, module.sha256)
            for build in self.builds(assessment)
            if (module := self.built.get(build)) is not None
        )
        if carried is None:
            return Handover(modules, is_complete=False) if modules else None
        return replace(carried, files=(*carried.files, *modules))

    def engine_files(self, assessment: Assessment) -> tuple[HandedFile, ...]:
        """Return what a node is handed to install its engine from, none where it has others; raises BundleError."""
        bundle = self._bundle_of(assessment.plan.node)
        return () if bundle is None else find_engine_handover(assessment.plan, assessment.facts, bundle)

    def _from_bundle(self, assessment: Assessment) -> Handover | None:
        """Return what its bundle has for a node's change, None without a bundle or a change; raises BundleError."""
        bundle = self._bundle_of(assessment.plan.node)
        return None if bundle is None else find_handover(assessment.plan, assessment.facts, bundle)

    def _bundle_of(self, node: str) -> Bundle | None:
        """Return the bundle that is a node's package source, None for a node with others; raises BundleError."""
        stack = self.declarations.stacks.get(node)
        place = None if stack is None else declared_bundle(stack.driver)
        if self.bundle is not None or place is None:
            return self.bundle
        if self.bundles is None:
            raise BundleError(f"{place} is not opened here", hint="use grapnel apply, which has nodes served from it")
        return self.bundles.open(place)

    def _from_runfile(self, plan: NodePlan, facts: NodeFacts) -> Handover | None:
        """Return the packages that are made of a node's runfile; with a bundle, they are in that."""
        driver, stack = plan.roles.driver, self.declarations.stacks.get(plan.node)
        if self.bundle is not None or self.runfiles is None or stack is None or driver is None:
            return None
        if stack.driver.source is not DriverSource.RUNFILE or driver.driver_change is None or not driver.driver_stage:
            return None
        files = self.runfiles.files(driver.driver_change, stack.driver, facts.node.architecture)
        return Handover(files, is_complete=False) if files else None

    def known(self, node: str, facts: NodeFacts) -> NodeFacts:
        """Return the facts that a node is planned from: with a bundle, that is the only source of packages."""
        try:
            bundle = self._bundle_of(node)
        except BundleError:  # `judged` says so
            return with_offer(facts, BundleList(grapnel="", files=(), drivers=()))
        return facts if bundle is None else with_offer(facts, bundle.listing)

    def judged(self, plan: NodePlan, facts: NodeFacts) -> NodePlan:
        """Return a plan with what the node's bundle, or its runfile, lacks for it, if there is one."""
        try:
            bundle = self._bundle_of(plan.node)
        except BundleError as error:
            return refuse_bundle(plan, error)
        if bundle is None:
            return self._judged_by_runfile(plan, facts)
        builds = self.builds(Assessment(facts, plan))
        return compare_with_bundle(
            plan, facts, bundle, lambda kernel: any(one.kernel == kernel and self._has(one) for one in builds)
        )

    def _judged_by_runfile(self, plan: NodePlan, facts: NodeFacts) -> NodePlan:
        try:
            self._from_runfile(plan, facts)
        except RunfileError as error:
            return msgspec.structs.replace(plan, problems=(*plan.problems, as_problem(error)), roles=Roles())
        return plan

    def _has(self, build: ModuleBuild) -> bool:
        """Tell whether a module is there that some node has built; raises `BuildsError`."""
        return build in self.built or (self.shelf is not None and self.shelf.find(build) is not None)
