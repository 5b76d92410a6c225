"""Plans the kubelet's part: its settings, in a file of ours or in its own, and the restart that makes it read them.

A restart is done while the node is out of service: what the kubelet keeps of CPUs and memory it gave away is taken
away with it, as it refuses to start with what another policy has left (kubernetes.io, "Control CPU Management Policies
on the Node", "Changing the CPU Manager Policy").
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from provision.declaration.fleet.facts.kubelet import KubeletState
from provision.planning.node_plan import Action, Disruption, FileContent, Item, KubeletVariables, Problem, Role
from provision.planning.planner.drivers.holders import describe_holders
from provision.planning.planner.kubelet_rules import kubelet_problems, kubelet_warnings
from provision.planning.planner.part import Declared, Part, plan_files
from provision.planning.render.errors import EngineConfigError
from provision.planning.render.kubelet import (
    DROP_IN_NAME,
    Settings,
    SettingsFile,
    declared_settings,
    exchange_lines,
    merge_settings,
    read_settings,
    render_drop_in,
    render_line,
)
from provision.planning.render.kubelet_record import (
    KUBELET_RECORD_PATH,
    Exchanged,
    KubeletRecord,
    parse_record,
    render_record,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec

_RUNNING: Final = frozenset({"active", "activating", "reloading"})
_ROOT_DIR: Final = "/var/lib/kubelet"
_KUBELET_ARG: Final = (
    "update it to 1.32 or later, or write kubelet-arg into /etc/rancher/{0}/config.yaml and take node.kubelet out of "
    "the declaration"
)
_OWN_MEANS: Final = {
    "k3s": _KUBELET_ARG.format("k3s"),
    "rke2": _KUBELET_ARG.format("rke2"),
    "k0s": "make a folder, and start the worker with --kubelet-extra-args=--config-dir=/etc/k0s/kubelet.conf.d (from "
    "Kubernetes 1.30 on); or use a worker profile (spec.workerProfiles), and take node.kubelet out of the declaration",
    "microk8s": "make a folder, and add --config-dir=/var/snap/microk8s/common/kubelet.conf.d to "
    "/var/snap/microk8s/current/args/kubelet (from Kubernetes 1.30 on); or write flags there, and take node.kubelet "
    "out of the declaration",
}
_HEALTHZ_PORT: Final = 10248  # KubeletConfiguration v1beta1


@dataclass(frozen=True)
class _Wanted:
    """The kubelet's files as they are to be. ``effective`` is what the kubelet will make of all of them."""

    writes: tuple[FileContent, ...] = ()
    absent: tuple[str, ...] = ()
    record: KubeletRecord | None = None
    effective: Settings | None = None


def plan_kubelet(facts: NodeFacts, stack: StackSpec, *, hugepages_change: bool = False) -> Part[KubeletVariables]:
    """Return what makes the kubelet work as declared; settings that are declared no more are given back.

    ``hugepages_change``: it has to count the node's huge pages again, which it only does when it starts. Beside a
    problem are the changes that would be made without it, as far as they are known.
    """
    settings = declared_settings(stack.node.kubelet)
    record = parse_record(facts.content(KUBELET_RECORD_PATH))
    recount = _recount(facts, stack) if hugepages_change else Part()
    if not settings and facts.file(KUBELET_RECORD_PATH) is None:
        return recount
    unreadable = () if record is not None or facts.file(KUBELET_RECORD_PATH) is None else (_unreadable_record(facts),)
    state = facts.kubelet
    if unreadable and not settings:  # what would be given back is not known
        return Part(recount.items, unreadable)
    if state is None or not (state.config or state.config_dir):
        found = _not_found(facts, stack, state)
        return replace(found, items=recount.items if found.problems else (), problems=(*unreadable, *found.problems))
    try:
        wanted = _wanted(facts, state, settings, record)
    except EngineConfigError as error:
        problem = Problem(code="kubelet-config", message=error.message, hint=error.hint)
        known = _own_drop_in(state, settings)
        items = recount.items if known is None else _part(facts, state, known, hugepages_change=hugepages_change).items
        return Part(items, (*unreadable, problem))
    part = _part(facts, state, wanted, hugepages_change=hugepages_change)
    problems = (*unreadable, *kubelet_problems(facts, state, settings, wanted.effective or {}))
    warnings = kubelet_warnings(facts, state) if settings else ()
    return Part(part.items, problems, warnings=warnings) if problems else replace(part, warnings=warnings)


