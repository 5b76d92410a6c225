"""Has one Job run on one node, and reads its log to the end.

A Job of the same node that another process has left, such as a controller that was killed, is ended first: what it was
in the middle of is found half done on the node, and gone on with, as after any other way of being cut off.

What ends a Job, its pod or its agent says nothing of what was begun on the node. Only the last event of a log is the
end of a run, and only a cancel that was asked for here is one: otherwise the Job goes on in its next pod, or JobError
says that it is not known, so that the node is looked at again.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from provision.apply.runner import CutOff, RunFinished, RunStatus
from provision.cluster.kubernetes.api.client import CONFLICT, NOT_FOUND
from provision.cluster.kubernetes.api.exchange import Request, StatusError
from provision.cluster.kubernetes.objects.core import Page
from provision.cluster.kubernetes.pods.gpu_pods import NODE_JOB
from provision.controller.jobs.manifest import CONTAINER, GRACE_S, label_of, render_job, render_secret
from provision.controller.jobs.objects import AgentPod, Event, Job, JobError, is_on, newest_pod
from provision.controller.jobs.seal import Seal
from provision.controller.jobs.wire import MAX_LINE_BYTES, LineReader, LogError, request_of, words_in
from provision.rollout.errors import ClusterError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from provision.apply.runner import Event as RunEvent
    from provision.apply.runner import RunRequest
    from provision.cluster.kubernetes.api.client import Api
    from provision.cluster.kubernetes.api.exchange import Stream
    from provision.controller.jobs.manifest import JobKind

LOOK_S: Final = 1.0
MADE_S: Final = 60.0  # for the Job to have a pod
AGAIN_S: Final = 150.0  # to have another one after that: the Job controller waits longer after each that has ended
STARTED_S: Final = 300.0  # for the pod to have a container that runs; an image may have to be pulled
REFUSED_S: Final = 60.0  # for a kubelet that says that it cannot start it
GONE_S: Final = 2.0 * GRACE_S + 30.0
SILENCE_S: Final = 300.0  # of a log: then the connection is made again, in case that its node has gone meanwhile
UNHEARD_S: Final = 900.0  # without a log that can be read; a node that reboots is back by then
_BAD_BEGINNINGS: Final = frozenset(
    {
        *("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"),
        *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
    }
)
_DEFAULT_TIMEOUT_S: Final = 7200


@dataclass(slots=True)
class NodeRun:
    """One run on one node; ``name`` is that of its Job, which no other has."""

    api: Api
    kind: JobKind
    name: str
    node: str
    is_to_stop: Callable[[], bool]
    sleep: Callable[[float], None]
    clock: Callable[[], float]
    trouble: str = ""  # why the log could not be read last
    _uid: str = ""  # of the Job
    _pod: AgentPod | None = None  # the one that was at work last
    _read: set[str] = field(default_factory=set)  # UIDs of pods that have ended, and whose logs were read since
    _noted: str = ""  # UID of the pod that was ended last
    _untold: str = ""  # why, until people are told
    _was_complete: bool = False

    def carry_out(self, request: RunRequest, say: Callable[[RunEvent], None]) -> RunFinished:
        """Run to the end, and leave nothing behind. Raises JobError, ClusterError."""
        self._end_others()
        seal = self._make(request)
        self._uid = seal.job
        try:
            reader = LineReader(self.node, seal, request.keep)
            return self._follow(reader, say, (request.timeout_s or _DEFAULT_TIMEOUT_S) + STARTED_S + GONE_S)
        except JobError as error:
            if self._pod is not None:
                say(CutOff(self.node, self._cut_off(error.message, "and is looked at by the next Job")))
            raise
        except LogError as error:
            return RunFinished(RunStatus.ERROR, message=f"the log of its Job cannot be followed: {error}")
        finally:
            # What became of the node is known: that an API server is away must not undo that. The Job goes by itself,
            # and the next run on the node ends one that is left.
            with contextlib.suppress(ClusterError):
                self._delete(self.name, self._uid, wait=True)

    def _jobs(self) -> str:
        return f"/apis/batch/v1/namespaces/{quote(self.kind.namespace, safe='')}/jobs"

    def _core(self, kind: str) -> str:
        return f"/api/v1/namespaces/{quote(self.kind.namespace, safe='')}/{kind}"

    def _end_others(self) -> None:
        labels = f"{NODE_JOB}={label_of(self.node)}"
        for job in self.api.list_all(self._jobs(), Job, labels=labels):
            if not self._delete(job.metadata.name, job.metadata.uid, wait=True):
                raise _beside(f"Job {job.metadata.name}")
        deadline = self.clock() + GONE_S
        while left := self._left(labels):  # such as of a Job that was deleted: its pods go after it
            if self.clock() > deadline:
                raise _beside(f"pod {left}")
            self.sleep(LOOK_S)

    def _left(self, labels: str) -> str:
        """Return the name of a pod of another run that is still on the node, empty if there is none."""
        pods = self.api.list_all(self._core("pods"), AgentPod, labels=labels)
        return next((pod.metadata.name for pod in pods if is_on(pod, self.node) and not pod.is_over), "")

    def _make(self, request: RunRequest) -> Seal:
        """Make the Job and its Secret; return what the Job's log is sealed with."""
        body = render_job(self.kind, self.name, self.node, request.timeout_s or _DEFAULT_TIMEOUT_S)
        try:
            job = self._post(self._jobs(), body, Job)
        except StatusError:  # our own request, whose answer was lost: no other Job has that name
            job = self.api.call(Request(method="GET", path=f"{self._jobs()}/{self.name}"), Job)
        seal = Seal.fresh(job.metadata.uid)
        secret = render_secret(self.kind, self.name, seal, request_of(request, self.node))
        try:
            with contextlib.suppress(StatusError):
                self._post(self._core("secrets"), secret, msgspec.Raw)
        except ClusterError:
            self._delete(self.name, job.metadata.uid, wait=False)
            raise
        return seal

    def _post(self, path: str, body: dict[str, Any], kind: type[Any]) -> Any:
        return self.api.call(Request(method="POST", path=path, body=body), kind, expected=(CONFLICT,))

    def _follow(self, reader: LineReader, say: Callable[[RunEvent], None], longest_s: float) -> RunFinished:
        """Read events until one says that the run is over, across restarts of the container and of the connection.

        The Job's own deadline ends it on a node that works. One that has gone, or that lies, has to be given up here.
        """
        began = heard = self.clock()

        def is_late() -> bool:
            return self.clock() - began > longest_s

        while True:
            pod = self._started(say)
            if pod is None:
                return RunFinished(RunStatus.CANCELED, message="canceled")
            self.trouble = ""
            end = self._hear(self._events(reader, pod, is_late), say)
            if end is not None:
                return end
            if self.is_to_stop():
                return RunFinished(RunStatus.CANCELED, message="canceled")
            if is_late():
                raise JobError(f"its Job did not come to its end within {longest_s:.0f} s")
            heard = heard if self.trouble else self.clock()
            if self.clock() - heard > UNHEARD_S:
                raise JobError(f"the log of its Job could not be read for {UNHEARD_S:.0f} s: {self.trouble}")
            if pod.is_over:
                self._read.add(pod.metadata.uid)
            self._require_life()
            self.sleep(LOOK_S)

    @staticmethod
    def _hear(events: Iterable[RunEvent], say: Callable[[RunEvent], None]) -> RunFinished | None:
        """Pass events on, and return the end of the run; that its agent was canceled is none: nobody here asked it."""
        for event in events:
            if not isinstance(event, RunFinished):
                say(event)
            elif event.status is not RunStatus.CANCELED:
                return event
        return None

    def _events(self, reader: LineReader, pod: AgentPod, is_late: Callable[[], bool]) -> Iterator[RunEvent]:
        """Yield what the log has, as it comes; a stream that breaks off ends it, and so does one that is late."""
        query: dict[str, str | int] = {"container": CONTAINER, "follow": "true"}
        path = f"{self._core('pods')}/{quote(pod.metadata.name, safe='')}/log"
        try:
            request = Request(method="GET", path=path, query=query, timeout_s=SILENCE_S, longest_line=MAX_LINE_BYTES)
            stream = self.api.stream(request, expected=(NOT_FOUND, 400))
        except StatusError as error:  # the container is not there yet, or any more
            self.trouble = str(error)
            return
        except UnreachableError as error:  # or the kubelet is not; its certificate may have run out
            self.trouble = error.message
            return
        with contextlib.ExitStack() as stack:
            stack.callback(stream.release)
            stack.callback(_watch_over(stream, lambda: self.is_to_stop() or is_late()))
            with contextlib.suppress(UnreachableError):
                yield from reader.read(stream.lines)

    def _started(self, say: Callable[[RunEvent], None]) -> AgentPod | None:
        """Return the pod once its container runs or has run, None where the run is canceled. Raises JobError."""
        began = self.clock()
        refused_since: float | None = None
        while not self.is_to_stop():
            pod, now = self._find_pod(), self.clock()
            if pod is None:
                self._require_pod(now - began)
            elif pod.state.running is not None or pod.state.terminated is not None:
                self._tell_cut_off(say)
                self._pod = pod
                return pod
            elif pod.is_over:
                status = pod.status
                raise JobError(f"its pod did not start: {status.message or status.reason or status.phase}")
            else:
                waiting = pod.state.waiting
                is_refused = waiting is not None and waiting.reason in _BAD_BEGINNINGS
                refused_since = (refused_since or now) if is_refused else None
                if waiting is not None and refused_since is not None and now - refused_since > REFUSED_S:
                    raise JobError(f"its pod does not start: {waiting.reason}: {waiting.message}")
                if now - began > STARTED_S:
                    said = "its kubelet says nothing of it" if waiting is None else waiting.reason or "it waits"
                    raise JobError(f"its pod did not start within {STARTED_S:.0f} s: {said}{self._why()}")
            self._tell_cut_off(say)  # and the Job lives
            self.sleep(LOOK_S)
        return None

    def _tell_cut_off(self, say: Callable[[RunEvent], None]) -> None:
        """Tell once of a pod that was ended, and that the Job goes on."""
        if self._untold:
            say(CutOff(self.node, self._cut_off(self._untold, "and the Job's next pod waits for it")))
            self._untold = ""

    def _require_pod(self, waited_s: float) -> None:
        """Raise JobError where no pod comes, or none any more."""
        if self._pod is not None:
            self._require_life(is_read=True)
        limit_s, what = (MADE_S, "no pod") if self._pod is None else (AGAIN_S, "no other pod")
        if waited_s > limit_s:
            raise JobError(f"{what} was made for its Job within {limit_s:.0f} s{self._why()}")

    def _require_life(self, *, is_read: bool = False) -> None:
        """Raise JobError where nothing more comes: the Job has ended, or was deleted.

        ``is_read``: there is no log that could still have a word of its end.
        """
        try:
            job = self.api.call(Request(method="GET", path=f"{self._jobs()}/{self.name}"), Job, expected=(NOT_FOUND,))
        except StatusError:
            raise JobError("its Job was deleted by somebody while it ran") from None
        if job.metadata.uid != self._uid or job.metadata.deletion_timestamp is not None:
            raise JobError("its Job was deleted by somebody while it ran")
        if job.failure:
            raise JobError(f"its Job failed: {job.failure}{_how_ended(self._newest() or self._pod)}")
        if job.is_complete and (is_read or self._was_complete):  # the log was read to the end since
            raise JobError("its Job ended without a word of what became of the run: is the image grapnel's?")
        self._was_complete = job.is_complete

    def _find_pod(self) -> AgentPod | None:
        """Return the pod that is at work, or about to; note of one that was at work and is not any more, why."""
        pods = self._pods()
        pod = newest_pod(pods, self._uid, self.node)
        if pod is not None and pod.metadata.uid in self._read:
            pod = None
        former = self._pod
        if former is not None and (pod is None or pod.metadata.uid != former.metadata.uid):
            self._read.add(former.metadata.uid)
            if former.metadata.uid != self._noted:
                self._noted = former.metadata.uid
                seen = next((each for each in pods if each.metadata.uid == former.metadata.uid), None)
                if seen is None or seen.status.phase != "Succeeded":  # after which there is no other
                    self._untold = "its pod was deleted" if seen is None else seen.why_ended
        return pod

    def _cut_off(self, why: str, what_follows: str) -> str:
        return f"Job {self.name} was cut off ({why}): what it had begun on the node goes on there, {what_follows}"

    def _newest(self) -> AgentPod | None:
        return newest_pod(self._pods(), self._uid, self.node)

    def _pods(self) -> list[AgentPod]:
        return self.api.list_all(self._core("pods"), AgentPod, labels=f"job-name={self.name}")

    def _why(self) -> str:
        """Return what the newest warning about the Job says, such as that a pod like this is not allowed.

        Every kubelet may write Events, of whatever name: what is not about the uid of this Job is not shown.
        """
        selector = f"involvedObject.uid={self._uid},type=Warning"
        request = Request(method="GET", path=self._core("events"), query={"fieldSelector": selector, "limit": 50})
        try:
            page: Page[Event] = self.api.call(request, Page[Event], patience_s=0)
        except ClusterError:
            return ""
        return f": {page.items[-1].message}" if page.items else ""

    def _delete(self, name: str, uid: str, *, wait: bool) -> bool:
        """Delete a Job with its pod; with ``wait`` return whether both are gone, after as long as that may take."""
        body = {"propagationPolicy": "Foreground", "preconditions": {"uid": uid}}
        path = f"{self._jobs()}/{quote(name, safe='')}"
        try:
            self.api.call(Request(method="DELETE", path=path, body=body), msgspec.Raw, expected=(NOT_FOUND, CONFLICT))
            deadline = self.clock() + GONE_S
            while wait and self.clock() < deadline:
                self.api.call(Request(method="GET", path=path), Job, expected=(NOT_FOUND,))
                self.sleep(LOOK_S)
        except StatusError:
            return True
        return False


def _beside(what: str) -> JobError:
    return JobError(
        f"{what} of a former run does not end within {GONE_S:.0f} s, and two at once would change the node against one "
        "another"
    )


def _how_ended(pod: AgentPod | None) -> str:
    """Return how the agent itself ended, where that was not as it should: the image may be another one."""
    ended = None if pod is None else pod.last
    if ended is None or (ended.exit_code == 0 and not ended.message):
        return ""
    words = words_in(ended.message) or ended.reason or "no reason given"
    return f" (the agent ended with {ended.exit_code}: {words})"


def _watch_over(stream: Stream, is_to_stop: Callable[[], bool]) -> Callable[[], None]:
    """Close a stream when the run is canceled: reading it would wait for the next line. Return what ends that."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_S):
            if is_to_stop():
                stream.close()
                return

    threading.Thread(target=watch, name="job cancel", daemon=True).start()
    return over.set
