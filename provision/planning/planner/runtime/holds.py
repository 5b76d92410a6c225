"""Plans holds of an engine's packages: whatever else upgrades them restarts the engine, at any hour.

What grapnel holds is noted on the node (docs/contracts/originals), so that it lets nothing go that somebody else holds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from provision.planning.engines.package import CONTAINERD_IO, CRI_O, DOCKER_CE
from provision.planning.node_plan import Action, Item, Problem, Role, RuntimeVariables

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec
    from provision.planning.engines.model import NodeEngine
    from provision.planning.planner.part import Part

_DNF_PLUGIN: Final = "/etc/dnf/plugins/versionlock.conf"
_OF_PACKAGES: Final = (Action.INSTALL, Action.UPGRADE, Action.DOWNGRADE)
_RESTART_WHEN_UPGRADED: Final = frozenset({CONTAINERD_IO.name, DOCKER_CE.name, CRI_O.name})


def with_holds(
    facts: NodeFacts, stack: StackSpec, engine: NodeEngine, part: Part[RuntimeVariables]
) -> Part[RuntimeVariables]:
    """Return the part of an engine, with what keeps its packages as they are, or lets go what grapnel has held."""
    names = {*engine.package_names, *engine.runs_with}
    coming = set() if part.variables is None else names.intersection(part.variables.runtime_packages)
    there = facts.packages.keys() & names
    wanted = (there | coming) if stack.runtime.hold else set()
    held = {name for name in facts.packages if facts.packages[name].hold}
    loose, former = sorted(wanted - held), sorted({*facts.engine_holds} - wanted)
    items = [
        *([_item(Action.HOLD, loose, "not held: any upgrade of the system restarts the engine")] if loose else ()),
        *([_item(Action.UNHOLD, former, "noted as held by grapnel, and not declared any more")] if former else ()),
    ]
    if not stack.runtime.hold:
        part = replace(part, warnings=(*part.warnings, *_unattended(facts, there - held)))
    elif engine.package_names and not there and facts.engines.get(engine.name) is not None:
        part = replace(part, warnings=(*part.warnings, _of_no_package(facts, engine)))
    if not items and not (wanted and coming):
        return part
    behind = max((at + 1 for at, item in enumerate(part.items) if item.action in _OF_PACKAGES), default=0)
    part = replace(part, items=(*part.items[:behind], *items, *part.items[behind:]))
    if loose and facts.package_manager.name == "dnf" and facts.files.get(_DNF_PLUGIN, True) is None:
        return replace(part, problems=(*part.problems, _no_plugin(facts, loose)), variables=None)
    if part.problems:
        return part
    variables = part.variables or RuntimeVariables(runtime_engine=engine.name, runtime_service=engine.service)
    # An exchange of a package takes its hold off, or leaves one of the former version.
    hold = tuple(sorted({*loose, *(wanted & coming)}))
    variables = msgspec.structs.replace(variables, runtime_hold=hold, runtime_unhold=tuple(former))
    return replace(part, variables=variables)


def _item(action: Action, names: list[str], reason: str) -> Item:
    return Item(
        role=Role.RUNTIME,
        action=action,
        target="engine packages",
        to="held" if action is Action.HOLD else "not held",
        reason=f"{', '.join(names)}: {reason}",
    )


def _no_plugin(facts: NodeFacts, names: list[str]) -> Problem:
    return Problem(
        code="engine-hold-impossible",
        message=f"dnf on {facts.node.hostname} cannot hold {', '.join(names)} without its plugin versionlock",
        hint="dnf install python3-dnf-plugin-versionlock on it, then plan again; or declare runtime.hold: false",
    )


def _of_no_package(facts: NodeFacts, engine: NodeEngine) -> Problem:
    return Problem(
        code="engine-not-held",
        message=f"{facts.node.hostname} has {engine.name} of no package that grapnel knows, and nothing of it is held",
        hint="leave runtime.hold out for this node, or install the engine from a package source",
    )


def _unattended(facts: NodeFacts, loose: set[str]) -> tuple[Problem, ...]:
    """Say that the node restarts its engine on its own; apt's unattended upgrades leave out what others provide."""
    names = sorted(loose & _RESTART_WHEN_UPGRADED)
    if not names or facts.unattended is None or not facts.unattended.active or facts.package_manager.name != "dnf":
        return ()
    return (
        Problem(
            code="engine-upgraded-unattended",
            message=f"{facts.unattended.unit} of {facts.node.hostname} upgrades {', '.join(names)} on its own, which "
            "restarts the engine",
            hint="declare runtime.hold: true, or turn the unattended upgrade off",
        ),
    )