def _recount(facts: NodeFacts, stack: StackSpec) -> Part[KubeletVariables]:
    """Return the restart of a kubelet whose settings are not declared."""
    unit = stack.node.kubelet.unit
    state = facts.kubelet or KubeletState(unit=unit, active=facts.service(unit).active, root_dir=_ROOT_DIR)
    if state.active not in _RUNNING:
        return Part()
    restart = _restart(facts, state, [], hugepages_change=True)
    return Part(
        restart, (), KubeletVariables(kubelet_unit=state.unit, kubelet_root_dir=state.root_dir, kubelet_restart=True)
    )


def _part(facts: NodeFacts, state: KubeletState, wanted: _Wanted, *, hugepages_change: bool) -> Part[KubeletVariables]:
    record = () if wanted.record is None else (FileContent(KUBELET_RECORD_PATH, render_record(wanted.record)),)
    files = (*record, *wanted.writes)
    writes = plan_files(facts, Role.KUBELET, files)
    removals = tuple(_removal(path) for path in wanted.absent if facts.file(path) is not None)
    forgets = wanted.record is None
    changed = [item.target for item in (*writes, *removals) if item.target != KUBELET_RECORD_PATH]
    restart = _restart(facts, state, changed, hugepages_change=hugepages_change)
    forgotten = (_removal(KUBELET_RECORD_PATH),) if forgets else ()
    items = (*writes, *removals, *restart, *forgotten)
    if not items:
        return Part(declared=Declared(files=files))
    written = {item.target for item in writes}
    variables = KubeletVariables(
        kubelet_unit=state.unit,
        kubelet_config=state.config,
        kubelet_config_dir=state.config_dir,
        kubelet_root_dir=state.root_dir,
        kubelet_health=_health(wanted.effective or {}),
        kubelet_files=tuple(file for file in files if file.path in written),
        kubelet_absent=tuple(item.target for item in removals),
        kubelet_restart=bool(restart),
        kubelet_forget=forgets,
    )
    return Part(items, (), variables, declared=Declared(files=files))


def _wanted(facts: NodeFacts, state: KubeletState, settings: Settings, record: KubeletRecord | None) -> _Wanted:
    """Return the files as they are to be; raises `EngineConfigError` for files that are not understood."""
    drop_in = f"{state.config_dir}/{DROP_IN_NAME}" if state.config_dir else ""
    main = _text(facts, state.config) if state.config else None
    base = None if main is None else _given_back(main, state.config, record)
    others = _others(facts, state)
    if drop_in:
        ours = {drop_in: dict(settings)} if settings else {}
        texts = {} if base is None else {"": read_settings(base, state.config)}
        in_order = [*texts.values(), *(each for _, each in sorted({**others, **ours}.items()))]
        return _Wanted(
            writes=(
                *_own_file(facts, state.config, main, base),
                *((FileContent(drop_in, render_drop_in(settings)),) if settings else ()),
            ),
            absent=() if settings else (drop_in,),
            record=KubeletRecord(unit=state.unit, drop_in=drop_in) if settings else None,
            effective=merge_settings(in_order),
        )
    if main is None or base is None:
        raise EngineConfigError(f"{state.config} does not exist", hint="restart the kubelet, then plan again")
    text, keys = _with_settings(base, state.config, settings)
    return _Wanted(
        writes=_own_file(facts, state.config, main, text),
        record=KubeletRecord(unit=state.unit, file=state.config, keys=keys) if settings else None,
        effective=read_settings(text, state.config),
    )


def _own_drop_in(state: KubeletState, settings: Settings) -> _Wanted | None:
    """Return what does not depend on files of others: our own one, None where our settings are written into theirs."""
    if not state.config_dir:
        return None
    drop_in = f"{state.config_dir}/{DROP_IN_NAME}"
    if not settings:
        return _Wanted(absent=(drop_in,))
    return _Wanted(
        writes=(FileContent(drop_in, render_drop_in(settings)),),
        record=KubeletRecord(unit=state.unit, drop_in=drop_in),
    )


def _with_settings(base: str, path: str, settings: Mapping[str, Any]) -> tuple[str, dict[str, Exchanged]]:
    """Return the kubelet's own file with what is declared, and what is to be remembered of each key."""
    before = SettingsFile(base, path)
    merged = merge_settings([{key: before.settings[key] for key in settings if key in before.settings}, settings])
    lines = {key: render_line(key, merged[key]) for key in settings}
    keys = {key: Exchanged(written=line, former=before.lines_of(key)) for key, line in lines.items()}
    return exchange_lines(base, path, lines), keys


def _given_back(text: str, path: str, record: KubeletRecord | None) -> str:
    """Return the kubelet's own file as it would be without us; what somebody has changed since stays theirs."""
    if record is None or record.file != path:
        return text
    present = SettingsFile(text, path)
    ours = {key: each.former for key, each in record.keys.items() if present.lines_of(key) == each.written}
    return exchange_lines(text, path, ours)


