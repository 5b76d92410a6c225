"""Defines a role's part of a plan, and plans what several roles need: files, services, deployments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from provision.planning.node_plan import Action, Derived, FileContent, Item, Problem, Role
from provision.planning.supply.payload.model import minor_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.planning.driver_change import PackageVersion
    from provision.planning.supply.payload.model import Payload

RESTART_MARKS = "/run/grapnel/restart"
PACKAGE_MANAGER_LOCKED = "package-manager-locked"
VERSION_NOT_CHOSEN = "version-not-chosen"
_PARTS = {"driver": "driver program", "hook": "hook", "node": "node daemon"}  # in words
_PYTHON = "/usr/bin/python3"
_OLDEST_PYTHON = (3, 9)  # of hook and driver program
_RUNNING = {"active", "activating", "reloading"}

Variables = TypeVar("Variables")


@dataclass(frozen=True)
class Declared:
    """What a role is to bring about, for the node's own record of it: all of it, whether it is there already or not.

    ``units`` run and start at boot; ``module`` is the version of the loaded kernel module, empty where none has to be;
    ``software`` are pairs of a part of grapnel and its digest, ``marked`` those of a file at whose edits ``apply``
    stops, and where grapnel's mark stands in it.
    """

    packages: tuple[PackageVersion, ...] = ()
    hold: bool = False
    files: tuple[FileContent, ...] = ()
    units: tuple[str, ...] = ()
    module: str = ""
    software: tuple[tuple[str, str], ...] = ()
    marked: tuple[tuple[str, Literal["start", "end"]], ...] = ()


@dataclass(frozen=True)
class Part(Generic[Variables]):
    """One role's items, its variables (None when it has nothing to do in this pass), and what is in its way.

    Items beside ``problems`` are what would be done without these, as far as that is known; nobody carries them out.
    ``warnings`` are not in its way; ``derived`` is what was chosen where the declaration leaves it open. ``declared``
    is all that it is to bring about, known of a part without problems.
    """

    items: tuple[Item, ...] = ()
    problems: tuple[Problem, ...] = ()
    variables: Variables | None = None
    warnings: tuple[Problem, ...] = ()
    derived: tuple[Derived, ...] = ()
    declared: Declared = Declared()


def differs(facts: NodeFacts, file: FileContent) -> str | None:
    """Return in which ways a file is not as it should be, None when it is."""
    state = facts.file(file.path)
    if state is None:
        return "is absent"
    found = [
        "differs from what is declared" if state.content != file.content else "",
        f"belongs to {state.uid}:{state.gid}, not to root" if (state.uid, state.gid) != (0, 0) else "",
        f"has mode {state.mode}, not {file.mode}" if state.mode != file.mode else "",
    ]
    return ", and ".join(filter(None, found)) or None


def plan_files(facts: NodeFacts, role: Role, files: Sequence[FileContent]) -> tuple[Item, ...]:
    """Return a write for every file that is not as it should be."""
    return tuple(
        Item(role=role, action=Action.WRITE, target=file.path, reason=f"{file.path} {reason}")
        for file in files
        if (reason := differs(facts, file)) is not None
    )


def plan_deployment(facts: NodeFacts, role: Role, part: str, digest: str) -> tuple[Item, ...]:
    """Return what installs a part of grapnel, or replaces it; nothing when it is the one of the payload."""
    installed = facts.installed_digest(part)
    if installed == digest:
        return ()
    name = _PARTS[part]
    is_new = installed is None
    reason = f"grapnel's {name} is not installed" if is_new else f"another version of grapnel's {name} is installed"
    return (
        Item(
            role=role,
            action=Action.DEPLOY,
            target=part,
            from_=installed and installed[:12],
            to=digest[:12],
            reason=reason,
        ),
    )


def plan_service(facts: NodeFacts, role: Role, unit: str) -> tuple[Item, ...]:
    """Return what brings a service up, now and at every start of the machine."""
    service, items = facts.service(unit), []
    if service.enabled in {"", "disabled"}:
        state = "is not enabled" if service.enabled else "is not installed yet"
        reason = f"{unit} {state}: it would not start at boot"
        was = service.enabled or None
        items += [Item(role=role, action=Action.ENABLE, target=unit, from_=was, to="enabled", reason=reason)]
    if service.enabled and not is_running(facts, unit):
        reason = f"{unit} is {service.active}"
        items += [Item(role=role, action=Action.START, target=unit, from_=service.active, to="active", reason=reason)]
    return tuple(items)


def timers_of(payload: Payload) -> tuple[str, ...]:
    """Return the timers that run beside the daemon."""
    return tuple(sorted(name for name in payload.units if name.endswith(".timer")))


def is_running(facts: NodeFacts, unit: str) -> bool:
    """Tell whether a service runs, or is on its way."""
    return facts.service(unit).active in _RUNNING


def is_restart_due(facts: NodeFacts, unit: str) -> bool:
    """Tell whether an earlier apply was interrupted between changing what a service reads and restarting it."""
    return facts.file(f"{RESTART_MARKS}/{unit}") is not None


def python_problems(facts: NodeFacts) -> tuple[Problem, ...]:
    """Return that the hook and the driver's program cannot be started: without this, they would be found not to."""
    node = facts.node
    found = node.pythons.get(_PYTHON, "") if node.pythons else node.python
    if found and minor_of(found) >= _OLDEST_PYTHON:
        return ()
    return (
        Problem(
            code="unsupported-python",
            message=f"{node.hostname} has {f'Python {found}' if found else 'no Python'} as {_PYTHON}, and grapnel's "
            "programs need 3.9 or later",
            hint="use a release of the distribution with a later one; another Python beside it does not start them",
        ),
    )


def package_manager_problems(facts: NodeFacts) -> tuple[Problem, ...]:
    """Return why packages cannot be changed now."""
    locked_by = facts.package_manager.locked_by
    if locked_by is None:
        return ()
    return (
        Problem(
            code=PACKAGE_MANAGER_LOCKED,
            message=f"{facts.package_manager.name} on {facts.node.hostname} is in use "
            f"by {locked_by.command} (pid {locked_by.pid})",
            hint="wait until it is done, then plan again",
        ),
    )
