"""The whole daemon as the driver of ComputeDomains: a real API server, a simulated IMEX, and calls of a kubelet."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from lab.kubelet import Kubelet
from lab.kubelet.claims import DraKubelet, create_allocated, published
from lab.machine.errors import CommandError
from lab.nvml.imex import READY, Imex
from plugin.dra.domains.decision import DRIVER
from plugin.driver.snapshot import Snapshot
from plugin.driver.topology.facts import GpuLinks, LinkFacts
from tests.plugin.daemon_process import REPOSITORY, DaemonProcess
from tests.plugin.fakes import VERSION, gpus, write_driver
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.cluster import ControlPlane

pytestmark = pytest.mark.functional  # a daemon of its own for each test, and an API server

CLIQUE = "8f1b2c3d-0000-4000-8000-00000000000a.7"
NAME = "training"


@pytest.fixture(scope="module")
def served(control_plane: ControlPlane) -> ControlPlane:
    """An API server that knows ComputeDomains, and nodes that may read them."""
    control_plane.kubectl(["apply", "-f", str(REPOSITORY / "deploy/crd/computedomains.yaml")])
    control_plane.kubectl(["wait", "--for=condition=Established", "crd/computedomains.resource.nvidia.com"])
    control_plane.ensure_namespace("grapnel-system")
    control_plane.kubectl(["apply", "-f", str(REPOSITORY / "deploy/rbac/compute-domains.yaml")])
    return control_plane


class Node:
    """A daemon on a node of a clique, its IMEX, and a domain with a claim of it."""

    def __init__(self, control_plane: ControlPlane, name: str, folder: Path, kubelet: Kubelet) -> None:
        self.control_plane, self.name, self.kubelet = control_plane, name, kubelet
        self.daemon = DaemonProcess(folder, 2)
        self.daemon.kubelet_root = kubelet.folder.parent
        self.claims = DraKubelet(kubelet.folder.parent, DRIVER)
        self.kubeconfig = folder / "kubelet.conf"
        self.kubeconfig.write_text(control_plane.render_kubeconfig(control_plane.certificates.prepare_node(name)))
        self.imex = Imex(folder, folder / "proc", folder / "dev")
        self.imex.add_channel()
        links = LinkFacts(tuple(GpuLinks(each.uuid, fabric=CLIQUE) for each in gpus(2)))
        write_driver(self.daemon.driver, Snapshot(VERSION, gpus(2), links=links))
        self.uid = self.make_domain()
        self.declare()

    def declare(self, *, computeDomains: bool = True) -> None:  # noqa: N803 - as the file has it
        self.daemon.configure(
            interface="dra",
            computeDomains=computeDomains,
            kubernetesApi=str(self.kubeconfig),
            nodeName=self.name,
            cdiFolder=str(self.daemon.node / "cdi"),
            procRoot=str(self.daemon.node / "proc"),
        )

    def make_domain(self) -> str:
        spec = {"numNodes": 1, "channel": {"resourceClaimTemplate": {"name": f"{NAME}-channel"}}}
        metadata = {"name": NAME, "namespace": "default"}
        document = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain", "metadata": metadata}
        create = ["create", "-f", "-", "-o", "jsonpath={.metadata.uid}"]
        return self.control_plane.kubectl(create, input_text=json.dumps({**document, "spec": spec})).strip()

    def admit(self, *nodes: str, clique: str = CLIQUE) -> None:
        """Write the domain's status as the controller does."""
        rows = [{"name": each, "ipAddress": "10.0.0.1", "cliqueID": clique, "index": 0} for each in nodes]
        patch = json.dumps({"status": {"status": "NotReady", "nodes": rows}})
        words = ["patch", "computedomain", NAME, "--subresource=status", "--type=merge", "-p", patch]
        self.control_plane.kubectl(words)

    def channel(self) -> dict[str, Any]:
        """Return the attributes of the channel that is published; none where there is none."""
        slices = [each["spec"] for each in published(self.control_plane, self.name)]
        rows = [row for each in slices if each["driver"] == DRIVER for row in each.get("devices", [])]
        return {key: next(iter(each.values())) for row in rows for key, each in row["attributes"].items()}

    def register(self) -> None:
        wait_until(lambda: len(self.claims.sockets) == 1, self.daemon.log)
        self.claims.connect()
        assert self.claims.take().name == DRIVER
        wait_until(lambda: bool(self.channel()), self.daemon.log)

    def claim(self, name: str, domain: str = "") -> str:
        config = {
            "apiVersion": "resource.nvidia.com/v1beta1",
            "kind": "ComputeDomainChannelConfig",
            "domainID": domain or self.uid,
            "allocationMode": "Single",
        }
        uid = create_allocated(self.control_plane, self.name, name, ["channel-0"], config, driver=DRIVER)
        self.control_plane.kubectl(["annotate", "resourceclaim", name, f"grapnel.dev/compute-domain={NAME}"])
        return uid

    def prepare(self, name: str, uid: str) -> tuple[list[str], str]:
        found = self.claims.prepare(name, uid)
        return [each for device in found.devices for each in device.cdi_device_ids], found.error

    def close(self) -> None:
        self.claims.hang_up()
        self.control_plane.kubectl(["delete", "pods,resourceclaims", "--all", "--force", "--wait=false"])
        self.control_plane.kubectl(["delete", "computedomains", "--all"])


