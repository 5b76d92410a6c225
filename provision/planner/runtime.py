"""The engine's share of a node's plan: its package, the hook, the handler."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from provision.planner.model import (
    Action,
    Disruption,
    FileContent,
    Item,
    Problem,
    Role,
    RuntimeVariables,
)
from provision.planner.part import (
    Part,
    is_restart_due,
    is_running,
    package_manager_problems,
    plan_files,
    plan_release,
    plan_service,
)
from provision.render.base_spec import render_base_spec
from provision.render.containerd import (
    BASE_SPEC_PATH,
    DROP_IN_PATH,
    MAIN_PATH,
    is_same_configuration,
    render_containerd,
)
from provision.render.errors import EngineConfigError
from provision.render.hook_config import HOOK_CONFIG_PATH, HOOK_TIMEOUT_S, render_hook_config
from provision.spec.model import Engine

if TYPE_CHECKING:
    from provision.fleet.facts import NodeFacts
    from provision.payload.model import Payload
    from provision.spec.model import StackSpec

ENGINE = "containerd"
SERVICE = "containerd.service"
_PACKAGES = ("containerd",)
_PROBLEM = "engine-config"


def plan_runtime(facts: NodeFacts, stack: StackSpec, payload: Payload) -> Part[RuntimeVariables]:
    """Return what lets containers of the node get GPUs through the engine."""
    if stack.runtime.engine is not Engine.CONTAINERD:
        return Part(problems=(_unsupported(stack.runtime.engine),))
    if facts.engines.get(ENGINE) is None:
        return _without_engine(facts, stack, payload)
    return _with_engine(facts, stack, payload)


def _unsupported(engine: Engine) -> Problem:
    return Problem(
        code="unsupported-engine",
        message=f"runtime.engine is {engine.value}, which is not supported yet",
        hint=f"engines so far: {ENGINE}",
    )


def _own_files(stack: StackSpec) -> tuple[FileContent, ...]:
    """Return the files that do not depend on the engine's own configuration."""
    return (
        FileContent(HOOK_CONFIG_PATH, render_hook_config(stack)),
        FileContent(BASE_SPEC_PATH, render_base_spec(hook_timeout_s=HOOK_TIMEOUT_S)),
    )


def _without_engine(facts: NodeFacts, stack: StackSpec, payload: Payload) -> Part[RuntimeVariables]:
    """Plan for a node without an engine: nothing runs in it, and its configuration follows in the next pass."""
    problems = _install_problems(facts, stack)
    if problems:
        return Part(problems=problems)
    install = [
        Item(role=Role.RUNTIME, action=Action.INSTALL, target=name, reason="no container engine is present")
        for name in _PACKAGES
    ]
    deferred = [
        Item(
            role=Role.RUNTIME,
            action=Action.WRITE,
            target=path,
            reason="depends on the configuration that the engine's package brings",
            deferred=True,
        )
        for path in (MAIN_PATH, DROP_IN_PATH)
    ]
    now = (
        *install,
        *plan_release(facts, Role.RUNTIME, "hook", payload.hook.digest),
        *plan_files(facts, Role.RUNTIME, _own_files(stack)),
    )
    variables = _variables(now, payload, _own_files(stack), packages=_PACKAGES, restart=False)
    return Part((*now, *deferred), (), variables)


def _install_problems(facts: NodeFacts, stack: StackSpec) -> tuple[Problem, ...]:
    if not stack.runtime.install:
        missing = Problem(
            code="engine-missing",
            message=f"{facts.node.hostname} has no {ENGINE}, and runtime.install is false",
            hint="install the engine, or declare runtime.install: true",
        )
        return (missing,)
    problems = list(package_manager_problems(facts))
    if facts.package_manager.interrupted and not stack.driver.enabled:
        interrupted = Problem(
            code="package-manager-interrupted",
            message=f"dpkg on {facts.node.hostname} was interrupted, so {ENGINE} cannot be installed",
            hint="finish it: dpkg --configure -a",
        )
        problems.append(interrupted)
    problems += [
        Problem(
            code="package-not-available",
            message=f"no package source of {facts.node.hostname} has {name}",
            hint="enable the distribution's main component, or install the engine by other means",
        )
        for name in _PACKAGES
        if not facts.available.get(name)
    ]
    return tuple(problems)


