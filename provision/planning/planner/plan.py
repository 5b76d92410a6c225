"""Plans one node: the parts of its roles, in the order in which they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from provision.declaration.spec.text.excerpt import few
from provision.planning.driver.packages.catalogue import find_distribution
from provision.planning.driver.packages.distributions.runfile import PERSISTENCED_UNIT
from provision.planning.engines.table import find_engine
from provision.planning.node_plan import Action, NodePlan, Problem, Role, Roles
from provision.planning.planner.drivers.driver import changes_driver, loads_driver, plan_driver
from provision.planning.planner.drivers.holders import DAEMON_UNIT
from provision.planning.planner.kubelet import plan_kubelet
from provision.planning.planner.kubelet_rules import cgroup_warnings, numa_warnings
from provision.planning.planner.node_daemon import plan_node_daemon
from provision.planning.planner.part import Part, is_restart_due
from provision.planning.planner.record import with_record
from provision.planning.planner.runtime.runtime import plan_runtime
from provision.planning.planner.tuning import changes_hugepages, plan_tuning
from provision.planning.products import recognise
from provision.planning.render.kubelet import declared_settings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec
    from provision.planning.node_plan import DriverVariables, Item, KubeletVariables, NodeDaemonVariables
    from provision.planning.supply.payload.model import Payload

# What another release of a distribution may have packages of.
_NOT_AVAILABLE: Final = frozenset({
    "driver-closure-incomplete", "engine-version-not-available", "package-not-available", "version-not-available",
})  # fmt: skip
_TAKES_IN = (Action.RELOAD, Action.RESTART, Action.START)


def plan_node(
    facts: NodeFacts,
    stack: StackSpec,
    payload: Payload,
    *,
    name: str = "",
    version_reason: str = "",
    roles: Collection[Role] = tuple(Role),
) -> NodePlan:
    """Return what one node needs to become what is declared; empty when it is.

    ``name`` is the inventory's name of the node, its host name when there is none; ``version_reason`` why the driver's
    version is this one, where the declaration only names its branch; of ``roles`` alone is there a part. A plan with
    problems has no role variables: there is nothing that could be carried out by mistake.
    """
    node = name or facts.node.hostname
    distribution = find_distribution(facts.node)
    if isinstance(distribution, Problem):
        return NodePlan(node=node, problems=(distribution,))
    driver: Part[DriverVariables] = Part()
    if Role.DRIVER in roles:
        driver = plan_driver(facts, stack, distribution, payload, version_reason=version_reason)
    runtime = plan_runtime(facts, stack, payload) if Role.RUNTIME in roles else Part()
    tuning = plan_tuning(facts, stack) if Role.TUNING in roles else Part()
    kubelet: Part[KubeletVariables] = Part()
    if Role.KUBELET in roles:
        kubelet = plan_kubelet(facts, stack, hugepages_change=changes_hugepages(tuning))
    daemon: Part[NodeDaemonVariables] = Part()
    if Role.NODE_DAEMON in roles:
        daemon = plan_node_daemon(
            facts, stack, payload, driver_changes=changes_driver(driver), driver_loads=loads_driver(driver)
        )
    if set(roles) == set(Role):  # the record is of all of them
        daemon = with_record(daemon, (driver, runtime, tuning, kubelet), facts, payload, node)
    parts = (driver, runtime, tuning, kubelet, daemon)
    items = tuple(item for part in parts for item in part.items)
    problems = (*(_release_upgrade(facts) if items else ()), *_with_release(facts, parts))
    others = recognise.warnings(facts, items, has_problems=bool(problems))
    variables = Roles(
        driver=driver.variables,
        runtime=runtime.variables,
        tuning=tuning.variables,
        kubelet=kubelet.variables,
        node_daemon=daemon.variables,
    )
    return NodePlan(
        node=node,
        items=items,
        roles=Roles() if problems else variables,
        problems=tuple(dict.fromkeys(problems)),
        warnings=(
            *(each for part in parts for each in part.warnings),
            *(_of_kubernetes(facts, stack) if items else (*_release_upgrade(facts), *_of_kubernetes(facts, stack))),
            *_not_in_force(facts, stack, items),
            *others,
        ),
        derived=tuple(each for part in parts for each in part.derived),
    )


def _release_upgrade(facts: NodeFacts) -> tuple[Problem, ...]:
    """Say that the system is about to become another one: whatever is changed now may not fit that."""
    path = facts.package_manager.release_upgrade
    if path is None:
        return ()
    return (
        Problem(
            code="release-upgrade",
            message=f"an upgrade of {facts.node.hostname}, maybe to another release, is under way: {path} says so",
            hint="let it come to its end, with a reboot where it waits for one, or take it back; then plan again. What "
            "an upgrade has left behind may be removed",
        ),
    )


def _with_release(facts: NodeFacts, parts: tuple[Part[Any], ...]) -> Iterator[Problem]:
    """Yield the problems of parts; those about packages that are not there name the release of locked sources."""
    lock = facts.package_manager.release_lock
    for problem in (each for part in parts for each in part.problems):
        if lock is None or problem.code not in _NOT_AVAILABLE:
            yield problem
            continue
        yield msgspec.structs.replace(
            problem,
            hint=f"{problem.hint}; the package sources are locked to release {lock}, and newer ones may have it",
        )


def _of_kubernetes(facts: NodeFacts, stack: StackSpec) -> tuple[Problem, ...]:
    """Return why the kubelet of a node has no GPU to give."""
    return (*cgroup_warnings(facts), *numa_warnings(facts), *_released(facts)) if stack.plugin.enabled else ()


def _released(facts: NodeFacts) -> tuple[Problem, ...]:
    """Say of a node that it offers no GPU: whoever released it may have forgotten it."""
    if not facts.is_released:
        return ()
    return (
        Problem(
            code="gpus-released",
            message="its GPUs were taken out of service, and none is offered until somebody offers them again",
            hint="an upgrade does that at its end; where none has the node, `grapnel-node resume` on it does",
        ),
    )


def _not_in_force(facts: NodeFacts, stack: StackSpec, items: Collection[Item]) -> Iterator[Problem]:
    """Yield which services may not know yet what their files say, and are not about to take it in.

    That is no change: another tool may write the same file every night, and nothing is restarted for that.
    """
    told = {item.target for item in items if item.action in _TAKES_IN}
    engine = find_engine(facts, stack.runtime.engine)
    kubelet = facts.kubelet.unit if facts.kubelet and declared_settings(stack.node.kubelet) else ""
    units = {
        engine.service: stack.runtime.enabled,
        kubelet: bool(kubelet),
        PERSISTENCED_UNIT: stack.driver.enabled,
        DAEMON_UNIT: stack.plugin.enabled,
    }
    for unit in (name for name, is_declared in units.items() if is_declared):
        newer = facts.service(unit).newer_files
        if newer and unit not in told and not is_restart_due(facts, unit):
            is_reload = unit == engine.service and engine.reloads and not any(map(_is_of_unit, newer))
            verb = "reload" if is_reload else "restart"
            reload = "systemctl daemon-reload && " if any(map(_is_of_unit, newer)) else ""
            yield Problem(
                code="service-not-restarted",
                message=f"{unit} was started before {few(newer)} changed: it may not know what was changed",
                hint=f"on the node: `{reload}systemctl {verb} {unit}`",
            )


def _is_of_unit(path: str) -> bool:
    return "/systemd/system/" in path
