"""Decides what is taken away and given back on a node: steps to show, and what cannot be given back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.daemon.gpu_settings import are_set
from ansible_collections.grapnel.node.plugins.module_utils.machine.selinux import has_module
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import unit_state
from ansible_collections.grapnel.node.plugins.module_utils.removal.files import FileReturn, plan_return
from ansible_collections.grapnel.node.plugins.module_utils.removal.originals import (
    PLACE,
    find_unrecorded,
    read_originals,
)
from ansible_collections.grapnel.node.plugins.module_utils.removal.own import UNITS, find_own
from ansible_collections.grapnel.node.plugins.module_utils.removal.packages import PackagePlan, plan_packages
from ansible_collections.grapnel.node.plugins.module_utils.removal.parts import (
    DAEMON,
    HOOK,
    NODE,
    PARTS,
    RUNTIME,
    part_of,
)
from ansible_collections.grapnel.node.plugins.module_utils.removal.settings import read_kept
from ansible_collections.grapnel.node.plugins.module_utils.removal.still_named import find_still_named
from ansible_collections.grapnel.node.plugins.module_utils.use.claims import find_claims

if TYPE_CHECKING:
    from collections.abc import Collection

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.removal.originals import Originals
    from ansible_collections.grapnel.node.plugins.module_utils.removal.parts import Reader

_ENABLED = ("enabled", "enabled-runtime")
_ACTIVE = ("active", "activating", "reloading")
# What the roles kubelet and tuning remember of former values; an apply without a section `node` gives those back.
_NODE_SETTINGS = ("/etc/grapnel/kubelet.json", "/etc/grapnel/tuning.json")
_MIG_LAYOUT = "/etc/grapnel/mig-layout.json"


@dataclass(frozen=True)
class Step:
    """One thing that is done, as people read it."""

    part: str
    action: str
    target: str
    reason: str


@dataclass(frozen=True)
class Removal:
    """What becomes of a node. ``notes`` say what cannot be given back, ``problems`` why nothing may be begun.

    ``remembered`` are parts that there are records of, ``kept`` settings that a killed run has yet to put back, and
    ``held`` packages that are let go.
    """

    originals: Originals
    files: tuple[tuple[str, FileReturn], ...] = ()
    units: tuple[tuple[str, str], ...] = ()
    own: tuple[tuple[str, str], ...] = ()
    packages: tuple[PackagePlan, ...] = ()
    kept: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    remembered: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    resets_gpus: bool = False
    leaves_policy: bool = False

    @property
    def leaving(self) -> frozenset[str]:
        """The engines that go with their packages."""
        return frozenset(one.engine for one in self.packages if not one.stays)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return everything that is done, in its order."""
        return (
            *(Step(part, "disable", unit, "grapnel's own") for part, unit in self.units),
            *(Step(part, one.action, one.path, one.reason) for part, one in self.files if one.change is not None),
            *self._services(),
            *((Step(DAEMON, "restore", "settings of GPUs", "grapnel has set them"),) if self.resets_gpus else ()),
            *(Step(RUNTIME, "unhold", name, "nobody held it before grapnel") for name in self.held),
            *((Step(HOOK, "remove", "SELinux module grapnel", "grapnel's own"),) if self.leaves_policy else ()),
            *(
                Step(RUNTIME, "purge", name, f"came with {one.engine}, which grapnel installed")
                for one in self.packages
                if not one.stays
                for name in one.names
            ),
            *(
                Step(RUNTIME, "remove", path, f"the data of {one.engine}, which grapnel installed")
                for one in self.packages
                if not one.stays
                for path in one.data
            ),
            *(
                Step(RUNTIME, "remove", f"group {name}", f"came with {one.engine}, and has no members")
                for one in self.packages
                if not one.stays
                for name in one.groups
            ),
            *(Step(part, "remove", path, "grapnel's own") for part, path in self.own),
            *(Step(RUNTIME, "restore", path, "a removal that was cut short had kept it") for path in self.kept),
            *(
                Step(part, "forget", PLACE, f"what it says of the {part} is given back by then")
                for part in self.remembered
            ),
        )

    def _services(self) -> tuple[Step, ...]:
        """Return what becomes of the services that read changed files and stay."""
        changed = dict.fromkeys(one.reader for _, one in self.files if one.change is not None)
        return tuple(
            Step(RUNTIME, action, reader.unit, reason)
            for reader in changed
            for action, reason in self.of_service(reader)
        )

    def of_service(self, reader: Reader) -> tuple[tuple[str, str], ...]:
        """Return what becomes of a service whose files are given back, with reasons; nothing of one that goes."""
        if not self.stays(reader):
            return ()
        enabled, active = self.originals.units.get(reader.unit, (True, True))
        reads = ("reload" if reader.reloads else "restart", "it reads its files only then")
        ends = [("disable", "it was not enabled before")] if not enabled else []
        return (*([reads] if active else []), *ends, *([] if active else [("stop", "it did not run before")]))

    def stays(self, reader: Reader) -> bool:
        """Tell whether a file is read by the service of an engine that stays."""
        return bool(reader.engine and reader.unit) and reader.engine not in self.leaving


