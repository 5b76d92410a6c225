"""Reads node state without changing any: from Nodes and the lease of a cluster, or from the state file.

What a node says of itself, in its record or its readiness, is shown for that node alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from provision.base.regular_file import read_regular
from provision.cluster.errors import ForbiddenError, RecordError, RefusedError, StateFileError
from provision.cluster.kubernetes.lease import PROGRESS, pause_of, read_lease, runs_until
from provision.cluster.kubernetes.nodes.elsewhere import Pools
from provision.cluster.kubernetes.nodes.marks import UPGRADE
from provision.cluster.kubernetes.nodes.names import match_nodes
from provision.cluster.kubernetes.nodes.node_view import view_of
from provision.cluster.kubernetes.nodes.reported import has_gpus, reported_of
from provision.cluster.kubernetes.objects.nodes import Node
from provision.cluster.kubernetes.permissions import LEADER_NAME
from provision.cluster.kubernetes.watch.informer import NODES
from provision.cluster.local.cluster import LocalCluster
from provision.cluster.local.state_file import lock_path, progress_path
from provision.cluster.progress import MAX_BYTES, decode_progress
from provision.declaration.spec.model import Tool
from provision.rollout.errors import ClusterError
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.interface.standing import Members
from provision.rollout.model import NodeView
from provision.rollout.status.model import Seen, Tenant
from provision.rollout.status.reported import may_publish

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from pathlib import Path

    from provision.cluster.kubernetes.api.client import Api
    from provision.cluster.kubernetes.objects.core import Lease
    from provision.cluster.kubernetes.usage import Usage
    from provision.cluster.machine import Machine
    from provision.declaration.spec.model import Driver, Plugin
    from provision.rollout.interface.cluster import Cluster
    from provision.rollout.interface.standing import Standing
    from provision.rollout.status.model import StackSeen
    from provision.rollout.status.reported import Reported

    Labels = Mapping[str, Mapping[str, str]]

_BROUGHT_ABOUT: Final = ("AsDeclared", "Degraded")
LIST_S: Final = 10.0  # between two lists of all Nodes, where changes may not be watched


class KubernetesReader:
    """Reads a cluster: it lists Nodes and gets two leases, and needs no other permission.

    With ``usage``, pods are asked for as well, those of ``pods_of`` alone where that is given; where that is not
    allowed, it says so.

    ``nodes`` are names of the inventory, found as an apply finds them (``machines``); None: every Node that has a
    record or GPUs, that a stack selects or that the engine speaks of, by its own name. ``stacks`` reads the GpuStacks,
    where they are to be shown, by the labels of Nodes, and says why they cannot be read. ``daemons`` are what
    is declared of nodes otherwise.
    """

    def __init__(
        self,
        api: Api,
        nodes: Collection[str] | None,
        machines: Mapping[str, Machine],
        sleep: Callable[[float], None] = time.sleep,
        *,
        stacks: Callable[[Api, Labels], tuple[tuple[StackSeen, ...], str]] | None = None,
        daemons: Mapping[str, Plugin] | None = None,
        usage: Usage | None = None,
        pods_of: str | None = None,
    ) -> None:
        self._api = api
        self._stacks = stacks
        self._daemons = daemons or {}
        self._nodes = nodes
        self._usage = usage
        self._pods_of = pods_of
        self._machines = machines
        self._sleep = sleep
        self._pools = Pools(api, [Tool.MACHINE_CONFIG_OPERATOR])
        self._known: dict[str, Node] = {}
        self._version = ""
        self._unwatched = ""

    def look(self) -> Seen:
        """Return what is true now. Raises ClusterError where Nodes cannot be listed."""
        lease = self._lease()
        nodes, self._version = self._api.list_moment(NODES, Node)
        self._known = {node.metadata.name: node for node in nodes}
        return self._seen(*lease)

    @property
    def known(self) -> Mapping[str, Node]:
        """The Nodes that were seen last, all of them, by their own names."""
        return self._known

    def look_at_lease(self) -> Seen:
        """Return who is at work and what that engine says, by the names of Nodes; and who leads."""
        lease, complaint = self._lease()
        controller, unled = (None, "") if complaint else self._leader()  # it would be the same complaint
        standing, unread = (None, "") if lease is None else standing_of(lease)
        return Seen(
            place=self._api.name,
            time=self._api.now(),
            nodes={},
            tenant=None if lease is None else self._tenant(lease),
            standing=standing,
            pause=None if lease is None else pause_of(lease.metadata.annotations),
            complaints=tuple(each for each in (complaint, unread, unled) if each),
            is_lease_known=not complaint,
            is_leader_known=not complaint and not unled,
            controller=controller,
        )

    def follow(self, timeout_s: float) -> Seen:
        """Return what is true after ``timeout_s``; only changes are sent. It is later where they may not be watched."""
        if self._unwatched or not self._version:
            self._sleep(max(timeout_s, LIST_S))
            return self.look()
        try:
            changed = self._api.changes(NODES, Node, self._version, max(1, round(timeout_s)))
        except ForbiddenError as error:
            self._unwatched = f"looks every {LIST_S:g} s, for want of a permission: {error.message} ({error.hint})"
            return self.look()
        if changed is None:
            return self.look()
        for kind, node in changed[0]:
            self._known.pop(node.metadata.name, None)
            if kind != "DELETED":
                self._known[node.metadata.name] = node
        self._version = changed[1]
        return self._seen(*self._lease())

    def _seen(self, lease: Lease | None, complaint: str) -> Seen:
        standing, unread = (None, "") if lease is None else standing_of(lease)
        labels = {name: node.metadata.labels for name, node in self._known.items()}
        stacks, untold = ((), "") if self._stacks is None else self._stacks(self._api, labels)
        controller, unled = (None, "") if complaint else self._leader()  # it would be the same complaint
        found = self._found(standing, {name for stack in stacks for name in stack.owned})
        names = {each.metadata.name: name for name, each in found.items() if not isinstance(each, NodeProblem)}
        views, daemons = self._views(found), _daemons_by(stacks, names)
        return Seen(
            place=self._api.name,
            time=self._api.now(),
            nodes=views,
            tenant=None if lease is None else self._tenant(lease),
            standing=None if standing is None else _renamed(standing, names),
            pause=None if lease is None else pause_of(lease.metadata.annotations),
            complaints=tuple(each for each in (complaint, unread, unled, untold, self._unwatched) if each),
            stacks=stacks,
            is_lease_known=not complaint,
            declared=_declared_by(stacks, names),
            daemons=daemons,
            reported=self._reported(found, views, {**self._daemons, **daemons}),
            is_leader_known=not complaint and not unled,
            controller=controller,
        )

    def _views(self, found: Mapping[str, Node | NodeProblem]) -> dict[str, NodeView | NodeProblem]:
        views = {
            name: each if isinstance(each, NodeProblem) else view_of(name, each, self._api.name)
            for name, each in found.items()
        }
        if remarks := self._pools.remarks(views.values()):
            for name, view in views.items():
                if isinstance(view, NodeView) and view.pool in remarks:
                    views[name] = replace(view, remarks=(*view.remarks, remarks[view.pool]))
        return views

    def _reported(
        self,
        found: Mapping[str, Node | NodeProblem],
        views: Mapping[str, NodeView | NodeProblem],
        daemons: Mapping[str, Plugin],
    ) -> dict[str, Reported]:
        now, told = self._api.now(), {}
        for name, node in found.items():
            view = views[name]
            if not isinstance(node, NodeProblem):
                told[name] = reported_of(node, None if isinstance(view, NodeProblem) else view.record, now)
        return told if self._usage is None else self._with_users(told, found, daemons, self._usage)

    def _with_users(
        self,
        told: Mapping[str, Reported],
        found: Mapping[str, Node | NodeProblem],
        daemons: Mapping[str, Plugin],
        usage: Usage,
    ) -> dict[str, Reported]:
        wanted = {
            name: node.metadata.name
            for name, node in found.items()
            if not isinstance(node, NodeProblem) and self._pods_of in {None, name}
        }
        publishing = {name: node for name, node in wanted.items() if may_publish(told[name], daemons.get(name))}
        used = usage.of(wanted.values(), publishing.values())
        if used.unasked:
            return {**told, **{name: replace(told[name], unasked=used.unasked) for name in wanted}}
        more = {
            name: replace(
                told[name],
                users=used.users.get(node, ()),
                published=None if used.published is None else used.published.get(node, {}),
                unpublished=used.unpublished if name in publishing else "",
            )
            for name, node in wanted.items()
        }
        return {**told, **more}

    def _found(self, standing: Standing | None, owned: Collection[str]) -> dict[str, Node | NodeProblem]:
        nodes = [self._known[name] for name in sorted(self._known)]
        if self._nodes is not None:
            return match_nodes(self._nodes, self._machines, nodes, self._api.name)
        spoken_of = set(owned) if standing is None else {*standing.waiting, *standing.out, *owned}
        return {
            node.metadata.name: node
            for node in nodes
            if UPGRADE in node.metadata.annotations or node.metadata.name in spoken_of or has_gpus(node)
        }

    def _lease(self) -> tuple[Lease | None, str]:
        """Return the lease, and why it cannot be read."""
        try:
            return read_lease(self._api), ""
        except (ForbiddenError, RefusedError) as error:
            hint = f" ({error.hint})" if error.hint else ""
            return None, f"who is at work and why nodes wait is not known: {error.message}{hint}"

    def _leader(self) -> tuple[Tenant | None, str]:
        """Return who leads the controller's replicas, and why that cannot be read."""
        try:
            lease = read_lease(self._api, LEADER_NAME)
        except (ForbiddenError, RefusedError) as error:
            hint = f" ({error.hint})" if error.hint else ""
            return None, f"whether a controller leads is not known: {error.message}{hint}"
        return None if lease is None else self._tenant(lease), ""

    def _tenant(self, lease: Lease) -> Tenant | None:
        spec, until = lease.spec, runs_until(lease.spec)
        if not spec.holder_identity:
            return None
        return Tenant(
            holder=spec.holder_identity,
            since=spec.acquire_time,
            heard=spec.renew_time,
            is_at_work=until is not None and self._api.now() <= until,
        )


