"""The extender: judges nodes, binds pods, and corrects annotations. Of one event loop; the API is asked in threads.

A pod is bound in three steps: a card is promised to it in the books, the API server binds and annotates it in one
write, and the promise ends when the pod is seen on its node. Killed anywhere in between, the next extender reads from
the API server what came of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from plugin.base.errors import ClusterError
from plugin.gpushare import requests, wire
from plugin.gpushare.books.book import Books
from plugin.gpushare.books.inspection import nodes_to_json
from plugin.gpushare.books.objects import name_of, parse_node, parse_pod, priority_of, uid_of
from plugin.gpushare.books.placement import Refusal
from plugin.gpushare.books.pod_annotations import ROOM_SINCE, assumed
from plugin.gpushare.follower import FollowedKind, Follower
from plugin.gpushare.waiting import Waiting
from plugin.publication.node_object.answers import CONFLICT, INVALID, NOT_FOUND

if TYPE_CHECKING:
    from collections.abc import Callable

    from plugin.base.log import Logger
    from plugin.gpushare.books.book import Promise
    from plugin.gpushare.books.model import Pod
    from plugin.gpushare.connections import Connections
    from plugin.gpushare.wire import BindQuestion
    from plugin.publication.node_object.api.messages import Request

_CALLS = 16  # at a time
_BEHIND_S = 30.0
_SEEN = 10_000
_FOLLOW_UP_S = 0.5
_SERVER_ERRORS = 500


class Refused(Exception):
    """A pod is not bound; the text says why."""


class Unknown(Refused):
    """It cannot be said at the moment whether it is."""


class Extender:
    """Made and used in the event loop."""

    def __init__(
        self, api: Connections, resource: str, logger: Logger, now_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self.books = Books()
        self._api = api
        self._resource = resource
        self._log = logger
        self._now_ns = now_ns
        self._threads = ThreadPoolExecutor(_CALLS, "kubernetes")
        self._seen: dict[str, Pod] = {}  # uid → a pod that a scheduler asked about
        self._binding: set[str] = set()
        self._uncorrected: set[str] = set()  # nodes whose pods may have wrong annotations
        self._waiting = Waiting()
        self._followers: tuple[Follower, ...] = ()
        self._following_up: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Follow the cluster."""
        loop = asyncio.get_running_loop()

        def tell(call: Callable[..., None], *arguments: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(call, *arguments)

        self._followers = tuple(Follower(self._api, kind, tell, self._log) for kind in (self._nodes(), self._pods()))
        for follower in self._followers:
            follower.start()
        self._following_up = asyncio.ensure_future(self._follow_up_for_ever())

    async def stop(self) -> None:
        """End; calls that were begun are finished by the threads."""
        for follower in self._followers:
            follower.stop()
        if self._following_up is not None:
            self._following_up.cancel()
        self._threads.shutdown(wait=False)

    def problem(self) -> str:
        """Return why nothing can be judged at the moment, "" where it can."""
        if not all(follower.is_complete for follower in self._followers):
            return "the extender has not read the cluster yet"
        behind_s = max((follower.behind_s() for follower in self._followers), default=0.0)
        return f"the extender has heard nothing of the cluster for {behind_s:.0f} s" if behind_s > _BEHIND_S else ""

    # Filter

    def filter(self, body: bytes) -> bytes:
        """Answer which nodes could have a pod; raises ValueError."""
        question = wire.parse_filter(body)
        problem = self.problem()
        if problem:
            return wire.filter_error(problem)
        pod = parse_pod(question.pod, self._resource)
        if pod is None:
            return wire.render_filter(question, {}, {})
        self._remember(pod)
        now_s = time.monotonic()
        failed: dict[str, str] = {}
        hopeless: dict[str, str] = {}
        for name in question.names:
            found = self.books.fits(pod, name, now_s)
            if isinstance(found, Refusal):
                (hopeless if found.is_lasting else failed)[name] = found.reason
        if len(failed) + len(hopeless) < len(question.names):
            self._waiting.forget(pod.uid)
        else:
            self._waiting.refused(pod, question.names, priority_of(question.pod), now_s)
        return wire.render_filter(question, failed, hopeless)

    def preempt(self, body: bytes) -> bytes:
        """Answer on which nodes a pod would fit, once the scheduler's victims have left; raises ValueError.

        Without this, pods would be evicted for the sum of a node, from cards on which the pod does not fit.
        """
        question = wire.parse_preempt(body)
        pod = parse_pod(question.pod, self._resource)
        if pod is None:
            return wire.render_preempt(question.victims)
        fitting = {} if self.problem() else question.victims
        return wire.render_preempt(
            {
                name: victims
                for name, victims in fitting.items()
                if not isinstance(self.books.fits_without(pod, name, frozenset(victims.uids)), Refusal)
            }
        )

    def _remember(self, pod: Pod) -> None:
        self._seen.pop(pod.uid, None)
        self._seen[pod.uid] = pod
        if len(self._seen) > _SEEN:
            del self._seen[next(iter(self._seen))]

    # Bind

    async def bind(self, body: bytes) -> bytes:
        """Bind a pod, and answer why not where it is not; raises ValueError.

        The status is 200 in any case: kube-scheduler reads no reason from another one.
        """
        question = wire.parse_bind(body)
        title = f"{question.namespace}/{question.name}"
        try:
            await self._bind(question)
        except Refused as refused:
            self._log.info("not bound", pod=title, node=question.node, reason=refused)
            return wire.bind_answer(f"{title} is not bound to {question.node}: {refused}")
        return wire.bind_answer()

    async def _bind(self, question: BindQuestion) -> None:
        problem = self.problem()
        if problem:
            raise Refused(problem)
        if question.uid in self._binding:
            raise Refused("it is being bound already")
        self._binding.add(question.uid)
        try:
            pod = await self._find(question)
            if pod.node == question.node:
                return  # the answer to an earlier question was lost
            if pod.node:
                raise Refused(f"it is on {pod.node} already")
            promise = self.books.promise(pod, question.node, time.monotonic())
            if isinstance(promise, Refusal):
                raise Refused(promise.reason)
            await self._keep(promise)
        finally:
            self._binding.discard(question.uid)

    async def _find(self, question: BindQuestion) -> Pod:
        pod = self.books.pod(question.uid) or self._seen.pop(question.uid, None)
        if pod is None:
            pod = await self._read(question)
        if (pod.namespace, pod.name) != (question.namespace, question.name):
            raise Refused(f"its uid is that of {pod.title}")
        return pod

    async def _read(self, question: BindQuestion) -> Pod:
        """Ask the API server for a pod that wants units, and is the one that is meant."""
        try:
            document = await self._call(requests.read_pod(question.namespace, question.name))
        except ClusterError as error:
            raise (Refused if error.status == NOT_FOUND else Unknown)(error.message) from error
        if uid_of(document) != question.uid:
            raise Refused("there is another pod of its name")
        pod = parse_pod(document, self._resource)
        if pod is None:
            raise Refused(f"it has ended, or asks for no {self._resource}")
        return pod

    async def _keep(self, promise: Promise) -> None:
        pod, node = promise.pod, promise.node
        request = requests.bind(pod, node, assumed(pod, promise.card, self._now_ns()))
        try:
            await self._call(request)
        except ClusterError as error:
            await self._settle(promise, error)
        self._log.info("bound", pod=pod.title, node=node, card=promise.card.number, units=pod.demand.units)

    async def _settle(self, promise: Promise, error: ClusterError) -> None:
        """Find out what came of a bind that failed; until that is known, the promise stands."""
        pod, node = promise.pod, promise.node
        is_known = 0 < error.status < _SERVER_ERRORS
        if not is_known or error.status == CONFLICT:
            try:
                now = await self._read(wire.BindQuestion(pod.name, pod.namespace, pod.uid, node))
            except Unknown:
                raise
            except Refused:
                is_known = True
            else:
                if now.node == node:
                    return
                is_known = is_known or bool(now.node)
        if is_known:
            self.books.break_promise(pod.uid, node)
        raise Refused(error.message) from error

    async def _call(self, request: Request) -> dict[str, Any]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._api.call, request)

    # Inspect

    def inspect(self, name: str = "") -> dict[str, Any]:
        """Return who has what, on one node or on all."""
        return nodes_to_json(self.books, name)

    # What the cluster tells

    def _nodes(self) -> FollowedKind:
        return FollowedKind(
            requests.NODES,
            lambda document: parse_node(document, self._resource),
            name_of,
            self.books.replace_nodes,
            self.books.put_node,
            self.books.remove_node,
        )

    def _pods(self) -> FollowedKind:
        return FollowedKind(
            requests.PODS,
            lambda document: parse_pod(document, self._resource),
            uid_of,
            self.books.replace_pods,
            self._put_pod,
            self._remove_pod,
        )

    def _put_pod(self, pod: Pod) -> None:
        self.books.put_pod(pod)
        self._seen.pop(pod.uid, None)
        if pod.node:
            self._waiting.forget(pod.uid)

    def _remove_pod(self, uid: str) -> None:
        self.books.remove_pod(uid)
        self._waiting.forget(uid)

    # What follows from it

    async def _follow_up_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_FOLLOW_UP_S)
            now_s = time.monotonic()
            self.books.expire(now_s)
            changed = self.books.take_changed()
            self._uncorrected |= changed
            self._waiting.changed(changed, now_s)
            if self.problem():
                continue
            for pod in self._waiting.to_wake(self._fits, now_s):
                await self._wake(pod)
            uncorrected, self._uncorrected = self._uncorrected, set()
            for node in uncorrected:
                await self._correct(node)

    def _fits(self, pod: Pod, node: str) -> bool:
        return not isinstance(self.books.fits(pod, node, time.monotonic()), Refusal)

    async def _wake(self, pod: Pod) -> None:
        """Have the scheduler ask about a pod again, as it does when the pod is changed."""
        try:
            await self._call(requests.annotate(pod, {ROOM_SINCE: str(self._now_ns())}))
        except ClusterError as error:  # the next change of a node, or the scheduler itself in five minutes, helps
            self._log.info("not woken", pod=pod.title, reason=error.message)
        else:
            self._log.info("has room since it was refused", pod=pod.title)

    async def _correct(self, node: str) -> None:
        """Have annotations say what pods hold. What fails is tried again when the node or a pod of it changes."""
        for pod, changes in tuple(self.books.corrections(node)):
            try:
                await self._call(requests.annotate(pod, changes))
            except ClusterError as error:
                if error.status not in {CONFLICT, NOT_FOUND, INVALID}:  # it is gone, or another one: the uid differs
                    self._uncorrected.add(node)
                    self._log.standing("annotations", error.message, hint=error.hint or "it is tried again")
                    await asyncio.sleep(_FOLLOW_UP_S)
                    return
        self._log.standing("annotations")
