"""A controller on a real API server; behind it machines in memory that have a driver, or take one."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.cluster.kubernetes.api.client import Api
from provision.cluster.kubernetes.api.kubeconfig import read_kubeconfig
from provision.cluster.kubernetes.api.transport import Transport
from provision.cluster.kubernetes.cluster import KubernetesCluster
from provision.controller.loop import Controller
from provision.controller.nodes import AS_DECLARED, NOT_READY
from provision.controller.rounds.apply import Dependencies
from provision.planning.node_plan import Disruption, NodePlan
from provision.planning.supply.payload.model import Artifact, Payload
from tests.provision.apply.fakes import FakeNode, item
from tests.provision.cluster.stage import GPU_RULES, NODE_INFO, READY, path_of, wait_until
from tests.provision.controller.machines import Machines
from tests.provision.stacks.samples import document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from provision.apply.context import Planner
    from provision.apply.declarations import Declarations
    from provision.cluster.kubernetes.api.client import Sender
    from provision.cluster.kubernetes.cluster import Held
    from provision.declaration.fleet.facts.node import NodeFacts
    from tests.provision.cluster.stage import Stage

OLD, NEW = "535.261.03", "550.163.01"
ARTIFACT = Artifact("/archive", "0" * 64)
PAYLOAD = Payload(hook=ARTIFACT, driver=ARTIFACT, node=ARTIFACT, unit="[Unit]")


def driver(version: str) -> str:
    """Return the package of a driver."""
    return f"driver-{version}"


def remove_stacks(stage: Stage) -> None:
    """Remove every stack, also one that a rollout which was cut short has left with a finalizer."""
    api = stage.control_plane.api
    for stack in stage.read(path_of("gpustack"))["items"]:
        path = path_of("gpustack", stack["metadata"]["name"])
        api.merge(path, {"metadata": {"finalizers": None}})
        if api.get(path) is not None:  # who was deleted already has gone
            api.delete(path)


@contextmanager
def planner(declarations: Declarations, _payload: Payload) -> Iterator[Planner]:
    """Plan a driver: a machine that has another one has to be taken out of service for it."""

    def plan(node: str, facts: NodeFacts, _cancel: threading.Event) -> NodePlan:
        wanted = driver(declarations.stacks[node].driver.version or "")
        if wanted in facts.packages:
            return NodePlan(node=node)
        has_one = any(name.startswith("driver-") for name in facts.packages)
        disruption = Disruption.DRAIN if has_one else Disruption.NONE
        return NodePlan(node=node, items=(item(wanted, disruption=disruption),))

    yield plan


@dataclass
class World:
    """An API server, machines, and a pool of Nodes with a name of its own.

    Where an API server that answers with errors is borne for 30 s, ``haste`` makes that a part of it.
    """

    stage: Stage
    pool: str
    machines: Machines = field(default_factory=lambda: Machines({}))
    said: list[str] = field(default_factory=list)
    kubeconfig: Path | None = None
    wrap: Callable[[Sender], Sender] = lambda sender: sender
    haste: float = 1.0
    domains_in: str = ""

    def join(self, *packages: str, is_new: bool = False) -> str:
        """Have a machine join the cluster with what is installed on it; return its name."""
        name = f"{self.pool}-{len(self.machines.nodes)}"
        self.machines.nodes[name] = FakeNode(packages=list(packages))  # before anybody can see its Node
        taints = [{"key": NOT_READY, "effect": "NoSchedule"}] if is_new else []
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"pool": self.pool}},
            "spec": {"taints": taints},
            "status": {"conditions": READY, "nodeInfo": {"machineID": "", **dict.fromkeys(NODE_INFO, "")}},
        }
        self.stage.create(node)
        return name

    def declare(self, name: str | None = None, **spec: object) -> None:
        """Apply the stack of the pool."""
        given = document(name or self.pool, {"nodeSelector": {"matchLabels": {"pool": self.pool}}, **spec})
        self.stage.control_plane.api.apply(path_of("gpustack", name or self.pool), given, "people")

    def status(self, name: str | None = None) -> dict[str, Any]:
        """Return the status of the stack."""
        found: dict[str, Any] = self.stage.get("gpustack", name or self.pool).get("status", {})
        return found

    def wait_for(self, state: str, name: str | None = None, timeout_s: float = 60.0) -> dict[str, Any]:
        """Wait until the stack is in a state, for its present generation; return its status."""

        def is_there() -> bool:
            found = self.stage.get("gpustack", name or self.pool)
            status = found.get("status", {})
            is_present = status.get("observedGeneration") == found["metadata"]["generation"]
            return is_present and status.get("state") == state

        explain = lambda: json.dumps(self.status(name), indent=1) + "\n".join(self.said[-30:])  # noqa: E731
        wait_until(is_there, f"{self.pool} is {state}", timeout_s, explain=explain)
        return self.status(name)

    def node(self, name: str) -> Any:
        """Return a Node."""
        return self.stage.get("node", name)

    def is_marked(self, name: str) -> bool:
        """Tell whether a Node says what it was brought to."""
        return AS_DECLARED in self.node(name)["metadata"].get("annotations", {})

    def taints(self, name: str) -> list[str]:
        """Return the keys of a Node's taints."""
        return [taint["key"] for taint in self.node(name)["spec"].get("taints", [])]

    def asked(self, playbook: str) -> list[str]:
        """Return the nodes on which a playbook was run, in order."""
        return [node for name, nodes in list(self.machines.runs) if name == playbook for node in nodes]

    def is_out(self, name: str) -> bool:
        """Tell whether a Node takes no pods."""
        return bool(self.node(name)["spec"].get("unschedulable", False))

    def is_there(self, kind: str, name: str) -> bool:
        """Tell whether there is an object of that name."""
        return any(each["metadata"]["name"] == name for each in self.stage.read(path_of(kind))["items"])

    def delete(self, name: str | None = None) -> None:
        """Delete the stack of the pool; its finalizers are not waited for."""
        self.stage.control_plane.api.delete(path_of("gpustack", name or self.pool))

    def wait(self, is_true: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
        """Wait for something, and show what the controller has said where it does not come."""
        wait_until(is_true, what, timeout_s, explain=lambda: "\n".join(self.said[-30:]))

    def api(self) -> Api:
        """Connect as who the controller is: by default the administrator."""
        path = self.kubeconfig or self.stage.control_plane.kubeconfig
        return Api(self.wrap(Transport(read_kubeconfig((path,), None))), clock=lambda: time.monotonic() * self.haste)

    @contextlib.contextmanager
    def controller(self, holder: str = "controller-a", *, node: str = "") -> Iterator[Controller]:
        """Run a controller while inside, as if it was on ``node``; what ends it is raised."""
        found = self.make_controller(holder, node)
        ended: list[BaseException] = []

        def run() -> None:
            try:
                found.run()
            except BaseException as error:  # noqa: BLE001 - raised below
                ended.append(error)

        thread = threading.Thread(target=run, name=holder)
        thread.start()
        try:
            yield found
        finally:
            found.stop()
            thread.join(60)
        assert not thread.is_alive()
        if ended:
            raise ended[0]

    def make_controller(self, holder: str, node: str = "") -> Controller:
        """Return a controller that is not running."""
        api = self.api()

        def dependencies(held: Held) -> Dependencies:
            return Dependencies(
                runner=self.machines,
                collection=Path("/collection"),
                payload=PAYLOAD,
                open_cluster=lambda _stacks: KubernetesCluster(api, rules=GPU_RULES, machines={}, tenure=held),
                holder=holder,
                parallel=4,
                planner=planner,
            )

        return Controller(api, dependencies, holder, say=self.said.append, node=node, domains_in=self.domains_in)