class StateFileReader:
    """Reads the state file of an inventory, and what lies beside it.

    ``scheduled`` has the nodes that another scheduler than Kubernetes gives their work; without it, that is not asked.
    """

    def __init__(
        self,
        state_file: Path,
        nodes: Collection[str],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], None] = time.sleep,
        *,
        scheduled: Cluster | None = None,
    ) -> None:
        self._cluster = LocalCluster(state_file)
        self._scheduled = scheduled
        self._path = state_file
        self._nodes = nodes
        self._clock = clock
        self._sleep = sleep

    def look(self) -> Seen:
        """Return what is true now. Raises StateFileError."""
        tenant = self._tenant()  # before the nodes: they are never older than what is said of them
        standing, complaints = self._standing()
        nodes, unasked = self._observe()
        return Seen(
            place=self._cluster.name if self._scheduled is None else self._scheduled.name,
            time=self._clock(),
            nodes=nodes,
            tenant=tenant,
            standing=standing,
            pause=self._cluster.paused(),
            complaints=complaints + unasked,
        )

    def follow(self, timeout_s: float) -> Seen:
        """Look again after a while: it costs two small files, and less often where a scheduler is asked as well."""
        self._sleep(timeout_s if self._scheduled is None else max(timeout_s, LIST_S))
        return self.look()

    def _observe(self) -> tuple[Mapping[str, NodeView | NodeProblem], tuple[str, ...]]:
        """Return the nodes; where the scheduler does not answer, what the state file has, and that it does not."""
        kept = self._cluster.observe(self._nodes)
        if self._scheduled is None:
            return kept, ()
        try:
            return self._scheduled.observe(self._nodes), ()
        except StateFileError:
            raise
        except ClusterError as error:
            return kept, (f"nodes are shown as the state file has them: {error.message}",)

    def _standing(self) -> tuple[Standing | None, tuple[str, ...]]:
        path = progress_path(self._path)
        try:
            return decode_progress(read_regular(path, MAX_BYTES).strip()), ()
        except FileNotFoundError:
            return None, ()
        except (OSError, RecordError) as error:
            reason = error.message if isinstance(error, ClusterError) else error.strerror
            return None, (f"why nodes wait is not known: {path} cannot be read: {reason}",)

    def _tenant(self) -> Tenant | None:
        """Return who has the lock. It is tried for a moment; an engine that begins just then tries again."""
        path = lock_path(self._path)
        with contextlib.suppress(OSError), path.open(encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                since = datetime.fromtimestamp(path.stat().st_mtime, UTC)
                return Tenant(holder=file.read(1024).strip() or "another process", since=since, heard=self._clock())
        return None


def standing_of(lease: Lease) -> tuple[Standing | None, str]:
    """Return what the engine published, and why it cannot be read."""
    text = lease.metadata.annotations.get(PROGRESS)
    if text is None:
        return None, ""
    try:
        return decode_progress(text), ""
    except RecordError as error:
        return None, f"why nodes wait is not known: annotation {PROGRESS} of the lease: {error.message}"


def _declared_by(stacks: Iterable[StackSeen], names: Mapping[str, str]) -> dict[str, Driver]:
    """Return which driver stacks declare for nodes, by the inventory's ``names`` of Nodes."""
    return {
        names[node]: stack.declared
        for stack in stacks
        if stack.declared is not None
        for node in stack.owned
        if node in names
    }


def _daemons_by(stacks: Iterable[StackSeen], names: Mapping[str, str]) -> dict[str, Plugin]:
    """Return how stacks declare node daemons; not of those that a controller is still to bring about."""
    return {
        names[node]: stack.plugin
        for stack in stacks
        if stack.plugin is not None and stack.state in _BROUGHT_ABOUT and not stack.is_outdated
        for node in stack.owned
        if node in names
    }


def _renamed(standing: Standing, names: Mapping[str, str]) -> Standing:
    """Return it with the inventory's names; what is said of other nodes of the cluster is left out."""
    return replace(
        standing,
        out=frozenset(names[node] for node in standing.out if node in names),
        waiting={names[node]: reason for node, reason in standing.waiting.items() if node in names},
        waves=_members(standing.waves, names),
        domains=_members(standing.domains, names),
    )


def _members(groups: tuple[Members, ...], names: Mapping[str, str]) -> tuple[Members, ...]:
    return tuple(Members(group.title, tuple(names[node] for node in group.nodes if node in names)) for group in groups)
