"""Plans the engine's part: its package, the hook, the handler."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from provision.declaration.spec.model import Entitlement
from provision.planning.engines.files.engine_file import is_same
from provision.planning.engines.table import find_engine
from provision.planning.node_plan import Action, Disruption, FileContent, Item, Problem, Role, RuntimeVariables
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
)
from provision.planning.planner.runtime.adoption import plan_adoption
from provision.planning.planner.runtime.hand_edits import Kept, keep_edits
from provision.planning.planner.runtime.holds import with_holds
from provision.planning.planner.runtime.installation import (
    find_package,
    find_version,
    half_installed,
    install_problems,
    plan_sources,
    with_sources,
    without_former_sources,
)
from provision.planning.planner.runtime.package_defaults import expect_files
from provision.planning.planner.runtime.selinux import (
    apparmor_warnings,
    plan_selinux,
    selinux_files,
    selinux_problems,
    selinux_warnings,
    wanted_digest,
)
from provision.planning.render.errors import EngineConfigError
from provision.planning.render.hook_config import HOOK_CONFIG_PATH, render_hook_config
from provision.planning.render.selinux import MODULE_PATH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec
    from provision.planning.engines.model import NodeEngine
    from provision.planning.supply.payload.model import Payload

HOOK_UNIT = "grapnel-inventory.path"  # the last of what comes with the hook
_PROBLEM = "engine-config"
_HOOK_KERNEL: Final = (5, 12)  # mount_setattr(2), of runtime_hook.container.kernel
_SPARING = ("", "process", "none")  # KillMode of systemd.kill(5): what runs beside the main process goes on


def plan_runtime(facts: NodeFacts, stack: StackSpec, payload: Payload) -> Part[RuntimeVariables]:
    """Return what lets containers of the node get GPUs through the engine."""
    if not stack.runtime.enabled:
        return Part()
    part = _plan_runtime(facts, stack, payload)
    part = replace(part, warnings=(*part.warnings, *selinux_warnings(facts, stack), *apparmor_warnings(facts)))
    problems = (*_kernel_problems(facts), *python_problems(facts, "hook", payload.hook), *selinux_problems(facts))
    derived = derive_python(facts, "hook", payload.hook)
    if problems:
        return Part(part.items, (*problems, *part.problems), warnings=part.warnings, derived=derived)
    if part.variables is None:
        return replace(part, derived=derived)
    python = choose_python(facts, payload.hook)
    variables = msgspec.structs.replace(part.variables, runtime_hook_python=python)
    return replace(part, derived=derived, variables=variables)


def _kernel_problems(facts: NodeFacts) -> tuple[Problem, ...]:
    """Say that the running kernel lacks what the hook mounts with: without this, the first container would."""
    release = re.match(r"([0-9]{1,4})\.([0-9]{1,4})", facts.node.kernel)
    if release is None or (int(release[1]), int(release[2])) >= _HOOK_KERNEL:
        return ()
    problem = Problem(
        code="kernel-too-old",
        message=f"{facts.node.hostname} runs Linux {facts.node.kernel}, and the hook needs "
        f"{'.'.join(map(str, _HOOK_KERNEL))} or later: no container with a GPU would start",
        hint="declare runtime.enabled: false for this node, which gets its driver then and leaves containers to other "
        "products (CDI devices of grapnel's need the hook as well); or boot a later kernel",
    )
    return (problem,)


def _kubelet_problem(facts: NodeFacts, stack: StackSpec) -> Problem | None:
    """Say that the kubelet uses another engine than the declared one, whose handler no pod would ever reach."""
    used, declared = facts.kubelet_engine, stack.runtime.engine.value
    by_kubelet = stack.plugin.enabled and stack.runtime.entitlement is Entitlement.KUBELET
    if not by_kubelet or used is None or used == declared:
        return None
    return Problem(
        code="kubelet-uses-another-engine",
        message=f"the kubelet of {facts.node.hostname} uses {used}, and runtime.engine is {declared}",
        hint=f"declare runtime.engine: {used} for the group of this node",
    )


def _plan_runtime(facts: NodeFacts, stack: StackSpec, payload: Payload) -> Part[RuntimeVariables]:
    engine = find_engine(facts, stack.runtime.engine)
    if problem := _kubelet_problem(facts, stack):
        return Part(_own(facts, stack, payload, engine), (problem,))
    if facts.engines.get(engine.name) is None:
        part = _without_engine(facts, stack, payload, engine)
    else:
        part = with_sources(facts, stack, engine, _with_engine(facts, stack, payload, engine))
        if halves := half_installed(facts, stack, engine):
            part = replace(part, problems=(*part.problems, *halves), variables=None)
    return with_holds(facts, stack, engine, without_former_sources(facts, stack, engine, part))


def _own_files(facts: NodeFacts, stack: StackSpec, engine: NodeEngine) -> tuple[FileContent, ...]:
    """Return the files that do not depend on the engine's own configuration."""
    hook_config = FileContent(HOOK_CONFIG_PATH, render_hook_config(stack, names_devices=engine.names_devices))
    return (hook_config, *selinux_files(facts), *engine.own_files(stack))


