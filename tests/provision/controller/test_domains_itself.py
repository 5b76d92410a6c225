"""ComputeDomains on a real API server with its scheduler, by the account and the rights that the controller has."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from provision.cluster.connect import open_api
from provision.controller.domains.desk import LEDGER, DomainDesk
from provision.controller.domains.objects import DRIVER
from tests.provision.cluster.stage import wait_until
from tests.provision.cluster.test_access import user

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.provision.cluster.stage import Stage
    from tests.provision.controller.fleet import World

pytestmark = [pytest.mark.functional, pytest.mark.timeout(240)]
DEPLOY = Path(__file__).parents[3] / "deploy"
NAMESPACE = "grapnel-system"
_NUMBERS = itertools.count(1)


class Racks:
    """Nodes with channels in cliques, as their daemons publish them, and the domains of a namespace."""

    def __init__(self, stage: Stage, namespace: str) -> None:
        self.stage, self.namespace = stage, namespace
        stage.kubectl("create", "namespace", namespace)
        self.said: list[str] = []
        self.nodes: dict[str, str] = {}

    def add_node(self, clique: str) -> str:
        node = self.stage.make_node(address=f"10.1.0.{len(self.nodes) + 1}")
        self.nodes[node] = f"{self.namespace}.{clique}"
        self.publish(node)
        return node

    def publish(self, node: str, domain: str = "") -> None:
        uid = self.stage.read(f"/api/v1/nodes/{node}")["metadata"]["uid"]
        attributes = {"type": {"string": "channel"}, "id": {"int": 0}, "clique": {"string": self.nodes[node]}}
        attributes |= {"domain": {"string": domain}} if domain else {}
        owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": True}
        made = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{node}-channel", "ownerReferences": [owner]},
            "spec": {
                "driver": DRIVER,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "channel-0", "attributes": attributes}],
            },
        }
        self.stage.kubectl("apply", "-f", "-", data=made)

    def hide(self, node: str) -> None:
        self.stage.kubectl("delete", "resourceslice", f"{node}-channel")

    def add_domain(self, name: str, *, nodes: int = 0, template: str = "", mode: str = "Single") -> str:
        channel = {"resourceClaimTemplate": {"name": template or f"{name}-channel"}, "allocationMode": mode}
        made = {
            "apiVersion": "resource.nvidia.com/v1beta1",
            "kind": "ComputeDomain",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"numNodes": nodes, "channel": channel},
        }
        self.stage.kubectl("create", "-f", "-", data=made)
        return str(self.domain(name)["metadata"]["uid"])

    def domain(self, name: str) -> dict[str, Any]:
        path = f"/apis/resource.nvidia.com/v1beta1/namespaces/{self.namespace}/computedomains/{name}"
        return self.stage.read(path)

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.domain(name).get("status") or {}
        return found

    def names_of(self, name: str) -> list[str]:
        return [each["name"] for each in self.status(name).get("nodes", [])]

    def start_pod(self, domain: str, node: str) -> str:
        """Make a pod for one node as users do; the scheduler gives its claim that node's channel."""
        pod = f"{domain}-{node}"
        made = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod, "namespace": self.namespace},
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": node},
                "tolerations": [{"operator": "Exists"}],
                "resourceClaims": [{"name": "channel", "resourceClaimTemplateName": f"{domain}-channel"}],
                "containers": [{"name": "c", "image": "x", "resources": {"claims": [{"name": "channel"}]}}],
            },
        }
        self.stage.kubectl("label", "node", node, f"kubernetes.io/hostname={node}", "--overwrite")
        self.stage.kubectl("create", "-f", "-", data=made)
        wait_until(lambda: bool(self.claim_of(pod).get("status", {}).get("allocation")), f"{pod} has its claim")
        return pod

    def claim_of(self, pod: str) -> dict[str, Any]:
        found = self.stage.get("resourceclaims", "-n", self.namespace)["items"]
        owned = [each for each in found if any(o["name"] == pod for o in each["metadata"].get("ownerReferences", []))]
        return owned[0] if owned else {}

    def kill_pod(self, pod: str) -> None:
        """Take a pod away whatever its node says."""
        self.stage.kubectl("delete", "pod", pod, "-n", self.namespace, "--force", "--grace-period=0")
        wait_until(lambda: not self.claim_of(pod), f"the claim of {pod} is gone")

    def delete(self, name: str) -> None:
        self.stage.kubectl("delete", "computedomain", name, "-n", self.namespace)


@pytest.fixture(scope="module")
def account(stage: Stage) -> Path:
    """Return the kubeconfig of the controller's account, with the rights for ComputeDomains alone."""
    stage.define(DEPLOY / "crd/computedomains.yaml")
    stage.control_plane.ensure_namespace(NAMESPACE)
    identity = {"name": "grapnel-controller", "namespace": NAMESPACE}
    stage.kubectl("apply", "-f", "-", data={"apiVersion": "v1", "kind": "ServiceAccount", "metadata": identity})
    stage.kubectl("apply", "-f", str(DEPLOY / "rbac/compute-domains.yaml"), "-f", str(DEPLOY / "dra/domainclass.yaml"))
    return user(stage, "domains", stage.kubectl("create", "token", "grapnel-controller", "-n", NAMESPACE).strip())


@pytest.fixture
def racks(stage: Stage, account: Path) -> Iterator[Racks]:
    made = Racks(stage, f"domains-{next(_NUMBERS)}")
    api = open_api(account, None, {})
    assert api is not None
    desk = DomainDesk(api, api, NAMESPACE, say=made.said.append)
    desk.start()
    yield made
    desk.close()
    stage.kubectl("delete", "pods,resourceclaims,computedomains", "--all", "-n", made.namespace, "--force")
    for node in made.nodes:
        stage.kubectl("delete", "node", node)
    stage.kubectl("delete", "configmap", LEDGER, "-n", NAMESPACE, "--ignore-not-found")


