"""What a node gives to claims is seen beside what the kubelet offers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest

from provision.declaration.spec.model import GpuInterface, Plugin
from provision.report.documents.machine import machine_document
from provision.rollout.status.derive import fleet_status
from provision.rollout.status.situations import IDLE, SHORT_OF_GPUS
from provision.rollout.status.words import cells_of, facts_of, gpu_words, used_on, ways_to_know
from tests.provision.cluster.test_devices_by_claims import claim, published
from tests.provision.cluster.test_reader import asking, pod, server

if TYPE_CHECKING:
    from tests.provision.cluster.fakes import FleetServer

__all__ = ["server"]  # a fixture


def by_claims(server: FleetServer, offers: int = 0) -> None:
    """Have n2 give its four GPUs to claims, of which a pod has two; the device plugin still offers some."""
    said = {"status": "True", "message": "4 GPUs can be used", "lastHeartbeatTime": "2026-11-21T09:36:00Z"}
    status = server.nodes["n2"]["status"]
    status["conditions"] += [
        {"type": "GPUDriverReady", **said, "message": "driver 550.163.01 answers"},
        {"type": "GPUsHealthy", **said},
    ]
    status["allocatable"] = status["capacity"] = {"nvidia.com/gpu": str(offers)}
    server.slices = [
        published(*(f"gpu-{number}" for number in range(offers, 4)), node="n2"),
        published("gpu-0", node="n9"),
    ]
    server.claims = [
        claim("train-gpus", "gpu-2", "gpu-3", node="n2") | {"metadata": {"name": "a", "namespace": "shop"}}
    ]
    train = pod("train")
    train["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimName": "a"}]
    server.pods = [train]


DRA = Plugin(interface=GpuInterface.DRA, kubernetes_api="/etc/kubernetes/kubelet.conf")


@pytest.mark.parametrize(
    ("offers", "words"), [(0, "4 seen, offered: 4 gpu.nvidia.com"), (1, "4 seen, offered: 3 gpu.nvidia.com, 1 gpu")]
)
def test_gpus_that_a_node_gives_to_claims_are_offered_and_their_pods_are_named(
    server: FleetServer, offers: int, words: str
) -> None:
    by_claims(server, offers)

    (n2,) = fleet_status(replace(asking(server, "n2").look(), daemons={"n2": DRA})).nodes

    assert n2.situation is IDLE
    assert n2.reported is not None
    assert gpu_words(n2, n2.reported) == words
    assert used_on(n2) == {"gpu.nvidia.com": 2}
    told = {label: text for label, text, _ in facts_of(n2, None)}
    assert (told["in use"], told["declared"]) == ("2 gpu.nvidia.com by shop/train", "GPUs by claims")
    assert server.requests.count("resourceslices") == 1
    document = machine_document(n2)
    assert document is not None
    assert (document.gpus.offered or {})["gpu.nvidia.com"] == 4 - offers


def test_a_node_that_gives_some_gpus_by_each_interface_offers_all_of_them(server: FleetServer) -> None:
    by_claims(server, offers=1)
    both = msgspec.structs.replace(DRA, interface=GpuInterface.BOTH, claims=("1", "2", "3"))

    (n2,) = fleet_status(replace(asking(server, "n2").look(), daemons={"n2": both})).nodes

    assert n2.situation is IDLE
    told = {label: text for label, text, _ in facts_of(n2, None)}
    assert told["declared"] == "GPUs as nvidia.com/gpu, but 1, 2, 3 by claims"
    server.slices = []
    (n2,) = fleet_status(replace(asking(server, "n2").look(), daemons={"n2": both})).nodes
    assert (n2.situation, n2.reason) == (SHORT_OF_GPUS, "it has 4 GPUs and offers none to claims")


BOTH = msgspec.structs.replace(DRA, interface=GpuInterface.BOTH, claims=("2", "3"))


def with_shares(server: FleetServer, shares: int) -> None:
    """Have n2 give two of its GPUs in shares, by its device plugin, and two to claims."""
    by_claims(server, offers=2)
    status = server.nodes["n2"]["status"]
    status["allocatable"] = status["capacity"] = {"nvidia.com/gpu": str(shares)}


@pytest.mark.parametrize("shares", [4, 16])  # as many as the node has GPUs, or more
def test_a_node_that_gives_shares_and_claims_is_not_told_by_its_shares_alone(server: FleetServer, shares: int) -> None:
    with_shares(server, shares)
    daemons = {"n2": BOTH}

    (n2,) = fleet_status(replace(asking(server, "n2", daemons=daemons).look(), daemons=daemons)).nodes

    assert n2.situation is IDLE
    assert n2.reported is not None
    assert gpu_words(n2, n2.reported) == f"4 seen, offered: 2 gpu.nvidia.com, {shares} gpu"
    assert used_on(n2) == {"gpu.nvidia.com": 2}
    server.slices = []
    (n2,) = fleet_status(replace(asking(server, "n2", daemons=daemons).look(), daemons=daemons)).nodes
    assert (n2.situation, n2.reason) == (SHORT_OF_GPUS, "it has 4 GPUs and offers none to claims")
    server.forbidden = {"resourceslices"}
    (n2,) = fleet_status(replace(asking(server, "n2", daemons=daemons).look(), daemons=daemons)).nodes
    assert n2.reported is not None
    assert (n2.situation, gpu_words(n2, n2.reported)) == (IDLE, "4 seen"), "one side alone is not what it offers"


def test_without_a_declaration_shares_and_claims_are_told_as_well(server: FleetServer) -> None:
    with_shares(server, 16)

    (n2,) = fleet_status(asking(server, "n2").look()).nodes

    assert n2.reported is not None
    assert gpu_words(n2, n2.reported) == "4 seen, offered: 2 gpu.nvidia.com, 16 gpu"


def test_a_node_that_gives_nothing_to_its_kubelet_is_short_of_that_side(server: FleetServer) -> None:
    with_shares(server, 0)

    (n2,) = fleet_status(replace(asking(server, "n2").look(), daemons={"n2": BOTH})).nodes

    assert (n2.situation, n2.reason) == (SHORT_OF_GPUS, "it has 4 GPUs and offers none to its kubelet")


def test_claims_and_slices_are_asked_for_where_a_kubelet_offers_less_than_there_is(server: FleetServer) -> None:
    by_claims(server, offers=4)

    seen = asking(server, "n2").look()

    assert seen.reported["n2"].published is None
    assert not {each for each in server.requests if each.startswith("resource")}


def test_a_node_of_the_device_plugin_that_offers_nothing_is_still_short(server: FleetServer) -> None:
    by_claims(server)
    server.slices = []

    for slices in ([], None):
        server.slices = slices
        (n2,) = fleet_status(asking(server, "n2").look()).nodes
        assert (n2.situation, n2.reason) == (SHORT_OF_GPUS, "it has 4 GPUs and offers none")


def test_where_slices_may_not_be_read_nobody_says_that_gpus_are_missing_and_the_right_is_named(
    server: FleetServer,
) -> None:
    by_claims(server)
    server.forbidden = {"resourceslices"}

    (n2,) = fleet_status(replace(asking(server, "n2").look(), daemons={"n2": DRA})).nodes

    assert n2.situation is IDLE
    assert n2.reported is not None
    assert gpu_words(n2, n2.reported) == "4 seen"
    told = dict(ways_to_know(n2, cells_of(n2)))["GPUs for claims"]
    assert told.startswith("eve may not list resourceslices on cluster x")
    assert 'apiGroups: ["resource.k8s.io"], resources: ["resourceslices"], verbs: ["list"]' in told
    document = machine_document(n2)
    assert document is not None
    assert document.gpus.offered is None
