"""A cluster in memory with NVIDIA's maintenance operator in it, behind the seam of the API's client.

It keeps to what is published of the operator, and asserts what has to be true of whoever asks it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

from provision.apply.model import Failure, Status
from provision.cluster.kubernetes.api.client import Api
from provision.cluster.kubernetes.cluster import KubernetesCluster
from provision.cluster.kubernetes.nodes.maintenances import CORDONED_BEFORE, MAINTENANCES, NAMESPACE, OURS, REQUESTOR
from provision.cluster.kubernetes.nodes.marks import UPGRADE
from provision.cluster.kubernetes.nodes.others import Asked
from provision.cluster.kubernetes.pods.pod_rules import PodRules
from provision.cluster.machine import Machine
from provision.cluster.record import decode_record
from provision.rollout.decision.policy import Policy
from provision.rollout.model import NodeView, Phase
from provision.rollout.step import StepOutcome
from tests.provision.cluster.fakes import Clock as Seconds
from tests.provision.cluster.fakes import answer, refusal
from tests.provision.cluster.samples import NOW
from tests.provision.cluster.test_node_requests import merge
from tests.provision.rollout.fakes import NEW, OLD, Clock, make_engine, state

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterator

    from provision.apply.model import Observer
    from provision.cluster.kubernetes.api.exchange import ApiResponse, Request
    from provision.rollout.decision.outcome import RolloutResult
    from provision.rollout.model import Origin

STATES = ("Pending", "Scheduled", "Cordon", "WaitForPodCompletion", "Draining", "Ready")
NODES = "/api/v1/nodes"
ASKED = Asked(maintenances=True, opts_out=True)


class KilledError(BaseException):
    """The process ends here."""


class Operated:
    """Nodes, NodeMaintenances, and the operator, which goes one state further whenever they are listed.

    ``effect`` is called ahead of every change. ``last`` is the state in which the operator stops.
    """

    name = "cluster x"

    def __init__(self, *names: str, **labels: str) -> None:
        self.numbers = itertools.count(1)
        self.nodes: dict[str, dict[str, Any]] = {}
        for name in names:
            self.register(name, machine_id=f"{len(self.nodes):032x}", labels=labels)
        self.maintenances: dict[str, dict[str, Any]] = {}
        self.drivers = dict.fromkeys(names, OLD)
        self.last = "Ready"
        self.requests: list[Request] = []
        self.effect: Callable[[str], None] = lambda _what: None

    def register(self, name: str, *, machine_id: str, labels: dict[str, str] | None = None) -> None:
        """Make the Node, as a kubelet does; an object of that name is gone with all that was on it."""
        self.nodes[name] = {
            "metadata": {
                "name": name,
                "uid": f"uid-{next(self.numbers)}",
                "resourceVersion": str(next(self.numbers)),
                "labels": dict(labels or {}),
                "annotations": {},
            },
            "spec": {},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"machineID": machine_id}},
        }

    def ours(self) -> list[str]:
        """Return the Nodes that grapnel has requested the maintenance of."""
        return [each["spec"]["nodeName"] for each in self.maintenances.values() if _requestor(each) == REQUESTOR]

    def send(self, request: Request) -> ApiResponse:
        """Answer as the API server does."""
        self.requests.append(request)
        date = {"Date": format_datetime(NOW, usegmt=True)}
        if request.method != "GET":
            self.effect(f"{request.method} {request.path}")
        if request.path.startswith(MAINTENANCES.removesuffix("/nodemaintenances")):
            return self._maintenance(request, date)
        if "/leases/" in request.path:
            return refusal(404, headers=date)
        if not request.path.startswith(NODES):
            return answer(200, {"items": []}, date)
        name = request.path.removeprefix(NODES).removeprefix("/")
        if not name:
            return answer(200, {"items": list(self.nodes.values())}, date)
        if name not in self.nodes:
            return refusal(404, headers=date)
        if request.method == "PATCH":
            return self._patch(name, request, date)
        return answer(200, self.nodes[name], date)

    def _patch(self, name: str, request: Request, date: dict[str, str]) -> ApiResponse:
        assert request.body is not None
        node, body = self.nodes[name], request.body
        if body["metadata"]["resourceVersion"] != node["metadata"]["resourceVersion"]:
            return refusal(409, "the object has been modified", headers=date)
        was_cordoned = node["spec"].get("unschedulable", False)
        merge(node, json.loads(json.dumps(body)))
        node["metadata"]["resourceVersion"] = str(next(self.numbers))
        text = node["metadata"]["annotations"].get(UPGRADE)
        record = None if text is None else decode_record(text)
        if record is None or record.phase.is_over:
            assert name not in self.ours(), "what was requested is withdrawn before its record is over"
        elif record.is_requested and record.phase is Phase.DRAIN:
            assert self.is_ready(name), "a node is taken out of service when that is granted"
        elif record.is_requested and record.phase is Phase.CORDON:
            assert node["spec"].get("unschedulable", False) == was_cordoned, "it is not cordoned before"
        return answer(200, node, date)

    def is_ready(self, node: str) -> bool:
        """Tell whether a maintenance of a Node is granted."""
        return any(_is_ready(each) for each in self.maintenances.values() if each["spec"]["nodeName"] == node)

    def _maintenance(self, request: Request, date: dict[str, str]) -> ApiResponse:
        name = request.path.removeprefix(OURS).removeprefix("/")
        if request.method == "POST":
            assert request.body is not None
            return self._create(json.loads(json.dumps(request.body)), date)
        if request.path in (MAINTENANCES, OURS):
            found = [each for each in self.maintenances.values() if each["metadata"]["namespace"] == NAMESPACE]
            for each in found if "limit" in request.query and request.query["limit"] != 1 else ():
                self._go_on(each)
            return answer(200, {"items": found}, date)
        if name not in self.maintenances:
            return refusal(404, headers=date)
        if request.method == "DELETE":
            assert request.body is not None
            found_uid = self.maintenances[name]["metadata"]["uid"]
            assert request.body["preconditions"]["uid"] == found_uid
            del self.maintenances[name]
            return answer(200, {}, date)
        return answer(200, self.maintenances[name], date)

    def _create(self, body: dict[str, Any], date: dict[str, str]) -> ApiResponse:
        name, node = body["metadata"]["name"], body["spec"]["nodeName"]
        if name in self.maintenances:
            return refusal(409, "already exists", headers=date)
        assert body["metadata"]["annotations"][CORDONED_BEFORE] == "true", "the operator would cordon and uncordon it"
        assert body["metadata"]["ownerReferences"][0]["uid"] == self.nodes[node]["metadata"]["uid"]
        body["metadata"]["uid"] = f"uid-{next(self.numbers)}"
        self.maintenances[name] = body
        return answer(201, body, date)

    def _go_on(self, maintenance: dict[str, Any]) -> None:
        state_ = _state(maintenance)
        following = STATES[STATES.index(state_) + 1] if state_ and state_ != self.last else state_ or "Pending"
        status = "True" if following == "Ready" else "False"
        maintenance["status"] = {"conditions": [{"type": "Ready", "status": status, "reason": following}]}


def _requestor(maintenance: dict[str, Any]) -> str:
    found: str = maintenance["spec"]["requestorID"]
    return found


def _state(maintenance: dict[str, Any]) -> str:
    conditions = maintenance.get("status", {}).get("conditions", [])
    return next((each["reason"] for each in conditions if each["type"] == "Ready"), "")


def _is_ready(maintenance: dict[str, Any]) -> bool:
    return _state(maintenance) == "Ready"


class Looking(KubernetesCluster):
    """Lists in every turn: this server has no watches."""

    @contextlib.contextmanager
    def watching(self, nodes: Collection[str], wake: Callable[[], None]) -> Iterator[None]:
        """Follow nothing."""
        del nodes, wake
        yield


class Hurried(Seconds):
    """A clock by which everything is due again at the next look."""

    def __call__(self) -> float:
        self.now += 10.0
        return self.now


def connect(server: Operated, asked: Asked = ASKED) -> KubernetesCluster:
    """Return the cluster as an engine has it."""
    clock = Hurried()
    machines = {name: Machine() for name in server.nodes}
    rules = PodRules(resources=frozenset({"nvidia.com/gpu"}))
    return Looking(Api(server, sleep=clock.sleep, clock=clock), rules=rules, machines=machines, asked=asked)  # type: ignore[arg-type]  # it streams nothing


class Steps:
    """Steps on nodes: they change the driver, or fail in the phases of ``broken``."""

    def __init__(self, server: Operated, *broken: Phase, meet: Callable[[str, Phase], None] | None = None) -> None:
        self._server, self._broken, self._meet = server, broken, meet or (lambda _node, _phase: None)

    def run(
        self, node: str, phase: Phase, observe: Observer, cancel: threading.Event, back: Origin | None = None
    ) -> StepOutcome:
        """Run a step."""
        del observe, cancel
        self._server.effect(f"{phase} {node}")
        self._meet(node, phase)
        if phase in self._broken and (back is None or phase is Phase.ROLLBACK):
            return StepOutcome(failure=Failure(Status.FAILED, f"{phase} is broken"))
        if phase is Phase.SWAP:
            self._server.drivers[node] = NEW
        if phase is Phase.ROLLBACK:
            self._server.drivers[node] = OLD
        return StepOutcome()


def apply(server: Operated, steps: Steps | None = None, asked: Asked = ASKED) -> RolloutResult:
    """Run one process to its end, on a cluster that was looked at before."""
    cluster = connect(server, asked)
    views = cluster.observe(list(server.nodes))
    nodes = []
    for name, view in views.items():
        assert isinstance(view, NodeView)
        is_done = server.drivers[name] == NEW
        more = {"origin": server.drivers[name], "is_disruptive": not is_done, "is_as_declared": is_done}
        nodes.append(state(name, view, **more))
    policy = Policy(max_parallel=2, max_unavailable=2, max_failures=9)
    return make_engine(cluster, steps or Steps(server), nodes, policy, Clock()).run()  # type: ignore[arg-type]  # by protocol