def _without_engine(facts: NodeFacts, stack: StackSpec, payload: Payload, engine: NodeEngine) -> Part[RuntimeVariables]:
    """Plan for a node without an engine: nothing runs in it.

    What cannot be known of its configuration before it is there follows in the next pass.
    """
    if sources := plan_sources(facts, stack, engine):
        return sources
    package = find_package(facts, stack, engine)
    if isinstance(package, Problem):
        return Part(_own(facts, stack, payload, engine), (package,))
    if problems := install_problems(facts, stack, engine, package):
        return Part(_own(facts, stack, payload, engine), problems)
    expected = expect_files(facts, stack, engine, package.name)
    reason = "no container engine is installed"
    version = find_version(facts, stack, package)
    to = None if isinstance(version, Problem) else version or None
    install = (Item(role=Role.RUNTIME, action=Action.INSTALL, target=package.name, to=to, reason=reason),)
    packages = {
        "runtime_packages": (package.name, *package.besides),
        "runtime_versions": {package.name: to} if to else {},
    }
    follows = "depends on" if expected is None else "follows from"
    configure = [
        Item(
            role=Role.RUNTIME,
            action=Action.WRITE,
            target=path,
            reason=f"{follows} the configuration that the engine's package brings",
            deferred=expected is None,
        )
        for path in engine.engine_paths
    ]
    now = (*install, *_own(facts, stack, payload, engine))
    if expected is None:
        variables = _variables(facts, now, payload, _own_files(facts, stack, engine), engine)
        return Part((*now, *configure), (), msgspec.structs.replace(variables, **packages))
    files = (*_own_files(facts, stack, engine), *expected.files)
    items = (*now, *configure, *_take_in(engine))
    variables = msgspec.structs.replace(
        _variables(facts, items, payload, files, engine),
        **packages,
        runtime_preconditions={file.path: expected.made_from for file in expected.files},
    )
    return Part(items, (), variables, declared=_declared(payload, files, engine))


def _take_in(engine: NodeEngine) -> tuple[Item, ...]:
    """Return how an engine that its package starts takes in the files that are written then."""
    if not engine.service:
        return ()
    reason = "its package starts the engine before its configuration is written, and no container runs in it yet"
    return (Item(role=Role.RUNTIME, action=Action.RESTART, target=engine.service, reason=reason),)


def _with_engine(facts: NodeFacts, stack: StackSpec, payload: Payload, engine: NodeEngine) -> Part[RuntimeVariables]:
    if problem := _service_problem(facts, engine):
        return Part(_own(facts, stack, payload, engine), (problem,))
    try:
        adoption = plan_adoption(facts, stack.runtime)
        facts = adoption.facts
        files = (*_own_files(facts, stack, engine), *engine.engine_files(facts, stack))
        follows_from = engine.follows_from(facts, stack)
    except EngineConfigError as error:
        problem = Problem(code=_PROBLEM, message=error.message, hint=error.hint)
        return Part(_own(facts, stack, payload, engine), (problem,))
    kept = _keep_edits(facts, stack, files, engine)
    if kept.problem is not None:  # of its file it tells; all the others are shown as ever
        files = tuple(file for file in files if file.path != engine.drop_in_path)
    writes = _with_sources(facts, follows_from, kept.told_in(plan_files(facts, Role.RUNTIME, files)))
    problems = tuple(filter(None, (kept.problem or _config_problem(facts, writes, engine),)))
    items = (
        *_hook(facts, payload),
        *adoption.items,
        *([kept.item] if kept.item else []),
        *writes,
        *plan_selinux(facts),
        *_restart(facts, files, engine),
        *(plan_service(facts, Role.RUNTIME, engine.service) if engine.service else ()),
    )
    kept_files = (*adoption.files, *([kept.file] if kept.file else []))
    warnings = engine.warnings(facts, stack)
    if problems:
        return Part(items, problems, warnings=warnings)
    variables = _variables(facts, items, payload, (*kept_files, *files), engine) if items else None
    return Part(items, (), variables, warnings=warnings, declared=_declared(payload, files, engine))