def test_pods_ask_by_the_domains_template_and_the_domain_has_their_nodes(racks: Racks) -> None:
    first, second = racks.add_node("1"), racks.add_node("1")
    uid = racks.add_domain("train", nodes=2)
    wait_until(lambda: racks.status("train").get("status") == "NotReady", "its status is written")
    wait_until(lambda: bool(racks.stage.get("resourceclaimtemplates", "-n", racks.namespace)["items"]), "a template")
    for node in (first, second):
        pod = racks.start_pod("train", node)
        assert racks.claim_of(pod)["metadata"]["annotations"]["grapnel.dev/compute-domain"] == "train"
    wait_until(lambda: racks.names_of("train") == [first, second], "both nodes are in", explain=lambda: str(racks.said))
    (entry, _) = racks.status("train")["nodes"]
    assert (entry["ipAddress"], entry["cliqueID"], entry["status"]) == ("10.1.0.1", racks.nodes[first], "NotReady")
    for node in (first, second):
        racks.publish(node, uid)
    wait_until(lambda: racks.status("train")["status"] == "Ready", "all nodes say that the domain has them")
    assert racks.said == []
    racks.delete("train")
    templates = ("resourceclaimtemplates", "-n", racks.namespace)
    wait_until(lambda: not racks.stage.get(*templates)["items"], "the template goes with its domain")


def test_a_clique_is_one_domains_until_its_nodes_say_that_they_are_free(racks: Racks) -> None:
    first, second = racks.add_node("1"), racks.add_node("1")
    uid = racks.add_domain("one")
    racks.add_domain("two")
    wait_until(lambda: len(racks.stage.get("resourceclaimtemplates", "-n", racks.namespace)["items"]) == 2, "templates")
    pod = racks.start_pod("one", first)
    wait_until(lambda: racks.names_of("one") == [first], "the first domain has the clique")
    racks.publish(first, uid)
    racks.start_pod("two", second)
    wait_until(lambda: "another ComputeDomain" in racks.status("two").get("message", ""), "the second one waits")
    racks.kill_pod(pod)
    racks.delete("one")  # the pod was forced away, and runs on: its node still says so
    wait_until(lambda: any("still has claims" in each for each in racks.said), "it is said who has the clique")
    assert racks.names_of("two") == []
    racks.hide(first)  # as a kubelet does that starts
    wait_until(lambda: any("publishes no channel" in each for each in racks.said), "nothing said is not free")
    assert racks.names_of("two") == []
    racks.publish(first)
    wait_until(lambda: racks.names_of("two") == [second], "the second domain has it", explain=lambda: str(racks.said))
    assert racks.status("two")["message"] == ""


def test_a_node_that_is_gone_keeps_no_clique(racks: Racks) -> None:
    first, second = racks.add_node("1"), racks.add_node("1")
    uid = racks.add_domain("one")
    racks.add_domain("two")
    wait_until(lambda: len(racks.stage.get("resourceclaimtemplates", "-n", racks.namespace)["items"]) == 2, "templates")
    racks.start_pod("one", first)
    wait_until(lambda: racks.names_of("one") == [first], "the first domain has the clique")
    racks.publish(first, uid)
    racks.delete("one")
    racks.start_pod("two", second)
    racks.stage.kubectl("delete", "node", first)
    racks.nodes.pop(first)
    wait_until(lambda: racks.names_of("two") == [second], "the second domain has it", explain=lambda: str(racks.said))


def test_what_cannot_be_served_says_why(racks: Racks) -> None:
    racks.add_domain("all", mode="All")
    taken = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "mine", "namespace": racks.namespace},
        "spec": {"spec": {}},
    }
    racks.stage.kubectl("create", "-f", "-", data=taken)
    racks.add_domain("taken", template="mine")
    wait_until(lambda: "allocationMode All" in racks.status("all").get("message", ""), "all channels are refused")
    wait_until(lambda: "is not of this" in racks.status("taken").get("message", ""), "a template of others is left")


def test_the_controller_serves_them_where_it_is_to(world: World, account: Path) -> None:
    assert account.exists()
    made = Racks(world.stage, f"domains-{next(_NUMBERS)}")
    made.add_domain("one")
    templates = ("resourceclaimtemplates", "-n", made.namespace)
    world.domains_in = NAMESPACE
    with world.controller():
        wait_until(lambda: bool(world.stage.get(*templates)["items"]), "a template", explain=lambda: str(world.said))
    made.delete("one")


def test_a_ledger_that_cannot_be_read_is_not_guessed(racks: Racks) -> None:
    node = racks.add_node("1")
    racks.add_domain("one")
    templates = ("resourceclaimtemplates", "-n", racks.namespace)
    wait_until(lambda: bool(racks.stage.get(*templates)["items"]), "a template")
    racks.stage.kubectl("delete", "configmap", LEDGER, "-n", NAMESPACE, "--ignore-not-found")
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": LEDGER, "namespace": NAMESPACE}}
    racks.stage.kubectl("create", "-f", "-", data={**made, "data": {"cliques.json": "["}})
    racks.start_pod("one", node)
    wait_until(lambda: any("cannot be read" in each for each in racks.said), "it is said")
    assert racks.names_of("one") == []
    patch = json.dumps({"data": {"cliques.json": "{}"}})
    racks.stage.kubectl("patch", "configmap", LEDGER, "-n", NAMESPACE, "--type=merge", "-p", patch)
    wait_until(lambda: racks.names_of("one") == [node], "it goes on", explain=lambda: str(racks.said))