def _own_file(facts: NodeFacts, path: str, before: str | None, after: str | None) -> tuple[FileContent, ...]:
    """Return the kubelet's own file if its text changes; it keeps its mode."""
    state = facts.file(path) if path else None
    if state is None or after is None or before == after:
        return ()
    return (FileContent(path, after, f"0{state.mode[1:]}"),)


def _others(facts: NodeFacts, state: KubeletState) -> dict[str, Settings]:
    """Return what the files of others in the kubelet's folder say, by path."""
    folder = f"{state.config_dir}/"
    paths = [
        path
        for path in facts.files
        if state.config_dir and path.startswith(folder) and path.endswith(".conf") and path != f"{folder}{DROP_IN_NAME}"
    ]
    texts = {path: _text(facts, path) for path in paths}
    return {path: read_settings(text, path) for path, text in texts.items() if text is not None}


def _text(facts: NodeFacts, path: str) -> str | None:
    """Return a file's text, None where it is not there; raises `EngineConfigError` for one that is no text."""
    state = facts.file(path)
    if state is not None and state.content is None:
        raise EngineConfigError(f"{path} is not text, or is too large", hint="check what it is")
    return None if state is None else state.content


def _restart(facts: NodeFacts, state: KubeletState, changed: list[str], *, hugepages_change: bool) -> tuple[Item, ...]:
    """Return what makes the kubelet read its settings; one that does not run reads them when it starts."""
    if state.active not in _RUNNING:
        reason = f"{state.unit} is {state.active}"
        action, disruption = Action.START, Disruption.NONE
    elif changed:
        reason = f"the kubelet reads {', '.join(changed)} only when it starts"
        action, disruption = Action.RESTART, Disruption.DRAIN
    elif hugepages_change:
        reason = "the kubelet counts huge pages only when it starts"
        action, disruption = Action.RESTART, Disruption.DRAIN
    elif state.restart_due:
        reason = "an earlier apply changed the kubelet's settings and was interrupted before the restart"
        action, disruption = Action.RESTART, Disruption.DRAIN
    else:
        return ()
    held = describe_holders(facts) if disruption is Disruption.DRAIN else ""
    return (Item(role=Role.KUBELET, action=action, target=state.unit, reason=reason + held, disruption=disruption),)


def _removal(path: str) -> Item:
    reason = f"{path} is not declared any more"
    return Item(role=Role.KUBELET, action=Action.REMOVE, target=path, reason=reason)


def _health(effective: Mapping[str, Any]) -> str:
    """Return where the kubelet says whether it works; empty where it does not."""
    port = effective.get("healthzPort", _HEALTHZ_PORT)
    address = str(effective.get("healthzBindAddress", "127.0.0.1"))
    address = "127.0.0.1" if address in {"", "0.0.0.0"} else "[::1]" if address == "::" else address  # noqa: S104 - read
    return f"{address}:{port}" if isinstance(port, int) and port > 0 else ""


def _not_found(facts: NodeFacts, stack: StackSpec, state: KubeletState | None) -> Part[KubeletVariables]:
    """Return why a kubelet cannot be told anything: before a node has joined its cluster, it may have none yet."""
    unit, node = stack.node.kubelet.unit, facts.node.hostname
    if state is not None and state.distribution:
        return Part(problems=(_inside_problem(node, state),))
    if state is not None and state.active in _RUNNING and state.program:
        message = f"the kubelet of {node} is started without --config and --config-dir"
        hint = f"give {state.unit} one of them: settings on a command line cannot be changed"
        return Part(problems=(Problem(code="kubelet-without-config", message=message, hint=hint),))
    missing = Problem(
        code="kubelet-not-running",
        message=f"{unit} does not run on {node}, so where its settings belong is not known, and they are not planned",
        hint="start it (a node without a cluster has none), or name its service in node.kubelet.unit; then apply again",
    )
    return Part(warnings=(missing,))


def _inside_problem(node: str, state: KubeletState) -> Problem:
    """Return why the kubelet of a distribution cannot be told anything, and how its own means do it."""
    return Problem(
        code="kubelet-of-distribution",
        message=f"the kubelet of {node} is a part of {state.distribution}, which gives it no folder for settings",
        hint=_OWN_MEANS.get(state.distribution, "use its own means, and take node.kubelet out of the declaration"),
    )


def _unreadable_record(facts: NodeFacts) -> Problem:
    return Problem(
        code="kubelet-record",
        message=f"{KUBELET_RECORD_PATH} on {facts.node.hostname}, which says what grapnel has changed, cannot be read",
        hint="take our settings out of the kubelet's configuration by hand, remove the file, and apply again",
    )
