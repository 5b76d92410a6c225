"""Puts together what a command acts through: runner, planner, playbooks, archives and bundles."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import provision
from provision.apply.context import ApplyContext
from provision.apply.declarations import Declarations
from provision.apply.planner_process.bounded import BoundedPlanner
from provision.apply.playbooks import Playbooks
from provision.apply.runner import AnsibleRunner, find_collection
from provision.apply.supply.supply import Bundles, Runfiles
from provision.base.errors import GrapnelError
from provision.declaration.fleet.endpoint import network_endpoints
from provision.declaration.fleet.sources import inventory_key
from provision.planning.planner.bundled import declare_carried, declared_bundle, without_engine_repository
from provision.planning.planner.runtime.hand_edits import overwrite_edits
from provision.planning.render.kubelet import declared_settings
from provision.planning.supply.builds.shelf import Shelf
from provision.planning.supply.bundle import read
from provision.planning.supply.bundle.errors import BundleError
from provision.planning.supply.payload import store
from provision.planning.supply.payload.place import payload_folder

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping

    from provision.declaration.fleet.model import Fleet
    from provision.planning.supply.bundle.read import Bundle


def signers_file(args: argparse.Namespace, environment: Mapping[str, str]) -> Path | None:
    """Return the file of those who may sign bundles, None where bundles need not be signed."""
    given = environment.get("GRAPNEL_SIGNERS")
    return args.signers or (Path(given) if given else None)


class ContextBuilder(Protocol):
    """Puts runner, planner and playbooks together for a fleet: `build_context`, or what tests have instead."""

    def __call__(
        self, args: argparse.Namespace, fleet: Fleet, *, check: bool = ..., environment: Mapping[str, str] | None = ...
    ) -> ApplyContext:
        """Return the context of a command."""


def build_context(
    args: argparse.Namespace, fleet: Fleet, *, check: bool = False, environment: Mapping[str, str] | None = None
) -> ApplyContext:
    """Put runner, planner and playbooks together for a fleet."""
    collection = find_collection(Path(provision.__file__).parent)
    if collection is None:
        raise GrapnelError("this installation has no grapnel.node collection", hint="reinstall grapnel")
    playbooks = Playbooks(
        collection=collection,
        inventory=fleet.inventories,
        check=check,
        environment=environment or {},
        offline=args.bundle is not None,
        mig_nodes=frozenset(node.name for node in fleet.nodes if node.stack.mig.layout is not None),
        kubelets={
            node.name: node.stack.node.kubelet.unit
            for node in fleet.nodes
            if declared_settings(node.stack.node.kubelet)
        },
        offline_nodes=frozenset(node.name for node in fleet.nodes if declared_bundle(node.stack.driver) is not None),
    )
    runner = AnsibleRunner(collection, args.keep_artifacts, args.most_artifacts, args.early)
    signers = signers_file(args, os.environ)
    bundle = None if args.bundle is None else open_bundle(args.bundle, os.environ, signers)
    stacks = {node.name: node.stack for node in fleet.nodes}
    if bundle is not None:
        stacks = {name: declare_carried(stack, bundle) for name, stack in stacks.items()}
    else:
        stacks = {
            name: stack if declared_bundle(stack.driver) is None else without_engine_repository(stack)
            for name, stack in stacks.items()
        }
    if args.force:
        stacks = {name: overwrite_edits(stack) for name, stack in stacks.items()}
    declarations = Declarations(stacks)
    asked = args.payload or (None if bundle is None else carried_payload(bundle))
    payload = store.load_payload(payload_folder(asked, os.environ, args.file))
    planner = BoundedPlanner(declarations, payload)
    return ApplyContext(
        runner=runner,
        plan=planner,
        playbooks=playbooks,
        declarations=declarations,
        bundle=bundle,
        bundles=Bundles(_bundles(os.environ), signers),
        shelf=open_shelf(fleet.inventories, os.environ),
        runfiles=open_runfiles(os.environ),
        endpoints=network_endpoints({node.name: node.endpoint for node in fleet.nodes}),
    )


def open_shelf(inventories: Iterable[str], environment: Mapping[str, str]) -> Shelf:
    """Return where modules are kept that a node of an inventory has built for others."""
    return Shelf(_cache(environment) / "built-modules" / inventory_key(inventories, Path.cwd()))


def open_runfiles(environment: Mapping[str, str]) -> Runfiles:
    """Return what makes packages of declared runfiles."""
    return Runfiles(_cache(environment) / "runfiles")


def _cache(environment: Mapping[str, str]) -> Path:
    home = Path(environment.get("HOME") or "~").expanduser()
    return Path(environment.get("XDG_CACHE_HOME") or home / ".cache") / "grapnel"


def carried_payload(bundle: Bundle) -> Path | None:
    """Return the payload in a bundle, None where it has none; raises BundleError for that of another grapnel."""
    listing = bundle.listing
    if not listing.payload:
        return None
    if listing.grapnel != provision.__version__:
        raise BundleError(
            f"the bundle has the payload of grapnel {listing.grapnel}, and this is grapnel {provision.__version__}",
            hint="name the payload that belongs to this one with --payload, or make the bundle with it",
        )
    return bundle.path(listing.payload)


def open_bundle(archive: Path, environment: Mapping[str, str], signers: Path | None = None) -> Bundle:
    """Return a bundle, unpacked into the user's cache, checked and verified; raises BundleError."""
    return read.open_bundle(archive, _bundles(environment), signers)


def _bundles(environment: Mapping[str, str]) -> Path:
    return _cache(environment) / "bundles"
