"""ComputeDomains on a real Kubernetes: pods on two nodes of a clique, its kubelets, engines and scheduler.

IMEX is simulated: a unit of each node that shares no memory, the program that tells of it, and a device node.
"""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab.cluster import Cluster
from lab.nvml import state as nvml_state
from lab.nvml.machine import FabricState
from provision.cluster.connect import open_api
from provision.controller.domains.desk import DomainDesk
from provision.controller.domains.objects import DRIVER
from tests.e2e.conftest import NAME
from tests.e2e.manifests import container, pod
from tests.e2e.stage import DAEMON
from tests.e2e.test_claims import devices
from tests.e2e.test_gpushare import KUBECONFIG
from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.nvml.machine import Machine
    from tests.e2e.manifests import Manifest
    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
RIGHTS, CRD, CLASS = (
    str(ROOT / "deploy" / each)
    for each in ("rbac/compute-domains.yaml", "crd/computedomains.yaml", "dra/domainclass.yaml")
)
NAMESPACE = "grapnel-system"
CLUSTER = "8f1b2c3d-0000-4000-8000-00000000000a"
CDI = ("containerd://2", "cri-o://")
CHANNEL = "/dev/nvidia-caps-imex-channels/channel0"
DEVICE = "c 4 40"  # a kind of terminal that nobody has
IMEX = """mkdir -p /opt/imex $(dirname CHANNEL)
printf '#!/bin/sh\\necho simulated >&2\\necho READY\\n' > /usr/bin/nvidia-imex-ctl
printf '#!/bin/sh\\nwhile :; do sleep 3600 & wait; done\\n' > /opt/imex/nvidia-imex
chmod 755 /usr/bin/nvidia-imex-ctl /opt/imex/nvidia-imex
[ -c CHANNEL ] || mknod -m 666 CHANNEL DEVICE
printf '[Service]\\nExecStart=/opt/imex/nvidia-imex\\n' > /run/systemd/system/nvidia-imex.service
systemctl daemon-reload && systemctl start nvidia-imex.service
""".replace("CHANNEL", CHANNEL).replace("DEVICE", DEVICE)
NO_IMEX = f"""systemctl stop nvidia-imex.service
rm -rf /opt/imex /usr/bin/nvidia-imex-ctl {Path(CHANNEL).parent} /run/systemd/system/nvidia-imex.service
systemctl daemon-reload
"""
LOOK = f"""
[ -c {CHANNEL} ] && stat -c 'channel %n' {CHANNEL}
echo looked
trap 'exit 0' TERM
while :; do sleep 3600 & wait; done
"""


@contextmanager
def in_clique(node: LabNode) -> Iterator[None]:
    """Have a node's GPUs in the clique, IMEX on it, and its channel published."""

    def with_fabric(machine: Machine) -> Machine:
        fabric: dict[str, Any] = {"fabric_state": FabricState.COMPLETED, "fabric_cluster": CLUSTER, "fabric_clique": 7}
        return replace(machine, gpus=tuple(replace(each, **fabric) for each in machine.gpus))

    before = nvml_state.read(node.node.nvml_library).gpus
    node.change_gpus(with_fabric)
    node.node.run(["sh", "-c", IMEX])
    keys = {"interface": "dra", "computeDomains": True, "kubernetesApi": KUBECONFIG, "nodeName": node.name}
    try:
        with node.configured(**keys):
            node.unit("restart", DAEMON)  # what a fabric is, is not asked again while GPUs stay the same
            yield
    finally:
        node.change_gpus(lambda machine: replace(machine, gpus=before))
        node.node.run(["sh", "-c", NO_IMEX])
        node.unit("restart", DAEMON)


def wait_for_channel(stage: Stage, node: LabNode) -> None:
    wait_for(
        f"the channel of {node.name} is published",
        lambda: "channel-0" in devices(stage, node),
        evidence=lambda: node.journal(DAEMON, 40),
    )


@pytest.fixture
def pair(stage: Stage, lab_nodes: tuple[LabNode, ...]) -> tuple[LabNode, ...]:
    """Two nodes whose engines take CDI devices without a setting, as this test declares nothing."""
    assert lab_nodes
    able = [each.lab for each in stage.nodes if each.lab is not None and each.engine.startswith(CDI)]
    if len(able) < 2:
        pytest.skip("only one node of this cluster takes CDI devices as it is")
    return tuple(able[:2])