def _with_sources(facts: NodeFacts, follows_from: Mapping[str, str], writes: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return the writes of which those of files that are there say what they follow from."""
    reasons = {
        path: f"{path} differs from what follows from {source}"
        for path, source in follows_from.items()
        if facts.file(path) is not None
    }
    return tuple(
        msgspec.structs.replace(item, reason=reasons[item.target]) if item.target in reasons else item
        for item in writes
    )


def _own(facts: NodeFacts, stack: StackSpec, payload: Payload, engine: NodeEngine) -> tuple[Item, ...]:
    """Return what is shown beside a problem of the engine: what does not depend on the engine's configuration."""
    files = plan_files(facts, Role.RUNTIME, _own_files(facts, stack, engine))
    return (*_hook(facts, payload), *files, *plan_selinux(facts))


def _declared(payload: Payload, files: tuple[FileContent, ...], engine: NodeEngine) -> Declared:
    units = (engine.service,) if engine.service else ()
    return Declared(
        files=files,
        units=units,
        software=(("hook", payload.hook.digest),),
        marked=((engine.drop_in_path, "end" if engine.is_block else "start"),) if engine.kept_folder else (),
    )


def _keep_edits(facts: NodeFacts, stack: StackSpec, files: tuple[FileContent, ...], engine: NodeEngine) -> Kept:
    """Return what becomes of an edited drop-in; a file that is not grapnel's alone is never overwritten."""
    ours = next((file for file in files if file.path == engine.drop_in_path and engine.kept_folder), None)
    return (
        Kept()
        if ours is None
        else keep_edits(facts, ours, stack.runtime.hand_edits, engine.kept_folder, is_block=engine.is_block)
    )


def _hook(facts: NodeFacts, payload: Payload) -> tuple[Item, ...]:
    """Return what installs the hook, or brings its unit up, which an apply that was killed may have left out."""
    deployment = plan_deployment(facts, Role.RUNTIME, "hook", payload.hook)
    if deployment or HOOK_UNIT not in facts.services:
        return deployment
    return plan_service(facts, Role.RUNTIME, HOOK_UNIT)


def _service_problem(facts: NodeFacts, engine: NodeEngine) -> Problem | None:
    load = facts.service(engine.service).load if engine.service else "loaded"
    if load == "loaded":
        return None
    return Problem(
        code="engine-service",
        message=f"{facts.node.hostname} has {engine.name}, but systemd says that {engine.service} is {load}",
        hint=f"grapnel has to be able to restart the engine: provide the unit {engine.service}",
    )


def _config_problem(facts: NodeFacts, writes: tuple[Item, ...], engine: NodeEngine) -> Problem | None:
    """Return the engine's own complaint, unless it may be about a file that is about to be put right."""
    found = facts.engines[engine.name]
    is_ours = any(item.target == engine.drop_in_path for item in writes)
    if found is None or found.config_error is None or is_ours:
        return None
    return Problem(
        code=_PROBLEM,
        message=f"{engine.name} on {facts.node.hostname} refuses its configuration: {found.config_error}",
        hint=f"fix it, then plan again; to see it: {engine.show_config}",
    )


def _restart(facts: NodeFacts, files: tuple[FileContent, ...], engine: NodeEngine) -> tuple[Item, ...]:
    """Return the engine's restart, or reload, if it runs with another configuration than the one that is to be."""
    if not engine.service or not facts.service(engine.service).is_running:
        return ()
    read_at_start = (file for file in files if file.path not in {HOOK_CONFIG_PATH, MODULE_PATH, *engine.live_files})
    changed = [file.path for file in read_at_start if not is_same(file.path, facts.content(file.path), file.content)]
    if changed:
        reason = f"the engine reads {', '.join(changed)} only when it {'is reloaded' if engine.reloads else 'starts'}"
    elif is_restart_due(facts, engine.service):
        reason = "an earlier apply changed its configuration and was interrupted before the restart"
    else:
        return ()
    disruption = _disruption(facts, engine)
    if disruption is Disruption.DRAIN:
        kill_mode = facts.service(engine.service).kill_mode
        reason = f"{reason}, and its restart ends all containers: KillMode={kill_mode} of {engine.service}"
    return (
        Item(
            role=Role.RUNTIME,
            action=Action.RELOAD if engine.reloads else Action.RESTART,
            target=engine.service,
            reason=reason,
            disruption=disruption,
        ),
    )


def _disruption(facts: NodeFacts, engine: NodeEngine) -> Disruption:
    """Return what it costs to have an engine read its files: where its restart ends containers, they leave first.

    See docs/upgrade/reboot.md#restarts-of-the-container-engine.
    """
    if engine.reloads:
        return Disruption.NONE
    spares = facts.service(engine.service).kill_mode in _SPARING
    return Disruption.RESTART_RUNTIME if spares or not engine.has_shims else Disruption.DRAIN


def _variables(
    facts: NodeFacts, items: tuple[Item, ...], payload: Payload, files: tuple[FileContent, ...], engine: NodeEngine
) -> RuntimeVariables:
    actions = {item.action for item in items}
    has_hook_work = Action.DEPLOY in actions or any(item.target == HOOK_UNIT for item in items)
    written = {item.target for item in items if item.action in {Action.WRITE, Action.KEEP}}
    return RuntimeVariables(
        runtime_engine=engine.name,
        runtime_files=tuple(file for file in files if file.path in written),
        runtime_hook_archive=payload.hook.path if has_hook_work else "",
        runtime_hook_digest=payload.hook.digest,
        runtime_selinux=wanted_digest(facts),
        runtime_service=engine.service,
        runtime_restart=bool({Action.RESTART, Action.RELOAD} & actions),
        runtime_reload=engine.reloads and Action.RESTART not in actions,
    )
