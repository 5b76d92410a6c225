"""The prestart hook: from the state on stdin to a container that has its GPU files, or is refused.

A container without any claim leaves here without having imported ctypes, sockets or the inventory.
"""

from __future__ import annotations

import os

from runtime_hook.bundle import read_container, read_state
from runtime_hook.config import CONFIG_PATH, HookConfig, entitled_by_cdi, load_config
from runtime_hook.deadline import DEFAULT_TIMEOUT_S, Deadline
from runtime_hook.entitlement import Claim, NoClaim, find_claim
from runtime_hook.errors import InventoryError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.bundle import ContainerConfig, State
    from runtime_hook.container.injection import Namespaces, Outcome
    from runtime_hook.host.hosttree import HostTree
    from runtime_hook.host.inventory import Inventory
    from runtime_hook.plan.layout import Layout
    from runtime_hook.request.allotment import Allotment


def prestart(config_path: str = CONFIG_PATH, driver_root: str = "/", stdin: int = 0, *, is_cdi: bool = False) -> None:
    """Run the hook once; HookError refuses the container. ``is_cdi``: a CDI file of ours added the hook."""
    deadline = Deadline()
    deadline.start(DEFAULT_TIMEOUT_S)
    os.chdir("/")
    os.umask(0o022)
    try:
        _decide(_gather(config_path, driver_root, stdin, deadline, is_cdi=is_cdi))
    finally:
        deadline.stop()


def _gather(config_path: str, driver_root: str, stdin: int, deadline: Deadline, *, is_cdi: bool) -> Run:
    """Read what is decided on. A refusal here is logged like any other: crun shows nobody what a hook says."""
    log, name = HookConfig().log, ""
    try:
        config = load_config(config_path)
        log = config.log
        if config.timeout_s != DEFAULT_TIMEOUT_S:
            deadline.start(config.timeout_s)
        state = read_state(stdin)
        name = state.id
        container = read_container(state)
    except Exception as refusal:
        deadline.stop()
        from runtime_hook.audit import describe_refusal, report  # noqa: PLC0415 - start-up budget: only where a line is due

        report(log, "refused", {"container": name, "reason": describe_refusal(refusal)})
        raise
    return Run(state, container, entitled_by_cdi(config) if is_cdi else config, driver_root, deadline)


class Run:
    """One run of the hook: what it was told, and its time limit."""

    def __init__(
        self,
        state: State,
        container: ContainerConfig,
        config: HookConfig,
        driver_root: str,
        deadline: Deadline,
    ) -> None:
        self.state = state
        self.container = container
        self.config = config
        self.driver_root = driver_root
        self.deadline = deadline

    def report(self, decision: str, fields: dict[str, str]) -> None:
        """Log a decision on this container."""
        from runtime_hook.audit import report  # noqa: PLC0415 - start-up budget: only where a line is due

        report(self.config.log, decision, {"container": self.state.id, **fields}, self.container)


def _decide(run: Run) -> None:
    claim = find_claim(run.container, run.config)
    if run.config.rules and (not isinstance(claim, NoClaim) or claim.is_traced):
        from runtime_hook.policy import settle_here  # noqa: PLC0415 - start-up budget: only for rules

        run.config = settle_here(run.config, run.container)
        claim = find_claim(run.container, run.config)
    if isinstance(claim, NoClaim):
        _pass_by(run, claim)
        return
    try:
        _grant(run, claim)
    except Exception as refusal:
        run.deadline.stop()
        from runtime_hook.audit import refusal_fields  # noqa: PLC0415 - start-up budget: only where a line is due

        run.report("refused", refusal_fields(claim, refusal))
        raise


def _pass_by(run: Run, claim: NoClaim) -> None:
    if claim.is_traced:
        run.report("nothing", {"reason": claim.reason})


def _grant(run: Run, claim: Claim) -> None:
    from runtime_hook.host.hosttree import HostTree  # noqa: PLC0415 - start-up budget: only for a claim
    from runtime_hook.host.store import check_nodes, check_versions, current_inventory  # noqa: PLC0415 - start-up budget
    from runtime_hook.request.allotment import allot, check_image  # noqa: PLC0415 - start-up budget: only for a claim

    tree = HostTree(run.driver_root)
    try:
        inventory = current_inventory(run.config.inventory_path, tree, write=True)
    except InventoryError:
        if claim.is_certain:
            raise
        return  # a container with some other device, on a node without a driver
    allotment = allot(claim, run.container, run.config, inventory)
    if isinstance(allotment, NoClaim):
        _pass_by(run, allotment)
        return
    check_versions(inventory)
    check_nodes(inventory, run.container.devices)
    notes = check_image(allotment, run.container.environment, run.config, inventory)
    outcome = _inject(run, allotment, inventory, tree)
    from runtime_hook.audit import grant_fields  # noqa: PLC0415 - start-up budget: only where a line is due

    done = {"driver": inventory.driver_version, "operations": str(outcome.applied)}
    run.report("granted", {**grant_fields(allotment, (*notes, *outcome.notes)), **done})


def _inject(run: Run, allotment: Allotment, inventory: Inventory, tree: HostTree) -> Outcome:
    from runtime_hook.container.injection import carry_out, has_path  # noqa: PLC0415 - start-up budget
    from runtime_hook.container.kernel import KernelSyscalls  # noqa: PLC0415 - start-up budget: ctypes after the decision
    from runtime_hook.container.libc import kill_after  # noqa: PLC0415 - start-up budget: ctypes after the decision
    from runtime_hook.host.platforms import this_platform  # noqa: PLC0415 - start-up budget
    from runtime_hook.plan.layout import COMPAT_FOLDER, choose_layout, wants_compat  # noqa: PLC0415 - start-up budget
    from runtime_hook.plan.planner import Planner  # noqa: PLC0415 - start-up budget

    platform = this_platform()
    kill_after(run.deadline.last_s())
    syscalls = KernelSyscalls(run.state.pid, run.container.rootfs)
    run.deadline.hold()  # an expiry on the way back would leave us there
    try:
        syscalls.enter()
        layout = choose_layout(platform, lambda path: has_path(syscalls, path))
        has_compat = wants_compat(allotment, run.config) and has_path(syscalls, COMPAT_FOLDER)
    finally:
        syscalls.leave()
        run.deadline.release()
    if has_compat:
        layout = _add_compat(run, layout, syscalls, inventory)
    os.umask(0)  # only now: whatever is written on the host is nobody else's to change
    planner = Planner(inventory, platform, tree.host_path)
    plan = planner.plan(allotment, layout, run.container.device_rules, run.container.devices)
    return carry_out(plan, syscalls, run.deadline)


def _add_compat(run: Run, layout: Layout, syscalls: Namespaces, inventory: Inventory) -> Layout:
    from runtime_hook.container.compatfolder import ContainerFolder, examine_container  # noqa: PLC0415 - few images
    from runtime_hook.host.platforms import this_platform  # noqa: PLC0415 - start-up budget
    from runtime_hook.loadercache.compat import HostDriver  # noqa: PLC0415 - start-up budget: few images
    from runtime_hook.plan.layout import COMPAT_FOLDER, with_compat  # noqa: PLC0415 - start-up budget

    host = HostDriver(inventory.driver_version, inventory.cuda_version)
    folder = ContainerFolder(syscalls, run.deadline, COMPAT_FOLDER)
    return with_compat(layout, examine_container(folder, host, this_platform()))
