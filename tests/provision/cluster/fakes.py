"""Small fakes behind the adapter's seam: an API server that answers from a list, and one that keeps a Lease."""

from __future__ import annotations

import json
from collections import deque
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

from provision.cluster.kubernetes.api.client import Api
from provision.cluster.kubernetes.api.exchange import ApiResponse
from provision.cluster.kubernetes.permissions import LEADER_NAME
from provision.cluster.kubernetes.watch.informer import ALIVE
from provision.rollout.errors import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from provision.cluster.kubernetes.api.exchange import Request


def answer(code: int = 200, body: object = None, headers: Mapping[str, str] | None = None) -> ApiResponse:
    """Return an answer with a JSON body."""
    return ApiResponse(code=code, body=json.dumps(body or {}).encode(), headers=headers or {})


def refusal(
    code: int, message: str = "", *, causes: tuple[str, ...] = (), headers: Mapping[str, str] | None = None
) -> ApiResponse:
    """Return a refusal as the API server words it."""
    details = {"causes": [{"reason": "DisruptionBudget", "message": cause} for cause in causes]}
    return answer(code, {"kind": "Status", "message": message, "details": details}, headers)


class Clock:
    """A clock that only advances on sleep."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.slept.append(seconds)
        self.now += seconds


class ScriptedServer:
    """Answers in the order of its list; an UnreachableError in it is raised, the last entry stays."""

    name = "cluster x"

    def __init__(self, *answers: ApiResponse | UnreachableError) -> None:
        self.answers = deque(answers)
        self.requests: list[Request] = []

    def send(self, request: Request) -> ApiResponse:
        """Return the next answer."""
        self.requests.append(request)
        following = self.answers.popleft() if len(self.answers) > 1 else self.answers[0]
        if isinstance(following, UnreachableError):
            raise following
        return following


class LeaseServer:
    """Keeps one Lease with the optimistic locking of the real one, and has a clock of its own."""

    name = "cluster x"

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.stored: dict[str, Any] | None = None
        self.before: Callable[[], None] = lambda: None  # runs once ahead of the next write, as a rival would
        self.is_down = False
        self._version = 0
        self._epoch = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)

    def api(self) -> Api:
        """Return a client."""
        return Api(self, sleep=self.clock.sleep, clock=self.clock)

    def send(self, request: Request) -> ApiResponse:
        """Answer as the API server does."""
        if self.is_down:
            raise UnreachableError("cluster x does not answer: connection refused")
        if request.method != "GET":
            hook, self.before = self.before, lambda: None
            hook()
        return self._do(request)

    def _do(self, request: Request) -> ApiResponse:
        moment = format_datetime(self._epoch + timedelta(seconds=self.clock.now), usegmt=True)
        date = {"Date": moment}
        if request.method == "GET":
            return answer(200, self.stored, date) if self.stored else refusal(404, headers=date)
        assert request.body is not None
        if request.method == "POST" and self.stored:
            return refusal(409, "already exists", headers=date)
        version = request.body["metadata"].get("resourceVersion")
        if request.method == "PATCH":
            return self._patch(request.body, version, date)
        # A PUT of a lease that is not there makes it, as the real server does.
        if request.method == "PUT" and self.stored and version != self.stored["metadata"]["resourceVersion"]:
            return refusal(409, "the object has been modified", headers=date)
        self.touch(request.body)
        return answer(200, self.stored, date)

    def _patch(self, patch: Mapping[str, Any], version: str | None, date: Mapping[str, str]) -> ApiResponse:
        """Merge annotations, the only thing that is patched."""
        if self.stored is None:
            return refusal(404, headers=date)
        if version not in (None, self.stored["metadata"]["resourceVersion"]):
            return refusal(409, "the object has been modified", headers=date)
        body = json.loads(json.dumps(self.stored))
        found = {**body["metadata"].get("annotations", {}), **patch["metadata"]["annotations"]}
        body["metadata"]["annotations"] = {key: text for key, text in found.items() if text is not None}
        self.touch(body)
        return answer(200, self.stored, date)

    def touch(self, body: Any = None) -> None:
        """Store ``body``, or the same again, under a new version."""
        self._version += 1
        self.stored = json.loads(json.dumps(body or self.stored))
        assert self.stored is not None
        self.stored["metadata"]["resourceVersion"] = str(self._version)


class FleetServer:
    """Serves Nodes, as a list or as changes, and two leases; ``forbidden`` are words of requests that it refuses."""

    name = "cluster x"

    def __init__(self, *nodes: dict[str, Any]) -> None:
        self.nodes = {node["metadata"]["name"]: node for node in nodes}
        self.pods: list[dict[str, Any]] = []
        self.slices: list[dict[str, Any]] | None = None  # None: an API server without resource.k8s.io
        self.claims: list[dict[str, Any]] = []
        self.lease: dict[str, Any] | None = None
        self.leader: dict[str, Any] | None = None
        self.changes: list[tuple[str, dict[str, Any]]] = []
        self.is_forgotten = False
        self.forbidden: set[str] = set()
        self.requests: list[str] = []
        self.asked_pods: list[str] = []  # of which Node, or "all"
        self.version = 1

    def change(self, kind: str, node: dict[str, Any]) -> None:
        """Have a node added, changed or deleted: the next watch tells."""
        name = node["metadata"]["name"]
        self.nodes.pop(name, None)
        if kind != "DELETED":
            self.nodes[name] = node
        self.version += 1
        node["metadata"]["resourceVersion"] = str(self.version)
        self.changes.append((kind, node))

    def send(self, request: Request) -> ApiResponse:
        """Answer as the API server does."""
        what = "leases" if "/leases/" in request.path else "watch" if "watch" in request.query else "list"
        what = "pods" if request.path.endswith("/pods") else what
        what = request.path.rpartition("/")[2] if "resource.k8s.io" in request.path else what
        self.requests.append(what)
        assert request.method == "GET", "nothing is changed"
        is_of_leader = request.path.endswith(LEADER_NAME)
        if what in self.forbidden or (is_of_leader and "leader" in self.forbidden):
            resource = 'resource "leases" in API group "coordination.k8s.io" in the namespace "kube-system"'
            subject = resource if what == "leases" else 'resource "nodes" in API group ""'
            subject = 'resource "pods" in API group ""' if what == "pods" else subject
            subject = f'resource "{what}" in API group "resource.k8s.io"' if what.startswith("resource") else subject
            verb = "get" if what == "leases" else what if what in {"list", "watch"} else "list"
            return refusal(403, f'nodes is forbidden: User "eve" cannot {verb} {subject}')
        moment = {"Date": format_datetime(datetime(2026, 11, 21, 9, 40, tzinfo=UTC), usegmt=True)}
        if what == "leases":
            lease = self.leader if is_of_leader else self.lease
            return answer(200, lease, moment) if lease else refusal(404, headers=moment)
        if what.startswith("resource"):
            return self._devices(what, str(request.query.get("fieldSelector", "")), moment)
        if what == "watch":
            return self._watch(request, moment)
        if what == "pods":
            node, _, alive = str(request.query["fieldSelector"]).rpartition(f",{ALIVE}")
            assert alive == "" or node == "", request.query
            self.asked_pods.append(node.removeprefix("spec.nodeName=") or "all")
            pods = [each for each in self.pods if self.asked_pods[-1] in {"all", each["spec"]["nodeName"]}]
            return answer(200, {"metadata": {"resourceVersion": "1"}, "items": pods}, moment)
        return answer(
            200, {"metadata": {"resourceVersion": str(self.version)}, "items": list(self.nodes.values())}, moment
        )

    def _devices(self, what: str, selector: str, headers: Mapping[str, str]) -> ApiResponse:
        if self.slices is None:
            return refusal(404, headers=headers)
        if what == "resource.k8s.io":
            version = {"groupVersion": "resource.k8s.io/v1", "version": "v1"}
            return answer(200, {"preferredVersion": version, "versions": [version]}, headers)
        wanted = dict(part.split("=") for part in selector.split(",") if part)
        items = self.slices if what == "resourceslices" else self.claims
        found = [
            each
            for each in items
            if all(each["spec"].get(key.removeprefix("spec.")) == value for key, value in wanted.items())
        ]
        return answer(200, {"metadata": {"resourceVersion": "1"}, "items": found}, headers)

    def _watch(self, request: Request, headers: Mapping[str, str]) -> ApiResponse:
        if self.is_forgotten:
            self.is_forgotten = False
            return ApiResponse(
                code=200, body=b'{"type":"ERROR","object":{"kind":"Status","code":410}}\n', headers=headers
            )
        after = int(request.query["resourceVersion"])
        events = [
            {"type": kind, "object": node}
            for kind, node in self.changes
            if int(node["metadata"]["resourceVersion"]) > after
        ]
        events.append({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self.version)}}})
        return ApiResponse(code=200, body="".join(f"{json.dumps(each)}\n" for each in events).encode(), headers=headers)