def _with_engine(facts: NodeFacts, stack: StackSpec, payload: Payload) -> Part[RuntimeVariables]:
    if problem := _service_problem(facts):
        return Part(problems=(problem,))
    try:
        files = (*_own_files(stack), *_engine_files(facts, stack))
    except EngineConfigError as error:
        return Part(problems=(Problem(code=_PROBLEM, message=error.message, hint=error.hint),))
    writes = plan_files(facts, Role.RUNTIME, files)
    if problem := _config_problem(facts, writes):
        return Part(problems=(problem,))
    restart = _restart(facts, files)
    items = (
        *plan_release(facts, Role.RUNTIME, "hook", payload.hook.digest),
        *writes,
        *restart,
        *plan_service(facts, Role.RUNTIME, SERVICE),
    )
    return Part(items, (), _variables(items, payload, files, packages=(), restart=bool(restart)) if items else None)


def _engine_files(facts: NodeFacts, stack: StackSpec) -> tuple[FileContent, ...]:
    """Return the engine's files as they should be; raises `EngineConfigError`."""
    main = facts.file(MAIN_PATH)
    if main is not None and main.content is None:
        raise EngineConfigError(f"{MAIN_PATH} is not text of a reasonable size", hint="see what it is")
    drop_ins = {
        path: state.content
        for path, state in facts.files.items()
        if path.endswith(".toml") and path != MAIN_PATH and state is not None and state.content is not None
    }
    engine = facts.engines[ENGINE]
    rendered = render_containerd(
        main=None if main is None else main.content,
        drop_ins=drop_ins,
        handler=stack.runtime.handler,
        engine_version=engine.version if engine is not None else "",
    )
    mode = "0644" if main is None else main.mode
    return (FileContent(MAIN_PATH, rendered.main, mode), FileContent(DROP_IN_PATH, rendered.drop_in))


def _service_problem(facts: NodeFacts) -> Problem | None:
    load = facts.service(SERVICE).load
    if load == "loaded":
        return None
    return Problem(
        code="engine-service",
        message=f"{facts.node.hostname} has {ENGINE}, but systemd says that {SERVICE} is {load}",
        hint=f"grapnel has to be able to restart the engine: provide the unit {SERVICE}",
    )


def _config_problem(facts: NodeFacts, writes: tuple[Item, ...]) -> Problem | None:
    """Return the engine's own complaint, unless it may be about a file that is about to be put right."""
    engine = facts.engines[ENGINE]
    if engine is None or engine.config_error is None or any(item.target == DROP_IN_PATH for item in writes):
        return None
    return Problem(
        code=_PROBLEM,
        message=f"{ENGINE} on {facts.node.hostname} refuses its configuration: {engine.config_error}",
        hint=f"put it right, then plan again; to see it: {ENGINE} config dump",
    )


def _restart(facts: NodeFacts, files: tuple[FileContent, ...]) -> tuple[Item, ...]:
    """Return the engine's restart if it runs with another configuration than the one that is to be."""
    if not is_running(facts, SERVICE):
        return ()
    changed = [file.path for file in files if not _is_same(file, facts.content(file.path))]
    if changed:
        reason = f"the engine reads {', '.join(changed)} only when it starts"
    elif is_restart_due(facts, SERVICE):
        reason = "an earlier apply changed its configuration and was stopped before the restart"
    else:
        return ()
    return (
        Item(
            role=Role.RUNTIME,
            action=Action.RESTART,
            target=SERVICE,
            reason=reason,
            disruption=Disruption.RESTART_RUNTIME,
        ),
    )


def _is_same(file: FileContent, before: str | None) -> bool:
    """Tell whether a file means the same to the engine as before; the hook's own file means nothing to it."""
    if file.path == HOOK_CONFIG_PATH:
        return True
    if file.path == BASE_SPEC_PATH:
        return _is_same_json(before, file.content)
    return is_same_configuration(before, file.content)


def _is_same_json(before: str | None, after: str) -> bool:
    try:
        return before is not None and json.loads(before) == json.loads(after)
    except ValueError:
        return False


def _variables(
    items: tuple[Item, ...],
    payload: Payload,
    files: tuple[FileContent, ...],
    *,
    packages: tuple[str, ...],
    restart: bool,
) -> RuntimeVariables:
    written = {item.target for item in items if item.action is Action.WRITE}
    is_new = any(item.action is Action.RELEASE for item in items)
    return RuntimeVariables(
        runtime_engine=ENGINE,
        runtime_packages=packages,
        runtime_files=tuple(file for file in files if file.path in written),
        runtime_hook_archive=payload.hook.path if is_new else "",
        runtime_hook_digest=payload.hook.digest,
        runtime_service=SERVICE,
        runtime_restart=restart,
    )
