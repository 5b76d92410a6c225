"""Changes how this node's GPUs are cut, while no process uses those that change.

In this order, so that a kill at any point leaves what the same call goes on with: what was before is written down, the
GPUs are held back, daemon and kubelet say who has what, the free ones are changed, and all are offered again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plugin.admin.client import ask
from plugin.base.errors import AdminError, KubeletError, MigError, NodeDaemonError
from plugin.changes.driver_change.release.record import utc
from plugin.changes.mig_layout.carry_out import carry_out
from plugin.changes.mig_layout.change.store import CHANGE_FILE, OpenMigChange, forget, read_change, write_change
from plugin.changes.mig_layout.holders import Users, names_of, with_users
from plugin.changes.mig_layout.nodes import make_nodes
from plugin.cli.holders import list_now, named_now, problems_of
from plugin.devices.sharing import device_of
from plugin.driver.capabilities import read_mig_minors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plugin.changes.mig_layout.model import GpuLayout, GpuPlan, Step
    from plugin.cli.mig.show import Session
    from plugin.driver.mig_instances import CuttableGpu
    from plugin.settings.node_config import NodeConfig

    Planner = Callable[[Sequence[GpuLayout]], tuple[GpuPlan, ...]]

_KUBELET_S = 5.0
_SLACK_S = 15.0  # the daemon ends its waiting before we end ours
_ROUNDS = 3  # the mode, the instances, and nothing any more


@dataclass
class MigResult:
    """What was done; by UUID, why a GPU is not as wanted; which of those failed; what was noticed."""

    done: list[Step] = field(default_factory=list)
    waiting: dict[str, str] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    plans: tuple[GpuPlan, ...] = ()
    notes: list[str] = field(default_factory=list)


class NodeChange:
    """One change, by whoever has the lock of the state folder. `plan` says what leads GPUs to what is wanted."""

    def __init__(self, config: NodeConfig, session: Session, plan: Planner, *, timeout_s: float) -> None:
        self._config = config
        self._session = session
        self._plan = plan
        self._timeout_s = timeout_s
        self._outcome = MigResult()

    def run(self, remember: Callable[[Sequence[GpuLayout]], None]) -> MigResult:
        """Change what can be changed now. `remember` is called with the GPUs as they are before anything happens.

        Raises MigError where what is wanted is wrong for this node, and nothing is changed then.
        """
        outcome, found = self._outcome, self._session.read()
        gpus = with_users(found, names_of(named_now(self._config.sys_root, self._config.proc_root), {}))
        plans = outcome.plans = self._plan(gpus)
        wrong = next((plan for plan in plans if plan.is_wrong), None)
        if wrong is not None:
            raise MigError(f"gpu {wrong.index}: {wrong.refusal}", f"nothing was changed; {wrong.hint}")
        left = read_change(self._config.state_folder)
        meant = frozenset(plan.uuid for plan in plans if plan.steps)
        if meant:
            remember(gpus)
        if meant or left is not None:
            closes = any(step.changes_mode for plan in plans for step in plan.steps)
            meant |= frozenset() if left is None else left.uuids
            self._change(OpenMigChange(utc(time.time()), meant, closes=closes), left)
        else:
            self._make_nodes(found)  # those of instances that another program has made, as after a reboot
        for plan in outcome.plans:
            if plan.refusal or plan.steps:
                outcome.waiting.setdefault(plan.uuid, plan.refusal or "some of its steps are left")
        return outcome

    def _change(self, change: OpenMigChange, left: OpenMigChange | None) -> None:
        folder = self._config.state_folder
        write_change(folder, change)
        try:
            users = self._users()
        except NodeDaemonError:  # nothing was changed so far
            self._offer_again(left)
            raise
        for _ in range(_ROUNDS):
            if not self._one_round(users, change.uuids):
                break
        gpus = self._session.read()
        self._make_nodes(gpus)
        self._outcome.plans = self._plan(with_users(gpus, users))
        half_done = self._outcome.failed & {step.uuid for step in self._outcome.done}
        self._offer_again(OpenMigChange(change.since, frozenset(half_done), closes=False) if half_done else None)

    def _make_nodes(self, gpus: Sequence[CuttableGpu]) -> None:
        minors = read_mig_minors(self._config.proc_root)
        self._outcome.notes += make_nodes(gpus, minors, self._config.dev_root, self._config.proc_root)

    def _one_round(self, users: Users, uuids: frozenset[str]) -> bool:
        """Do what the GPUs lack; returns whether anything was done."""
        gpus, outcome = self._session.read(), self._outcome
        profiles = {gpu.uuid: gpu.profiles for gpu in gpus}
        count = len(outcome.done)
        for plan in self._plan(with_users(gpus, users)):
            if plan.uuid not in uuids or plan.uuid in outcome.waiting or plan.refusal:
                continue
            try:
                waits = carry_out(plan.steps, profiles.get(plan.uuid, ()), self._session.cutter, outcome.done.append)
            except MigError as error:
                waits = f"{error.message}; {error.hint}" if error.hint else error.message
                outcome.failed.add(plan.uuid)
            if waits:
                outcome.waiting[plan.uuid] = waits
        if any(step.changes_mode for step in outcome.done[count:]):
            self._session.reopen()
        return len(outcome.done) > count

    # Who has what

    def _users(self) -> Users:
        """Ask once no pod is given the GPUs any more; raises MigError, AdminError where that cannot be known."""
        request = {"verb": "mig", "timeout_s": self._timeout_s}
        answer = ask(self._config.admin_socket, request, self._timeout_s + _SLACK_S)
        if answer is not None and answer.get("problems"):
            hint = "nothing was changed: who has the gpus is not known"
            raise MigError(str(answer["problems"][0]), hint)
        held = self._held_by_kubelet() if answer is None else dict(answer.get("pods", {}))
        pods: dict[str, list[str]] = {}
        for device_id, holders in held.items():
            pods.setdefault(device_of(str(device_id)), []).extend(map(str, holders))
        listing = list_now(self._config.sys_root, self._config.proc_root)
        self._outcome.notes += problems_of(listing)
        minors = read_mig_minors(self._config.proc_root)
        return Users(pods, listing.holders, minors, int((answer or {}).get("pid", 0)))

    def _held_by_kubelet(self) -> dict[str, list[str]]:
        """Ask the kubelet itself while no daemon runs; one that does not answer has no pods started, either."""
        import asyncio

        from plugin.kubelet.pod_resources.client import FOLDER, list_assignments

        if not (self._config.kubelet_root / FOLDER).exists():
            return {}  # this machine has no kubelet, or has not had one yet
        try:
            found = asyncio.run(list_assignments(self._config.kubelet_root, _KUBELET_S))
        except KubeletError as error:
            self._outcome.notes.append(f"only processes count as users: {error.message}")
            return {}
        return {
            device_id: [f"{each.holder.namespace}/{each.holder.pod} as {each.resource}"]
            for each in found
            for device_id in each.device_ids
        }

    # Afterwards

    def _offer_again(self, left: OpenMigChange | None) -> None:
        """Hold back nothing any more but what is left in the middle, and have the daemon see what there is now."""
        folder = self._config.state_folder
        if left is None:
            forget(folder, CHANGE_FILE)
        else:
            write_change(folder, left)
        for verb in ("look", "health"):  # follow the file; then look at the GPUs once more
            try:
                request = {"verb": verb, "timeout_s": self._timeout_s}
                answer = ask(self._config.admin_socket, request, self._timeout_s + _SLACK_S)
            except AdminError as error:
                self._outcome.notes.append(f"the daemon follows when it can: {error.message}")
                return
            if answer is not None and verb == "health":
                self._outcome.notes += map(str, answer.get("problems", []))
