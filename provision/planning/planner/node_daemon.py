"""Plans the node daemon's part: its archive, its files, its service."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from provision.declaration.spec.model import DaemonAs, Entitlement
from provision.planning.node_plan import Action, Disruption, FileContent, Item, NodeDaemonVariables, Role
from provision.planning.planner.device_classes import class_files, plan_removals
from provision.planning.planner.dra import dra_problems, dra_warnings, with_interface
from provision.planning.planner.drivers.holders import DAEMON_UNIT
from provision.planning.planner.gpu_settings import plan_gpu_settings
from provision.planning.planner.mig import plan_mig
from provision.planning.planner.named_configs import config_files, plan_config_removals
from provision.planning.planner.part import (
    Declared,
    Part,
    choose_python,
    derive_python,
    is_restart_due,
    plan_deployment,
    plan_files,
    plan_service,
    python_problems,
    timers_of,
)
from provision.planning.render.declared import DECLARED_RECORD
from provision.planning.render.device_classes import DECLARED_PATH, DEVICE_CLASSES
from provision.planning.render.node_config import NODE_CONFIG_PATH, render_node_config
from provision.planning.render.nvidia_config import (
    DECLARED_CONFIGS,
    NAMED_CONFIGS,
    NVIDIA_CONFIG_PATH,
    render_nvidia_config,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec
    from provision.planning.planner.mig import MigPart
    from provision.planning.supply.payload.model import Artifact, Payload

# What the daemon reads again on SIGHUP, all of it; its unit and its code it does not.
_RELOADED = frozenset({DECLARED_PATH, DECLARED_CONFIGS, NODE_CONFIG_PATH, NVIDIA_CONFIG_PATH})
_RUNS = (Action.ENABLE, Action.START)
_UNITS = "/etc/systemd/system"
UNIT_PATH = f"{_UNITS}/{DAEMON_UNIT}"


def plan_node_daemon(
    facts: NodeFacts, stack: StackSpec, payload: Payload, *, driver_changes: bool, driver_loads: bool = False
) -> Part[NodeDaemonVariables]:
    """Return what makes the daemon run, or not run, as declared; it is restarted when the driver changes under it.

    As a pod it is the kubelet's to start: the node has its files and commands, and no service.
    ``driver_loads``: the driver is loaded in this pass, where none is. Beside a problem are the changes that would be
    made without it, as far as they are known.
    """
    if not stack.plugin.enabled:
        return _disabled(facts, payload)
    derived = derive_python(facts, "node", payload.node)
    deployment = plan_deployment(facts, Role.NODE_DAEMON, "node", payload.node)
    mig = plan_mig(facts, stack, driver_loads=driver_loads, deploys=bool(deployment))
    gpus = plan_gpu_settings(facts, stack)
    classes = class_files(facts, stack)
    is_pod = stack.plugin.daemon is DaemonAs.DAEMON_SET
    unit = () if is_pod else (FileContent(UNIT_PATH, payload.unit),)
    files = (*gpus.files, *_configuration(facts, stack), *classes, *unit, *_units(payload))
    removals = (*plan_removals(facts, stack), *plan_config_removals(facts, stack), *gpus.removals)
    changes = (*deployment, *removals, *with_interface(facts, stack, _writes(facts, stack, files)))
    beside = {file.path for file in _units(payload)}
    read = [item for item in changes if item.target not in beside]
    restart = () if is_pod else _restart(facts, read, driver_changes=driver_changes)
    units = timers_of(payload) if is_pod else (DAEMON_UNIT, *timers_of(payload))
    stops = _stops(facts, (DAEMON_UNIT,), "plugin.daemon is daemonset") if is_pod else ()
    services = tuple(item for name in units for item in plan_service(facts, Role.NODE_DAEMON, name))
    items = (*deployment, *mig.items, *changes[len(deployment) :], *gpus.items, *restart, *stops, *services)
    problems = (*python_problems(facts, "node", payload.node), *mig.problems, *dra_problems(facts, stack))
    warnings = (*mig.warnings, *gpus.warnings, *dra_warnings(facts, stack))
    if problems:
        return Part(items, problems, warnings=warnings, derived=derived)
    python = choose_python(facts, payload.node)
    variables = _variables(items, payload.node, python, files, mig, sets_gpus=gpus.sets, is_pod=is_pod)
    software = (("node", payload.node.digest),)
    declared = Declared(files=files, units=units, software=software)
    return Part(items, (), variables if items else None, warnings, derived, declared)


def _units(payload: Payload) -> tuple[FileContent, ...]:
    """Return the units beside the daemon's."""
    return tuple(FileContent(f"{_UNITS}/{name}", text) for name, text in sorted(payload.units.items()))