@pytest.fixture
def own(served: ControlPlane, node: str, tmp_path: Path) -> Iterator[Node]:
    with (
        Kubelet(tmp_path / "kubelet-root", has_pod_resources=True) as kubelet,
        closing(Node(served, node, tmp_path, kubelet)) as made,
    ):
        yield made


def test_a_claim_of_a_domain_that_has_the_node_is_given_the_channel(own: Node) -> None:
    own.imex.run()
    own.imex.say(READY)
    with own.daemon:
        own.register()
        assert own.channel() == {"type": "channel", "id": 0, "clique": CLIQUE}
        uid = own.claim("worker-0")
        own.admit(own.name)
        assert own.prepare("worker-0", uid) == (["grapnel.dev/channel=0"], "")
        assert own.channel()["domain"] == own.uid
        cdi = json.loads((own.daemon.node / "cdi/grapnel-domains.json").read_text())
        (device,) = cdi["devices"]
        (channel,) = device["containerEdits"]["deviceNodes"]
        assert (cdi["kind"], channel["path"]) == ("grapnel.dev/channel", "/dev/nvidia-caps-imex-channels/channel0")

        (socket,) = own.claims.sockets
        own.daemon.kill()
        own.daemon.start()
        wait_until(lambda: not socket.exists(), own.daemon.log)
        own.claims.hang_up()
        own.register()
        assert own.prepare("worker-0", uid) == (["grapnel.dev/channel=0"], "")
        assert own.claims.unprepare("worker-0", uid) == ""
        wait_until(lambda: "domain" not in own.channel(), own.daemon.log)
        assert not list((own.daemon.node / "state/domain-claims").glob("*.json"))


def test_a_domain_that_has_not_the_node_is_refused_and_the_node_stays_free(own: Node) -> None:
    own.imex.run()
    own.imex.say(READY)
    with own.daemon:
        own.register()
        uid = own.claim("worker-0")
        assert "has not put" in own.prepare("worker-0", uid)[1]
        own.admit("another-node")
        assert "has not put" in own.prepare("worker-0", uid)[1]
        own.admit(own.name, clique="8f1b2c3d-0000-4000-8000-00000000000a.8")
        assert "is in clique" in own.prepare("worker-0", uid)[1]
        own.admit(own.name)
        own.control_plane.kubectl(["delete", "computedomain", NAME])
        assert "there is no ComputeDomain" in own.prepare("worker-0", uid)[1]
        own.make_domain()
        own.admit(own.name)
        assert "another one by now" in own.prepare("worker-0", uid)[1]  # the claim is of the one before
        assert "domain" not in own.channel()


