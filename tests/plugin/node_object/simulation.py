"""An API in memory and a clock by hand, for a session: thousands of calls a second."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from plugin.base.errors import ClusterError
from plugin.publication.node_object.answers import content_of
from plugin.publication.node_object.api.messages import ApiResponse
from plugin.publication.node_object.requests import MERGE
from plugin.publication.node_object.session import Dependencies, Rhythm, Session
from tests.plugin.node_object.written_log import WrittenLog

if TYPE_CHECKING:
    from plugin.publication.node_object.api.messages import Request

OWN = "grapnel-node"


class Simulation:
    """One Node, whose API answers, fails with a status, or is away (`failing` 0)."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.uid = 1
        self.exists = True
        self.failing: int | None = None
        self.retry_after = ""
        self.is_full = False  # whether annotations are too large
        self.is_lost = False  # whether the next answer is lost on its way
        self.labels: dict[str, tuple[str, str]] = {}
        self.annotations: dict[str, str] = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
        self.conditions: dict[str, dict[str, str]] = {}
        self.features: dict[str, dict[str, Any]] = {}  # by namespace
        self.namespaces = {"node-feature-discovery"}
        self.features_are_of = ""  # whose they are, if not ours
        self.evicted: list[str] = []  # uids, as often as they were
        self.protected: set[str] = set()  # uids that a budget keeps
        self.refusing_evictions: int | None = None
        self.events: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[float, str]] = []
        self.logger = WrittenLog()
        self._number = 0
        dependencies = Dependencies(clock=lambda: self.now_s, utc=lambda: f"t{self.now_s:g}", number=self._next)
        self.session = Session("n1", self._ask, self.logger, Rhythm(), dependencies)

    def _next(self) -> int:
        self._number += 1
        return self._number * 0x9E37_79B9_7F4A_7C15 % 2**64

    def settle(self, for_s: float) -> None:
        """Let time pass, and the session work whenever it wants to."""
        end_s = self.now_s + for_s
        while self.now_s < end_s:
            wait_s = self.session.work()
            self.now_s = end_s if wait_s is None else min(end_s, self.now_s + max(wait_s, 0.001))
        self.session.work()

    def own_labels(self) -> dict[str, str]:
        return {key: value for key, (value, owner) in self.labels.items() if owner == OWN}

    def shown(self) -> dict[str, tuple[str, str, str]]:
        return {kind: (row["status"], row["reason"], row["message"]) for kind, row in self.conditions.items()}

    def count(self, what: str) -> int:
        return sum(what in call for _, call in self.calls)

    def recreate(self) -> None:
        self.uid += 1
        self.exists = True
        self.labels, self.conditions, self.annotations = {}, {}, {}

    def _ask(self, request: Request) -> dict[str, Any]:
        self.calls.append((self.now_s, f"{request.verb} {request.resource}"))
        if self.failing == 0:
            raise ClusterError("api:6443: connection refused")
        if self.failing is not None:
            return content_of(request, ApiResponse(self.failing, b'{"message": "as told"}', self.retry_after))
        answer = content_of(request, self._answer(request))
        if self.is_lost:
            self.is_lost = False
            raise ClusterError("api:6443: no answer in time")
        return answer

    def _answer(self, request: Request) -> ApiResponse:
        body = json.loads(request.body) if request.body else {}
        if request.resource == "events":
            return self._event(request, body)
        if request.resource == "pods/eviction":
            return self._evict(body["deleteOptions"]["preconditions"]["uid"])
        if request.resource == "nodefeatures":
            return self._feature(body)
        if not self.exists:
            return ApiResponse(404)
        if request.resource == "nodes/status":
            for row in body["status"]["conditions"]:
                self.conditions[row["type"]] = row
        elif request.content_type == MERGE:
            return self._annotate(body["metadata"])
        elif request.method == "PATCH":
            return self._apply(body["metadata"])
        return self._node()

    def _event(self, request: Request, body: dict[str, Any]) -> ApiResponse:
        name = body["metadata"]["name"] if request.method == "POST" else request.path.rpartition("/")[2]
        if request.method == "POST" and name in self.events:
            return ApiResponse(409)
        if request.method == "PATCH" and name not in self.events:
            return ApiResponse(404)
        self.events[name] = {**self.events.get(name, {}), **body}
        return ApiResponse(201, b"{}")

    def _evict(self, uid: str) -> ApiResponse:
        if self.refusing_evictions or uid in self.protected:
            return ApiResponse(self.refusing_evictions or 429, b'{"message": "as told"}')
        self.evicted.append(uid)
        return ApiResponse(201, b'{"status": "Success"}')

    def _feature(self, body: dict[str, Any]) -> ApiResponse:
        namespace = body["metadata"]["namespace"]
        if namespace not in self.namespaces:
            return ApiResponse(404, b'{"message": "the server could not find the requested resource"}')
        if self.features_are_of:
            return ApiResponse(409, b'{"message": "Apply failed with 1 conflict: .spec.labels"}')
        self.features[namespace] = body
        return ApiResponse(200, json.dumps(body).encode())

    def _annotate(self, metadata: dict[str, Any]) -> ApiResponse:
        if metadata["uid"] != str(self.uid) or self.is_full:
            return ApiResponse(422, b'{"message": "metadata.uid: field is immutable"}')
        merged = {**self.annotations, **metadata["annotations"]}
        self.annotations = {key: value for key, value in merged.items() if value is not None}
        return self._node()

    def _apply(self, metadata: dict[str, Any]) -> ApiResponse:
        if metadata["uid"] != str(self.uid):
            return ApiResponse(409)
        taken = {
            key: self.labels[key][1]
            for key, value in metadata["labels"].items()
            if key in self.labels and self.labels[key] != (value, OWN) and self.labels[key][1] != OWN
        }
        if taken:
            causes = [
                {
                    "reason": "FieldManagerConflict",
                    "message": f'conflict with "{owner}" using v1',
                    "field": f".metadata.labels.{key}",
                }
                for key, owner in taken.items()
            ]
            return ApiResponse(409, json.dumps({"details": {"causes": causes}}).encode())
        others = {key: pair for key, pair in self.labels.items() if pair[1] != OWN}
        self.labels = {**others, **{key: (value, OWN) for key, value in metadata["labels"].items()}}
        return self._node()

    def _node(self) -> ApiResponse:
        labels = {key: value for key, (value, _) in self.labels.items()}
        metadata = {"uid": str(self.uid), "labels": labels, "annotations": self.annotations}
        status = {"conditions": list(self.conditions.values())}
        return ApiResponse(200, json.dumps({"metadata": metadata, "status": status}).encode())
