"""Defines a role's part of a plan, and plans what several roles need: files, services, deployments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from provision.planning.node_plan import SYSTEM_PYTHON, Action, Derived, FileContent, Item, Problem, Role
from provision.planning.supply.payload.model import minor_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.planning.driver_change import PackageVersion
    from provision.planning.supply.payload.model import Artifact, Payload

RESTART_MARKS = "/run/grapnel/restart"
PACKAGE_MANAGER_LOCKED = "package-manager-locked"
VERSION_NOT_CHOSEN = "version-not-chosen"
_PARTS = {"driver": "driver program", "hook": "hook", "node": "node daemon"}  # in words
_GET_PYTHON = {
    "dnf": "`dnf install python3.11`",
    "zypper": "`zypper install python311`, of the Python 3 Module (SP4 or later),",
}

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


def plan_deployment(facts: NodeFacts, role: Role, part: str, artifact: Artifact) -> tuple[Item, ...]:
    """Return what installs a part of grapnel, or replaces it; nothing when it is the one of the payload.

    Without an interpreter for it there is a problem, and nothing to install.
    """
    installed, python, name = facts.installed.get(part), choose_python(facts, artifact), _PARTS[part]
    if not python or (installed is not None and (installed.digest, installed.python) == (artifact.digest, python)):
        return ()
    before, after = None if installed is None else installed.digest[:12], artifact.digest[:12]
    if installed is None:
        reason = f"grapnel's {name} is not installed"
    elif installed.digest != artifact.digest:
        reason = f"another version of grapnel's {name} is installed"
    else:
        reason = f"grapnel's {name} is started with another Python"
        before, after = installed.python, python
    return (Item(role=role, action=Action.DEPLOY, target=part, from_=before, to=after, reason=reason),)


def plan_service(facts: NodeFacts, role: Role, unit: str) -> tuple[Item, ...]:
    """Return what brings a service up, now and at every start of the machine."""
    service, items = facts.service(unit), []
    if service.enabled in {"", "disabled"}:
        state = "is not enabled" if service.enabled else "is not installed yet"
        reason = f"{unit} {state}: it would not start at boot"
        was = service.enabled or None
        items += [Item(role=role, action=Action.ENABLE, target=unit, from_=was, to="enabled", reason=reason)]
    if service.enabled and not service.is_running:
        reason = f"{unit} is {service.active}"
        items += [Item(role=role, action=Action.START, target=unit, from_=service.active, to="active", reason=reason)]
    return tuple(items)


def timers_of(payload: Payload) -> tuple[str, ...]:
    """Return the timers that run beside the daemon."""
    return tuple(sorted(name for name in payload.units if name.endswith(".timer")))


def is_restart_due(facts: NodeFacts, unit: str) -> bool:
    """Tell whether an earlier apply was interrupted between changing what a service reads and restarting it."""
    return facts.file(f"{RESTART_MARKS}/{unit}") is not None


def choose_python(facts: NodeFacts, artifact: Artifact) -> str:
    """Return what starts the programs of an archive: the node's own Python if it will do, else the newest; or ""."""
    oldest = minor_of(artifact.python)
    fit = {path: minor_of(version) for path, version in _pythons(facts).items() if minor_of(version) >= oldest}
    return SYSTEM_PYTHON if SYSTEM_PYTHON in fit else max(fit, key=lambda path: fit[path], default="")


def derive_python(facts: NodeFacts, part: str, artifact: Artifact) -> tuple[Derived, ...]:
    """Return which interpreter starts a part where that is not the node's own, and why."""
    python, own = choose_python(facts, artifact), _pythons(facts).get(SYSTEM_PYTHON)
    if python in {SYSTEM_PYTHON, ""}:
        return ()
    reason = f"starts grapnel's {_PARTS[part]}, which needs {artifact.python} or later: {SYSTEM_PYTHON} is "
    return (Derived(key="python", value=python, reason=reason + (own or "not there")),)


def python_problems(facts: NodeFacts, part: str, artifact: Artifact) -> tuple[Problem, ...]:
    """Return that nothing on the node can start a part: without this, it would be found not to start."""
    if choose_python(facts, artifact):
        return ()
    newest = max(_pythons(facts).values(), key=minor_of, default="")
    found = f"Python {newest}" if newest else "no Python in /usr/bin"
    get = _GET_PYTHON.get(facts.package_manager.name, "install a later one as /usr/bin/python3.N")
    return (
        Problem(
            code="unsupported-python",
            message=f"{facts.node.hostname} has {found}, and grapnel's {_PARTS[part]} needs {artifact.python} or later",
            hint=f"{get} on it, and plan again: {SYSTEM_PYTHON} stays as it is",
        ),
    )


def _pythons(facts: NodeFacts) -> Mapping[str, str]:
    return {SYSTEM_PYTHON: facts.node.python} if facts.node.pythons is None else facts.node.pythons


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
