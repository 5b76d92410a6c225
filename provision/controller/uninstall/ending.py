"""Has the controller of a cluster end with nothing in flight, or go on: what the chart does before it is taken away.

The controller is asked to begin nothing further, by a request that runs out where it is not renewed. What is in flight
comes back into service or is finished; then the Deployment is scaled to zero, and what only a controller keeps up to
date says that there is none. Until then nothing has changed: whoever refuses, or is killed, leaves it at work.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from provision.cluster.kubernetes import uninstalling
from provision.cluster.kubernetes.lease import is_free, read_lease
from provision.cluster.kubernetes.objects.nodes import Node
from provision.cluster.kubernetes.permissions import LEADER_NAME
from provision.cluster.kubernetes.watch.informer import NODES
from provision.cluster.kubernetes.watch.watcher import Source, Watcher
from provision.controller.nodes import NodeBook
from provision.controller.stacks.derive import without_controller
from provision.controller.stacks.follower import STACKS, StackBook, require_served
from provision.controller.stacks.model import StackObject
from provision.controller.stacks.writer import read_stack, write_finalizer, write_status
from provision.controller.uninstall.obstacles import Sight, at_work, farewell, is_kept, obstacles, refusal
from provision.rollout.errors import ClusterError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from provision.cluster.kubernetes.api.client import Api
    from provision.controller.stacks.follower import Followed
    from provision.controller.uninstall.workload import Deployment, Workload

LOOK_S: Final = 2.0
ASK_S: Final = 15.0  # between two renewals of the request
CALM_S: Final = 4.0  # without anything in flight: what had begun before the controller heard of it shows by then
ALONE_S: Final = 60.0  # without a controller at work, where something is in flight
GONE_S: Final = 60.0  # for the pods of the controller to end
_ATTEMPTS: Final = 5


@dataclass(slots=True)
class Ending:
    """The end of one controller. ``wait_s`` is how long it may take until nothing is in flight.

    ``stop`` is set when whoever runs this is told to end: the controller goes on then.
    """

    api: Api
    workload: Workload
    wait_s: float
    say: Callable[[str], None]
    stop: threading.Event
    clock: Callable[[], float] = time.monotonic
    _wake: threading.Event = field(default_factory=threading.Event)
    _asked: datetime | None = None
    _renewed_s: float = 0.0
    _told: Mapping[str, str] = field(default_factory=dict)

    def run(self) -> None:
        """Return when the controller has ended. Raises GrapnelError where it goes on, with what is in the way."""
        nodes, stacks = NodeBook(self._wake.set), StackBook(self._wake.set)
        with self._watched(nodes, stacks) as check, self._asking():
            self._wait(lambda: self._see(check, nodes, stacks))
            self._end()
            check()
            self._let_go(stacks.all())
            for word in farewell(Sight(nodes=nodes.all(), stacks=stacks.all())):
                self.say(word)

    @contextlib.contextmanager
    def _watched(self, nodes: NodeBook, stacks: StackBook) -> Iterator[Callable[[], None]]:
        watchers: list[Watcher[Any]] = [Watcher(self.api, Source(path=NODES, item=Node), nodes)]
        try:
            require_served(self.api)
            watchers.append(Watcher(self.api, Source(path=STACKS, item=StackObject), stacks))
        except UnreachableError:
            raise
        except ClusterError as error:  # there are no stacks: nothing is kept for them
            self.say(error.message)

        def check() -> None:
            for watcher in watchers:
                watcher.check()

        try:
            for watcher in watchers:
                watcher.start()
            yield check
        finally:
            for watcher in watchers:
                watcher.stop()
            for watcher in watchers:
                watcher.join()

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._withdraw()

    def _see(self, check: Callable[[], None], nodes: NodeBook, stacks: StackBook) -> Sight:
        check()
        return Sight(nodes=nodes.all(), stacks=stacks.all(), busy=self.workload.busy_nodes())

    def _wait(self, see: Callable[[], Sight]) -> None:
        """Return when nothing is in flight, and nothing begins any more."""
        began = self.clock()
        calm_since: float | None = None
        alone_since: float | None = None
        found: Mapping[str, str] = {}
        while not self.stop.is_set():
            self._wake.clear()
            deployment, now = self.workload.find(), self.clock()
            missing = at_work(deployment, [] if deployment is None else self.workload.pods(deployment))
            sight = see()
            self._ask(is_wanted=not sight.leaving)
            found = obstacles(sight)
            self._tell(found)
            is_calm = not found and self._is_heard()
            calm_since = (now if calm_since is None else calm_since) if is_calm else None
            alone_since = (now if alone_since is None else alone_since) if found and missing else None
            if calm_since is not None and now - calm_since >= CALM_S:
                return
            if alone_since is not None and now - alone_since >= ALONE_S:
                raise refusal(found, f"no controller is at work that would finish what is in flight: {missing}")
            if now - began >= self.wait_s:
                raise refusal(found, f"after {self.wait_s / 60:g} minutes something is in flight")
            self._wake.wait(LOOK_S)
            self.stop.wait(0.2)
        raise refusal(found, "this was told to end")

    def _ask(self, *, is_wanted: bool) -> None:
        """Renew the request, or take it back while a stack is to be brought to its end, which needs the controller."""
        if not is_wanted:
            self._withdraw()
        elif self._asked is None or self.clock() - self._renewed_s >= ASK_S:
            uninstalling.ask(self.api)
            self._asked, self._renewed_s = self._asked or self.api.now(), self.clock()

    def _withdraw(self) -> None:
        if self._asked is not None:
            self._asked = None
            with contextlib.suppress(ClusterError):  # it runs out by itself
                uninstalling.withdraw(self.api)

    def _is_heard(self) -> bool:
        """Tell whether whoever leads has read the request: it has written its lease since, or no replica holds it."""
        if self._asked is None:
            return False
        lease = read_lease(self.api, LEADER_NAME)
        if lease is None or is_free(lease.spec, "", self.api.now()):
            return True
        renewed = lease.spec.renew_time
        return renewed is not None and renewed > self._asked + timedelta(seconds=1)  # of a date in whole seconds

    def _tell(self, found: Mapping[str, str]) -> None:
        for name, what in found.items():
            if self._told.get(name) != what:
                self.say(f"waits for {name}: it {what}")
        self._told = found

    def _end(self) -> None:
        """Have no controller run any more."""
        deployment = self.workload.find()
        if deployment is None:
            self.say(f"there is no Deployment {self.workload.name}: nothing is to be ended")
            return
        self.say(f"nothing is in flight: Deployment {self.workload.name} is scaled to 0")
        self.workload.end()
        began = self.clock()
        while left := self._left(deployment):
            if self.clock() - began >= GONE_S:
                self.say(f"{', '.join(left)} did not end within {GONE_S:.0f} s; its lease runs out by itself")
                return
            time.sleep(LOOK_S / 4)

    def _left(self, deployment: Deployment) -> list[str]:
        return [f"pod {each.metadata.name}" for each in self.workload.pods(deployment)]

    def _let_go(self, stacks: Mapping[str, Followed]) -> None:
        """Keep no stack from going, and have each say that there is no controller.

        One that was deleted in this moment, and whose nodes are to be given back, stays: the next controller does it.
        """
        for name, followed in sorted(stacks.items()):
            if not getattr(followed.stack, "is_removing", False) and is_kept(followed):
                self._release(name)
            status = without_controller(followed.status, datetime.now(UTC))
            write_status(self.api, name, followed.stack.uid, status)

    def _release(self, name: str) -> None:
        for _attempt in range(_ATTEMPTS):
            found = read_stack(self.api, name)
            if found is None:
                return
            meta = found.metadata
            if write_finalizer(self.api, name, meta.uid, meta.resource_version, meta.finalizers, wanted=False):
                return
        raise ClusterError(f"GpuStack {name} is changed by others all the time")