def find_removal(host: Host, parts: Collection[str]) -> Removal:
    """Look at a node and decide; raises `OriginalsError`, `FileSetError`."""
    originals = read_originals(host)
    unrecorded = find_unrecorded(host, originals)
    known = {**originals.files, **unrecorded.files}
    places = sorted((PARTS.index(part_of(path, one.reader)), path) for path, one in known.items())
    files = tuple(
        (PARTS[place], plan_return(host, path, known[path])) for place, path in places if PARTS[place] in parts
    )
    packages = _packages(host, originals) if RUNTIME in parts else ()
    notes = [one.note for _, one in files if one.note]
    notes += [f"{one.engine} stays installed: {one.stays}" for one in packages if one.stays]
    notes += unrecorded.notes if RUNTIME in parts else ()
    if DAEMON in parts and _MIG_LAYOUT in known:
        notes.append("the GPUs stay divided by MIG as they are: how they were before is not known")
    if DAEMON in parts and (claims := find_claims(host)):
        notes.append(f"claims are prepared on the node ({len(claims)}): it stays as it is while a pod has one of them")
    if NODE in parts and any(host.path(path).exists() for path in _NODE_SETTINGS):
        notes.append(
            "the settings of kubelet and kernel stay: `grapnel apply` gives them back when the declaration has no "
            "section `node`; do that first"
        )
    is_in_policy, can_leave = HOOK in parts and has_module(host), host.find_command("semodule") is not None
    if is_in_policy and not can_leave:
        notes.append("grapnel's module stays in SELinux's policy: there is no semodule, which would take it out")
    problems = [f"{one.problem}: end them first" for one in packages if one.problem]
    if (
        HOOK in parts
        and RUNTIME not in parts
        and any(part_of(path, one.reader) == RUNTIME for path, one in known.items())
    ):
        problems.append("the engine's configuration names the hook, and containers would not start: add --runtime")
    removal = Removal(
        originals,
        files,
        _units(host, parts),
        tuple((part, path) for part in PARTS if part in parts for path in find_own(host, part)),
        packages,
        tuple(one.path for one in read_kept(host)) if RUNTIME in parts else (),
        originals.held if RUNTIME in parts else (),
        _remembered(originals, parts),
        tuple(notes),
        tuple(problems),
        DAEMON in parts and are_set(host),
        is_in_policy and can_leave,
    )
    named = find_still_named(host, (one for _, one in files), removal.stays, hook_goes=HOOK in parts)
    return replace(removal, problems=(*problems, *named))


def _remembered(originals: Originals, parts: Collection[str]) -> tuple[str, ...]:
    known = {part_of(path, one.reader) for path, one in originals.files.items()}
    known |= {RUNTIME} if originals.packages or originals.units or originals.held else set()
    return tuple(part for part in PARTS if part in known and part in parts)


def _packages(host: Host, originals: Originals) -> tuple[PackagePlan, ...]:
    plans = (plan_packages(host, engine, recorded) for engine, recorded in originals.packages.items())
    return tuple(one for one in plans if one.names or one.data or one.groups)


def _units(host: Host, parts: Collection[str]) -> tuple[tuple[str, str], ...]:
    """Return grapnel's own units that are enabled or run."""
    return tuple((part, unit) for part in PARTS if part in parts for unit in UNITS.get(part, ()) if _is_up(host, unit))


def _is_up(host: Host, unit: str) -> bool:
    state = unit_state(host, unit)
    return state.enabled in _ENABLED or state.active in _ACTIVE


def document(removal: Removal) -> dict[str, Any]:
    """Return a removal as the module answers it (docs/contracts/removal)."""
    return {
        "steps": [
            {"part": one.part, "action": one.action, "target": one.target, "reason": one.reason}
            for one in removal.steps
        ],
        "notes": list(removal.notes),
        "problems": list(removal.problems),
    }
