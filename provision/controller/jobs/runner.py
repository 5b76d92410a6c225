"""Runs playbooks as Jobs on nodes; `JobRunner` is a `PlaybookRunner`, as the one that runs Ansible here is."""

from __future__ import annotations

import queue
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from provision.apply.runner import NodeStats, RunFinished, RunStatus, TaskDone, TaskOutcome, TaskStarted
from provision.base.printable import printable
from provision.controller.jobs.node_run import NodeRun
from provision.controller.jobs.objects import JobError
from provision.rollout.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from provision.apply.runner import Event, RunRequest
    from provision.cluster.kubernetes.api.client import Api
    from provision.controller.jobs.manifest import JobKind

TASK: Final = "run a Job on the node"
_LONGEST: Final = 2000
_WAITING: Final = 4  # events of a node that wait to be heard: then its log is not read further
_LOOK_S: Final = 1.0
_WITHOUT_A_TASK: Final = frozenset({RunStatus.ERROR, RunStatus.NO_NODES})


@dataclass(frozen=True, slots=True)
class _Said:
    node: str
    event: Event


@dataclass(frozen=True, slots=True)
class JobRunner:
    """Runs each node of a request as a Job of its own, ``parallel`` at once."""

    api: Api
    kind: JobKind
    parallel: int = 20
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    new_name: Callable[[], str] = field(default=lambda: f"grapnel-{uuid.uuid4().hex[:16]}")

    def run(self, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        """Yield the events of a run; the last one is always ``RunFinished``.

        When ``cancel`` is set, or the iterator is closed early, Jobs are deleted and their ends are waited for first.
        """
        said: queue.Queue[_Said] = queue.Queue()
        rooms = {node: threading.Semaphore(_WAITING) for node in request.nodes}
        closed = threading.Event()
        ends: dict[str, RunFinished] = {}

        def is_to_stop() -> bool:
            return cancel.is_set() or closed.is_set()

        def say(node: str, event: Event) -> None:
            while not rooms[node].acquire(timeout=_LOOK_S):
                if closed.is_set():  # no caller listens any more
                    return
            said.put(_Said(node, event))

        def work(node: str) -> None:
            end = RunFinished(RunStatus.ERROR, message="its Job ended with a bug")
            try:
                end = self._run_one(request, node, is_to_stop, partial(say, node))
            finally:
                said.put(_Said(node, end))

        with ThreadPoolExecutor(max(1, min(self.parallel, len(request.nodes))), thread_name_prefix="job") as pool:
            try:
                for node in request.nodes:
                    pool.submit(work, node)
                while len(ends) < len(request.nodes):
                    found = said.get()
                    if isinstance(found.event, RunFinished):
                        ends[found.node] = found.event
                    else:
                        rooms[found.node].release()
                        yield found.event
            finally:
                closed.set()  # leaving the pool waits for its threads
        yield _together(request, ends)

    def _run_one(
        self, request: RunRequest, node: str, is_to_stop: Callable[[], bool], say: Callable[[Event], None]
    ) -> RunFinished:
        if is_to_stop():
            return RunFinished(RunStatus.CANCELED, message="canceled")
        run = NodeRun(self.api, self.kind, self.new_name(), node, is_to_stop, self.sleep, self.clock)
        try:
            end = run.carry_out(request, say)
        except (JobError, ClusterError) as error:
            message = printable(error.message, limit=_LONGEST)
            _say_failure(node, TaskOutcome.UNREACHABLE, message, say)
            return RunFinished(RunStatus.FAILED, {node: NodeStats(unreachable=1)}, message)
        if end.status in _WITHOUT_A_TASK:  # nothing else would say why, where the run is one on several nodes
            _say_failure(node, TaskOutcome.FAILED, printable(end.message, limit=_LONGEST), say)
        return end


def _say_failure(node: str, outcome: TaskOutcome, message: str, say: Callable[[Event], None]) -> None:
    say(TaskStarted(node, TASK))
    say(TaskDone(node, TASK, outcome, message=message))


def _together(request: RunRequest, ends: dict[str, RunFinished]) -> RunFinished:
    """Return the end of a run on several nodes: the worst of theirs."""
    if not request.nodes:
        return RunFinished(RunStatus.NO_NODES, message="no node was named")
    stats = {node: stat for end in ends.values() for node, stat in end.stats.items()}
    found = {end.status for end in ends.values()}
    if len(request.nodes) == 1:
        (end,) = ends.values()
        return RunFinished(end.status, stats, end.message)
    for status in (RunStatus.CANCELED, RunStatus.TIMED_OUT):
        if status in found:
            return RunFinished(status, stats, next(end.message for end in ends.values() if end.status is status))
    is_good = found == {RunStatus.SUCCESSFUL}
    return RunFinished(RunStatus.SUCCESSFUL if is_good else RunStatus.FAILED, stats)