def _configuration(facts: NodeFacts, stack: StackSpec) -> tuple[FileContent, ...]:
    """Return the daemon's files. What is shared is written before node.json names its file, or its folder."""
    nvidia = render_nvidia_config(stack)
    shared = () if nvidia is None else (FileContent(NVIDIA_CONFIG_PATH, nvidia),)
    return (*shared, *config_files(facts, stack), FileContent(NODE_CONFIG_PATH, render_node_config(stack)))


def _disabled(facts: NodeFacts, payload: Payload) -> Part[NodeDaemonVariables]:
    timers = timers_of(payload)
    items = _stops(facts, (DAEMON_UNIT, *timers), "plugin.enabled is false")
    record = _forgotten(facts)
    if not (items or record):
        return Part()
    absent = tuple(item.target for item in record)
    off = NodeDaemonVariables(node_daemon_enabled=False, node_daemon_timers=timers, node_daemon_absent=absent)
    return Part((*items, *record), (), off)


def _stops(facts: NodeFacts, units: Sequence[str], reason: str) -> tuple[Item, ...]:
    """Return what ends units that run, and keeps them from starting at boot."""
    return tuple(
        Item(
            role=Role.NODE_DAEMON,
            action=Action.DISABLE,
            target=unit,
            from_=facts.service(unit).active,
            to="disabled",
            reason=reason,
        )
        for unit in units
        if facts.service(unit).enabled in {"enabled", "enabled-runtime"} or facts.service(unit).is_running
    )


def _forgotten(facts: NodeFacts) -> tuple[Item, ...]:
    """Return the removal of the record with which nothing is compared any more."""
    if facts.file(DECLARED_RECORD) is None:
        return ()
    reason = "nothing compares the node with it: plugin.enabled is false"
    return (Item(role=Role.NODE_DAEMON, action=Action.REMOVE, target=DECLARED_RECORD, reason=reason),)


def _writes(facts: NodeFacts, stack: StackSpec, files: Sequence[FileContent]) -> tuple[Item, ...]:
    """Return the files to write. A new unit makes systemd reload, which resets device rules that it does not know."""
    has_engine = facts.engines.get(stack.runtime.engine.value) is not None
    costly = stack.runtime.entitlement is Entitlement.ENV and has_engine
    return tuple(
        msgspec.structs.replace(item, disruption=Disruption.RELOAD)
        if costly and item.target.startswith(f"{_UNITS}/")
        else item
        for item in plan_files(facts, Role.NODE_DAEMON, files)
    )


def _restart(facts: NodeFacts, changes: Sequence[Item], *, driver_changes: bool) -> tuple[Item, ...]:
    """Return the restart that the daemon needs, or the reload where it takes in what changes while it runs."""
    if not facts.service(DAEMON_UNIT).is_running:
        return ()
    action = Action.RESTART
    if driver_changes:
        reason = "the daemon uses the driver, which changes"
    elif is_restart_due(facts, DAEMON_UNIT):
        reason = "an earlier apply changed what the daemon reads and was interrupted before the restart"
    elif changes:
        reason = f"the daemon still runs with the former {', '.join(item.target for item in changes)}"
        action = Action.RELOAD if all(_is_reloaded(item.target) for item in changes) else Action.RESTART
    else:
        return ()
    return (Item(role=Role.NODE_DAEMON, action=action, target=DAEMON_UNIT, reason=reason),)


def _is_reloaded(target: str) -> bool:
    return target in _RELOADED or target.startswith((f"{DEVICE_CLASSES}/", f"{NAMED_CONFIGS}/"))


def _variables(
    items: Sequence[Item],
    artifact: Artifact,
    python: str,
    files: Sequence[FileContent],
    mig: MigPart,
    *,
    sets_gpus: bool,
    is_pod: bool,
) -> NodeDaemonVariables:
    actions = {item.action for item in items}
    written = {item.target for item in items if item.action is Action.WRITE}
    return NodeDaemonVariables(
        node_daemon_archive=artifact.path if Action.DEPLOY in actions else "",
        node_daemon_digest=artifact.digest,
        node_daemon_python=python,
        node_daemon_absent=tuple(item.target for item in items if item.action is Action.REMOVE),
        node_daemon_files=tuple(file for file in files if file.path in written),
        node_daemon_enabled=True,
        node_daemon_as_pod=is_pod,
        node_daemon_restart=Action.RESTART in actions or Action.RELOAD in actions,
        node_daemon_reload=Action.RELOAD in actions,
        node_daemon_mig_files=mig.files,
        node_daemon_mig_divide=mig.divides,
        node_daemon_set_gpus=sets_gpus,
        node_daemon_timers=tuple(
            item.target for item in items if item.target.endswith(".timer") and item.action in _RUNS
        ),
    )