def test_a_domain_of_another_namespace_is_nobodys_to_enter(own: Node) -> None:
    own.imex.run()
    own.imex.say(READY)
    kubectl = own.control_plane.kubectl
    kubectl(["create", "namespace", "others"])
    found = json.loads(kubectl(["get", "computedomain", NAME, "-o", "json"]))
    document = {**found, "metadata": {"name": NAME, "namespace": "others"}}
    theirs = kubectl(["create", "-f", "-", "-o", "jsonpath={.metadata.uid}"], input_text=json.dumps(document)).strip()
    rows = [{"name": own.name, "ipAddress": "10.0.0.1", "cliqueID": CLIQUE}]
    patch = json.dumps({"status": {"status": "Ready", "nodes": rows}})
    kubectl(["patch", "computedomain", NAME, "-n", "others", "--subresource=status", "--type=merge", "-p", patch])
    with own.daemon:
        own.register()
        uid = own.claim("intruder", theirs)
        assert "another one by now" in own.prepare("intruder", uid)[1]
        assert "domain" not in own.channel()
    kubectl(["delete", "namespace", "others", "--wait=false"])
    kubectl(["delete", "computedomain", NAME, "-n", "others"])


def test_imex_has_to_be_the_hosts_own_and_ready(own: Node) -> None:
    own.admit(own.name)
    with own.daemon:
        own.register()
        uid = own.claim("worker-0")
        assert "nvidia-imex.service does not run" in own.prepare("worker-0", uid)[1]
        own.imex.run("/kubepods.slice/kubepods-pod1.slice/cri-1.scope")
        own.imex.say(READY)  # of somebody else's
        assert "kubepods-pod1" in own.prepare("worker-0", uid)[1]
        own.imex.run()
        own.imex.say("WAITING_FOR_PEERS")
        assert "WAITING_FOR_PEERS" in own.prepare("worker-0", uid)[1]
        own.imex.say("NOT READY")
        assert "NOT READY" in own.prepare("worker-0", uid)[1]
        assert "domain" not in own.channel()
        own.imex.say(READY)
        assert own.prepare("worker-0", uid)[1] == ""


def test_a_node_has_one_domain_at_a_time(own: Node) -> None:
    own.imex.run()
    own.imex.say(READY)
    own.admit(own.name)
    with own.daemon:
        own.register()
        first, second = own.claim("first"), own.claim("second")
        assert own.prepare("first", first)[1] == ""
        assert "default/first still has" in own.prepare("second", second)[1]
        assert own.claims.unprepare("first", first) == ""
        assert own.prepare("second", second)[1] == ""


def test_nothing_is_published_beside_nvidias_driver(own: Node) -> None:
    (own.claims.registry / f"{DRIVER}-reg.sock").touch()
    with own.daemon:
        own.daemon.wait_for_log("another driver compute-domain.nvidia.com")
        assert own.channel() == {}


def test_a_node_that_is_not_to_have_domains_any_more_gives_back_and_leaves_nothing(own: Node) -> None:
    own.imex.run()
    own.imex.say(READY)
    own.admit(own.name)
    with own.daemon:
        own.register()
        uid = own.claim("worker-0")
        assert own.prepare("worker-0", uid)[1] == ""
        own.declare(computeDomains=False)
        own.daemon.signal(1)
        own.daemon.wait_for_log("configuration reloaded")
        assert own.channel()["domain"] == own.uid
        assert own.claims.unprepare("worker-0", uid) == ""
        wait_until(lambda: not (own.daemon.node / "state/domain-claims").exists(), own.daemon.log)
        assert own.channel() == {}
        assert not (own.daemon.node / "cdi/grapnel-domains.json").exists()


def test_a_node_reads_a_domain_that_it_knows_by_name_and_writes_none(own: Node) -> None:
    def as_node(*words: str) -> None:
        own.control_plane.kubectl([*words, "--kubeconfig", str(own.kubeconfig)])

    own.kubeconfig.chmod(0o600)
    as_node("get", "computedomain", NAME)
    status = ["--type=merge", "-p", '{"status": {"status": "Ready"}}']
    for words in (
        ["get", "computedomains", "-A"],
        ["delete", "computedomain", NAME],
        ["patch", "computedomain", NAME, *status],
        ["patch", "computedomain", NAME, "--subresource=status", *status],
    ):
        with pytest.raises(CommandError) as raised:
            as_node(*words)
        assert "forbidden" in str(raised.value.hint).lower()
