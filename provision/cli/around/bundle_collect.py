"""The part of `grapnel bundle create` that talks to nodes: reads facts, chooses what is collected, has it done."""

from __future__ import annotations

import copy
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from provision.apply.gather import gather_facts
from provision.apply.interrupt import cancel_on_signals
from provision.apply.model import Failure
from provision.apply.supply.collect import Collector, refused
from provision.base.errors import UsageError
from provision.cli.session.context import build_context
from provision.cli.session.fleet import load_fleet
from provision.declaration.spec.model import DriverSource, KernelModule
from provision.planning.driver_change import change_id
from provision.planning.node_plan import Problem
from provision.planning.planner.collection import bundle_name, choose_collected, choose_engine, names_engine
from provision.planning.supply.bundle.errors import BundleError
from provision.planning.supply.payload import store
from provision.planning.supply.payload.place import payload_folder
from provision.report.console import make_console
from provision.report.progress.live import open_view

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.fleet.model import Fleet
    from provision.declaration.spec.model import Driver, StackSpec
    from provision.planning.driver_change import DriverChange, PackageVersion
    from provision.planning.supply.bundle.handover import HandedFile
    from provision.planning.supply.bundle.module_archive import BuiltModules
    from provision.planning.supply.bundle.sets import Contents

_MakeCollector = Callable[[str, "NodeFacts"], Collector]


@dataclass(frozen=True)
class Creation:
    """One bundle that nodes collect for. ``built`` are modules that need not be built."""

    args: argparse.Namespace
    contents: Contents
    built: Sequence[BuiltModules]

    def collect(self, folder: Path) -> None:
        """Gather facts, choose what is wanted, have it collected, and add it to the contents; raises `BundleError`."""
        fleet = self._load(*([self.args.limit] if self.args.limit else []), *self.args.collectors)
        targets = self._load(self.args.limit) if self.args.limit else fleet
        context = build_context(self.args, fleet)
        # Nodes that declare a bundle get their packages from it; one that collects must know what there is now.
        context = replace(context, playbooks=replace(context.playbooks, offline_nodes=frozenset()))
        program = store.load_payload(payload_folder(self.args.payload, os.environ, self.args.file)).driver
        names = tuple(node.name for node in fleet.nodes)
        with cancel_on_signals() as cancel, open_view(make_console(sys.stderr), names, time.monotonic) as view:
            answers = gather_facts(context.runner, context.playbooks.facts(names), view, cancel)
            facts = {name: _require_facts(name, answer) for name, answer in answers.items()}
            collectors = self._collectors(facts, lambda name, of: Collector(context, program, name, of, view, cancel))
            wanted = Wanted()
            engines: dict[tuple[str, str], tuple[Collector, StackSpec, DriverChange]] = {}
            for node in targets.nodes:
                has_driver = is_managed(node.stack.driver) or (self.args.versions and not self.args.limit)
                if not has_driver and not names_engine(node.stack.runtime):
                    continue
                collector = _collector_for(node.name, facts[node.name], collectors)
                if names_engine(node.stack.runtime):
                    change = choose_engine(collector.with_engine_source(node.stack), node.stack)
                    if isinstance(change, Problem):
                        raise refused(change)
                    engines[collector.node, change_id(change)] = (collector, node.stack, change)
                if has_driver:
                    self._choose(node.name, facts[node.name], node.stack.driver, collector, wanted)
            if not wanted.all() and not engines:
                raise UsageError(
                    "no driver is declared for any of these nodes", hint="enable it, or name none, and say which"
                )
            for collector, stack, change in engines.values():
                collector.with_engine_source(stack)  # again: that of another node may have taken its place since
                staged = collector.collect(change, folder, with_modules=False)
                self.contents.add_engine(staged, change.packages[0].name)
            for collector, change in wanted.all():
                declared = wanted.declared(change)
                architecture, runfiles = collector.facts.node.architecture, context.runfiles
                files = () if runfiles is None else runfiles.files(change, declared, architecture)
                self._have_collected(collector, change, folder, files)

    def _load(self, *patterns: str) -> Fleet:
        args = copy.copy(self.args)
        args.limit = ",".join(patterns)
        return load_fleet(args)

    def _collectors(self, facts: Mapping[str, NodeFacts], make: _MakeCollector) -> dict[str, Collector]:
        """Return the nodes that collect, by the distribution that they do it for."""
        found: dict[str, Collector] = {}
        for node in self.args.collectors:
            if node not in facts:
                raise UsageError(f"--from {node}: there is no such host", hint="name one host of the inventory")
            name = bundle_name(facts[node])
            if isinstance(name, Problem):
                raise refused(name)
            if name in found:
                raise UsageError(f"--from {node}: {found[name].node} collects for {name}", hint="leave one out")
            found[name] = make(node, facts[node])
        return found

    def _choose(
        self,
        node: str,
        facts: NodeFacts,
        declared: Driver,
        collector: Collector,
        wanted: Wanted,
    ) -> None:
        """Note what a node needs of drivers, of every version."""
        if self.args.flavour:
            declared = msgspec.structs.replace(declared, kernel_module=KernelModule(self.args.flavour))
        sources = collector.with_sources(declared)
        for version in self._versions(node, declared):
            change = choose_collected(sources, facts, declared, version=version, kernels=self.args.kernels)
            if isinstance(change, Problem):
                raise refused(change)
            wanted.add(collector, change, msgspec.structs.replace(declared, version=version))

    def _versions(self, node: str, declared: Driver) -> tuple[str, ...]:
        declares = declared.version or declared.branch
        versions = tuple(self.args.versions) or ((declares,) if declares else ())
        if not versions:
            raise UsageError(f"no version of the driver is declared for {node}", hint="say which: --version")
        return versions

    def _have_collected(
        self, collector: Collector, change: DriverChange, folder: Path, files: Sequence[HandedFile]
    ) -> None:
        built = {
            one.kernel
            for one in self.built
            if (one.dkms, one.version, one.flavour) == (change.dkms, change.version, change.flavour)
        }
        left = tuple(kernel for kernel in change.kernels if kernel not in built)
        with_modules = bool(left) and not self.args.no_build
        change = msgspec.structs.replace(change, kernels=left or change.kernels)
        self.contents.add_set(collector.collect(change, folder, with_modules=with_modules, files=files))