@pytest.fixture
def served(stage: Stage, pair: tuple[LabNode, ...], tmp_path: Path) -> Iterator[Cluster]:
    """Two nodes of a clique, and what serves domains, by the controller's account and rights."""
    cluster = Cluster(NAME)
    account = str(ROOT / "deploy/rbac/controller.yaml")
    cluster.kubectl(["apply", "-f", str(ROOT / "deploy/rbac/operator.yaml"), "-f", account])
    cluster.kubectl(["apply", "-f", CRD, "-f", CLASS, "-f", RIGHTS])
    cluster.kubectl(["wait", "--for=condition=Established", "--timeout=60s", "-f", CRD])
    token = cluster.kubectl(["create", "token", "grapnel-controller", "-n", NAMESPACE, "--duration=4h"]).strip()
    config = json.loads(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    kubeconfig = tmp_path / "controller.kubeconfig"
    kubeconfig.write_text(json.dumps(config))
    api = open_api(kubeconfig, None, {})
    assert api is not None
    desk = DomainDesk(api, api, NAMESPACE, say=print)
    desk.start()
    with ExitStack() as stack:
        for node in pair:
            stack.enter_context(in_clique(node))
        for node in pair:
            wait_for_channel(stage, node)
        yield cluster
    desk.close()
    for node in pair:
        stage.wait_for_gpus(node.name, len(node.uuids))
    cluster.kubectl(["delete", "-f", CRD, "-f", CLASS, "-f", RIGHTS, "-f", account, "--ignore-not-found"])
    cluster.kubectl(["delete", "-f", str(ROOT / "deploy/rbac/operator.yaml"), "--ignore-not-found"])


def make_domain(cluster: Cluster, room: Room, name: str, nodes: int) -> None:
    spec = {"numNodes": nodes, "channel": {"resourceClaimTemplate": {"name": f"{name}-channel"}}}
    metadata = {"name": name, "namespace": room.name}
    document = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain", "metadata": metadata}
    cluster.kubectl(["create", "-f", "-"], input_text=json.dumps({**document, "spec": spec}))
    wanted = ["get", "resourceclaimtemplates", "-n", room.name, "-o", "name"]
    wait_for(f"{name} has its template", lambda: f"{name}-channel" in cluster.kubectl(wanted))


def asks(name: str, node: LabNode, domain: str) -> Manifest:
    made = {**container(script=LOOK), "resources": {"claims": [{"name": "channel"}]}}
    found = pod(name, made, node=node.name, runtime_class="")
    found["spec"]["resourceClaims"] = [{"name": "channel", "resourceClaimTemplateName": f"{domain}-channel"}]
    return found


def test_pods_of_a_domain_have_the_channel_and_the_next_domain_waits_for_the_clique(
    room: Room, stage: Stage, pair: tuple[LabNode, ...], served: Cluster
) -> None:
    first, second = pair
    make_domain(served, room, "one", 2)
    room.start(asks("one-0", first, "one"), asks("one-1", second, "one"))
    room.start(pod("none", container(script=LOOK), node=first.name, runtime_class=""))
    room.wait_running(["one-0", "one-1", "none"])
    assert all(f"channel {CHANNEL}" in room.whole_log(name) for name in ("one-0", "one-1"))
    assert CHANNEL not in room.whole_log("none")
    ready = ["get", "computedomain", "one", "-n", room.name, "-o", "jsonpath={.status.status}"]
    wait_for("the domain is ready", lambda: served.kubectl(ready) == "Ready")

    make_domain(served, room, "two", 1)
    room.api.delete_pod(room.name, "one-0")
    wait_for("its node is free", lambda: "domain" not in str(devices(stage, first)["channel-0"].attributes))
    room.start(asks("two-0", first, "two"))
    told = ["get", "computedomain", "two", "-n", room.name, "-o", "jsonpath={.status.message}"]
    wait_for("the second one waits", lambda: "another ComputeDomain" in served.kubectl(told), evidence=room.evidence)
    served.kubectl(["delete", "computedomain", "one", "-n", room.name])
    assert room.pod("two-0").status.phase == "Pending"
    room.api.delete_pod(room.name, "one-1")
    room.wait_running(["two-0"], timeout_s=240.0)  # a kubelet asks again after a minute and a half
    assert f"channel {CHANNEL}" in room.whole_log("two-0")
    assert DRIVER in str(room.stage.api.resource.list_resource_slice().items)
    room.clear()
