"""Runs the hook on one container: gathers the facts, decides, applies. What is decided is ``decision``'s alone.

A container without any claim leaves here without having imported ctypes, sockets or the inventory.
"""

from __future__ import annotations

import os

from runtime_hook.base.deadline import DEFAULT_TIMEOUT_S, Deadline
from runtime_hook.decision import Refused, decide
from runtime_hook.inputs.bundle import read_container, read_limit_calls, read_state
from runtime_hook.inputs.config import CONFIG_PATH, HookConfig, load_config, with_changes
from runtime_hook.request.claim import Nothing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from runtime_hook.container.root import ContainerRoot
    from runtime_hook.decision import Granted
    from runtime_hook.host.inventory import Inventory
    from runtime_hook.inputs.bundle import ContainerConfig, OciState
    from runtime_hook.loader.layout import Layout


def prestart(config_path: str = CONFIG_PATH, driver_root: str = "/", stdin: int = 0, *, entitlement: str = "") -> None:
    """Run the hook once; HookError refuses the container. ``entitlement``: who added it, "" for the node's own."""
    deadline = Deadline()
    deadline.start(DEFAULT_TIMEOUT_S)
    os.chdir("/")
    os.umask(0o022)
    try:
        _gather(config_path, driver_root, stdin, deadline, entitlement).finish()
    finally:
        deadline.stop()


def _gather(config_path: str, driver_root: str, stdin: int, deadline: Deadline, entitlement: str) -> Run:
    """Read what is decided on. A refusal here is logged like any other: crun shows nobody what a hook says."""
    log, name = HookConfig().log, ""
    try:
        config = load_config(config_path)
        log = config.log
        if config.timeout_s != DEFAULT_TIMEOUT_S:
            deadline.start(config.timeout_s)
        state = read_state(stdin)
        name = state.id
        container = read_container(state, _engine_user(config))
        if config.rules and container.has_user_namespace:
            container = _with_kernels_user(container, state)
    except Exception as refusal:
        deadline.stop()
        from runtime_hook.audit import describe_refusal, report

        report(log, "refused", {"container": name, "reason": describe_refusal(refusal)})
        raise
    return Run(state, container, _with_options(config, driver_root, entitlement), deadline)


def _with_options(config: HookConfig, driver_root: str, entitlement: str) -> HookConfig:
    if driver_root != config.driver_root:
        config = with_changes(config, driver_root=os.path.abspath(driver_root))
    return with_changes(config, entitlement=entitlement) if entitlement else config


def _with_kernels_user(container: ContainerConfig, state: OciState) -> ContainerConfig:
    from runtime_hook.inputs.origin import host_user

    return type(container)(**{**vars(container), "user": host_user(state.pid, container.own_user)})


def _engine_user(config: HookConfig) -> int | None:
    if not config.rules:
        return None
    from runtime_hook.inputs.origin import rootless_owner

    return rootless_owner()


def limit(memory: str, config_path: str, stdin: int = 0) -> None:
    """Have a container's memory limited as a claim has it, which the CDI file says; HookError refuses the container."""
    os.chdir("/")
    config = load_config(config_path)
    state = read_state(stdin)
    from runtime_hook.audit import describe_refusal, report
    from runtime_hook.container.memorylimit import TIMEOUT_S, limit_memory, socket_beside, sum_of_parts

    fields = {"container": state.id, "source": "claim", "memory": memory}
    try:
        timeout_s = min(TIMEOUT_S, config.timeout_s / 2)
        fields["memory"] = memory = sum_of_parts(memory, read_limit_calls(state))
        notes = limit_memory(socket_beside(config.inventory_path), state, memory, timeout_s)
    except Exception as refusal:
        report(config.log, "refused", {**fields, "reason": describe_refusal(refusal)})
        raise
    report(config.log, "limited", {**fields, "notes": "; ".join(notes)})


class Run:
    """One run of the hook: its container, and the facts about host and root that are gathered where they count."""

    def __init__(self, state: OciState, container: ContainerConfig, config: HookConfig, deadline: Deadline) -> None:
        self._state = state
        self._container = container
        self._config = config
        self._deadline = deadline
        self._root: ContainerRoot | None = None

    def finish(self) -> None:
        """Decide and do it; what refuses the container is logged, then raised."""
        decision = decide(self._container, self._config, self._read_inventory, self._find_layout)
        if isinstance(decision, Nothing):
            if decision.is_traced:
                self._report("nothing", {"reason": decision.reason})
        elif isinstance(decision, Refused):
            self._refuse(decision.error, decision.source)
        else:
            self._apply(decision)

    def _read_inventory(self) -> Inventory:
        from runtime_hook.host.hosttree import HostTree
        from runtime_hook.host.store import current_inventory

        return current_inventory(self._config.inventory_path, HostTree(self._config.driver_root), write=True)

    def _find_layout(self, inventory: Inventory | None) -> Layout:
        return self._open_root().find_layout(inventory)

    def _open_root(self) -> ContainerRoot:
        if self._root is None:
            from runtime_hook.container.root import ContainerRoot

            pid, rootfs, driver_root = self._state.pid, self._container.rootfs, self._config.driver_root
            self._root = ContainerRoot(pid, rootfs, self._deadline, driver_root, self._container.mount_label)
        return self._root

    def _apply(self, granted: Granted) -> None:
        try:
            limit_notes = self._limit_memory(granted)  # before anything that would have to be undone
            outcome = self._open_root().apply(granted.plan)
        except Exception as failure:  # noqa: BLE001 - raised again once it is logged
            self._refuse(failure, granted.grant.source)
        from runtime_hook.audit import grant_fields

        done = {"driver": granted.inventory.driver_version, "operations": str(outcome.applied)}
        notes = (*granted.notes, *limit_notes, *outcome.notes)
        self._report("granted", {**grant_fields(granted.grant, notes), **done})

    def _limit_memory(self, granted: Granted) -> tuple[str, ...]:
        if not granted.grant.memory:
            return ()
        from runtime_hook.container.memorylimit import TIMEOUT_S, limit_memory, socket_beside

        timeout_s = min(TIMEOUT_S, self._config.timeout_s / 2)
        return limit_memory(socket_beside(self._config.inventory_path), self._state, granted.grant.memory, timeout_s)

    def _refuse(self, error: Exception, source: str) -> NoReturn:
        self._deadline.stop()  # the limit is for the work, not for the log
        from runtime_hook.audit import refusal_fields

        self._report("refused", refusal_fields(source, error))
        raise error

    def _report(self, decision: str, fields: dict[str, str]) -> None:
        from runtime_hook.audit import report

        report(self._config.log, decision, {"container": self._state.id, **fields}, self._container)
