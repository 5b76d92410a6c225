"""ComputeDomains as a whole: two nodes' daemons in a clique, the controller's part, a real API server and scheduler.

A kubelet is played; IMEX is simulated.
"""

from __future__ import annotations

import json
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import pytest

from lab.kubelet import Kubelet
from lab.nvml.imex import READY
from provision.cluster.connect import open_api
from provision.controller.domains.desk import LEDGER, DomainDesk
from tests.plugin.daemon_process import REPOSITORY
from tests.plugin.dra.conftest import NUMBERS
from tests.plugin.dra.test_domains_and_api import NAME, Node, served
from tests.plugin.node_object.real_cluster import register
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.cluster import ControlPlane

__all__ = ["served"]
pytestmark = [pytest.mark.functional, pytest.mark.timeout(300)]
NAMESPACE = "grapnel-system"


class Clique:
    """Two nodes of a clique with domains of one namespace."""

    def __init__(self, control_plane: ControlPlane, first: Node, second: Node) -> None:
        self.control_plane, self.first, self.second = control_plane, first, second

    def start_pod(self, name: str, domain: str, node: Node) -> str:
        """Make a pod as users do; returns the UID of the claim that it has by the scheduler."""
        made = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": node.name},
                "tolerations": [{"operator": "Exists"}],
                "resourceClaims": [{"name": "channel", "resourceClaimTemplateName": f"{domain}-channel"}],
                "containers": [{"name": "c", "image": "none", "resources": {"claims": [{"name": "channel"}]}}],
            },
        }
        self.control_plane.kubectl(["create", "-f", "-"], input_text=json.dumps(made))
        wait_until(lambda: self._claim_of(name) is not None, lambda: f"{name} was given no channel")
        return str(self._claim_of(name))

    def _claim_of(self, pod: str) -> str | None:
        """Return name and UID of a pod's claim, once it is allocated."""
        found = json.loads(self.control_plane.kubectl(["get", "resourceclaims", "-o", "json"]))["items"]
        for each in found:
            owners = [owner["name"] for owner in each["metadata"].get("ownerReferences", [])]
            if pod in owners and each.get("status", {}).get("allocation"):
                return f"{each['metadata']['name']} {each['metadata']['uid']}"
        return None

    def end_pod(self, name: str) -> None:
        self.control_plane.kubectl(["delete", "pod", name, "--force", "--grace-period=0"])

    def message(self, domain: str) -> str:
        path = ["get", "computedomain", domain, "-o", "jsonpath={.status.message}"]
        return self.control_plane.kubectl(path)

    def status(self, domain: str) -> str:
        return self.control_plane.kubectl(["get", "computedomain", domain, "-o", "jsonpath={.status.status}"])

    def make_domain(self, name: str) -> None:
        spec = {"numNodes": 1, "channel": {"resourceClaimTemplate": {"name": f"{name}-channel"}}}
        made = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain", "metadata": {"name": name}}
        self.control_plane.kubectl(["create", "-f", "-"], input_text=json.dumps({**made, "spec": spec}))
        self.wait_for_template(name)

    def wait_for_template(self, name: str) -> None:
        words = ["get", "resourceclaimtemplates", "-o", "name"]
        wait_until(lambda: f"/{name}-channel" in self.control_plane.kubectl(words), lambda: f"no template of {name}")


def prepared(node: Node, claim: str) -> str:
    """Have a kubelet ask for a claim; returns what is said against it."""
    name, uid = claim.split()
    return node.prepare(name, uid)[1]


@pytest.fixture
def clique(served: ControlPlane, tmp_path: Path) -> Iterator[Clique]:
    served.kubectl(["apply", "-f", str(REPOSITORY / "deploy/dra/domainclass.yaml")])
    api = open_api(served.kubeconfig, None, {})
    assert api is not None
    desk = DomainDesk(api, api, NAMESPACE, say=print)
    with ExitStack() as stack:
        nodes = []
        for number in range(2):
            name, folder = f"clique-{next(NUMBERS)}", tmp_path / str(number)
            folder.mkdir()
            register(served, name)
            room = json.dumps({"status": {"capacity": {"pods": "10"}, "allocatable": {"pods": "10"}}})
            served.kubectl(["patch", "node", name, "--subresource=status", "--type=merge", "-p", room])
            kubelet = stack.enter_context(Kubelet(folder / "kubelet-root", has_pod_resources=True))
            made = Node(served, name, folder, kubelet)
            served.kubectl(["delete", "computedomain", NAME])
            node = stack.enter_context(closing(made))
            node.imex.run()
            node.imex.say(READY)
            stack.enter_context(node.daemon)
            node.register()
            nodes.append(node)
        desk.start()
        yield Clique(served, *nodes)
        desk.close()
    served.kubectl(["delete", "configmap", LEDGER, "-n", NAMESPACE, "--ignore-not-found"])
    for node in nodes:
        served.kubectl(["delete", "node", node.name])


def test_a_domain_has_the_clique_until_its_last_node_has_given_it_back(clique: Clique) -> None:
    first, second = clique.first, clique.second
    clique.make_domain("one")
    clique.make_domain("two")
    claims = [clique.start_pod(f"one-{number}", "one", node) for number, node in enumerate((first, second))]
    assert [prepared(first, claims[0]), prepared(second, claims[1])] == ["", ""]
    wait_until(lambda: clique.status("one") == "Ready", lambda: clique.message("one"))

    clique.end_pod("one-0")  # by force: its node hears of it later, or never
    waiting = clique.start_pod("two-0", "two", first)
    assert "still has" in prepared(first, waiting)
    name, uid = claims[0].split()
    assert first.claims.unprepare(name, uid) == ""
    assert "another ComputeDomain" in prepared(first, waiting)  # the other node of the clique has it

    clique.control_plane.kubectl(["delete", "computedomain", "one"])
    clique.end_pod("one-1")
    assert "another ComputeDomain" in prepared(first, waiting)
    name, uid = claims[1].split()
    assert second.claims.unprepare(name, uid) == ""
    wait_until(lambda: prepared(first, waiting) == "", lambda: clique.message("two"))
    assert "domain" not in second.channel()