class Wanted:
    """What is to be collected: once where nodes differ in their kernels alone."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, bytes], tuple[Collector, DriverChange]] = {}
        self._declared: dict[tuple[PackageVersion, ...], Driver] = {}

    def add(self, collector: Collector, change: DriverChange, declared: Driver) -> None:
        """Add a driver, or its kernels to those that it is wanted for already."""
        key = (collector.node, msgspec.json.encode(msgspec.structs.replace(change, kernels=())))
        known = self._found.get(key, (collector, msgspec.structs.replace(change, kernels=())))[1]
        kernels = tuple(dict.fromkeys((*known.kernels, *change.kernels)))
        self._found[key] = (collector, msgspec.structs.replace(change, kernels=kernels))
        self._declared[change.packages] = declared

    def declared(self, change: DriverChange) -> Driver:
        """Return a declaration that a change was chosen for: its packages say which runfile they are made of."""
        return self._declared[change.packages]

    def all(self) -> tuple[tuple[Collector, DriverChange], ...]:
        """Return them in the order in which they were added first."""
        return tuple(self._found.values())


def is_managed(driver: Driver) -> bool:
    """Tell whether a node is to have a driver of packages at all."""
    return driver.enabled and driver.source is not DriverSource.NONE


def _collector_for(node: str, facts: NodeFacts, collectors: Mapping[str, Collector]) -> Collector:
    """Return who collects for a node's distribution; raises `BundleError`."""
    name = bundle_name(facts)
    if isinstance(name, Problem):
        raise refused(name)
    if name not in collectors:
        raise BundleError(f"{node} has {name}, and nobody collects for it", hint="name a node that does: --from")
    return collectors[name]


def _require_facts(node: str, answer: NodeFacts | Failure) -> NodeFacts:
    if isinstance(answer, Failure):
        raise BundleError(f"{node}: {answer.message}", hint="leave it out, and say --kernel and --flavour instead")
    return answer
