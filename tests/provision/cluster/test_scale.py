"""A thousand nodes: how often the API server is asked, and what reading the answers costs here."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from provision.cluster.kubernetes.api.client import PAGE
from provision.cluster.kubernetes.api.exchange import Request
from provision.rollout.model import NodeView
from tests.provision.cluster.counting import count
from tests.provision.cluster.samples import container

if TYPE_CHECKING:
    from collections.abc import Callable

    from provision.cluster.kubernetes.api.transport import Transport
    from tests.provision.cluster.stage import Stage

pytestmark = pytest.mark.functional

NODES_PATH, PODS_PATH = "/api/v1/nodes", "/api/v1/pods"
NODES, GPU = 1000, "nvidia.com/gpu"
NAMES = [f"fleet-{number:04}" for number in range(NODES)]
IMAGES = [{"names": [f"registry.example/{number}@sha256:{'0' * 64}"], "sizeBytes": 1} for number in range(20)]


def make_fleet(transport: Transport) -> None:
    """Make the nodes, with images in their status as real ones have, and two pods on each: one with a GPU."""
    resources = {GPU: "8", "pods": "100"}
    status = {"capacity": resources, "images": IMAGES, "conditions": [{"type": "Ready", "status": "True"}]}
    posts = [(NODES_PATH, {"metadata": {"name": name}, "status": status}) for name in NAMES]
    for name in NAMES:
        for kind, limits in (("train", {GPU: "1"}), ("web", {})):
            spec = {"nodeName": name, "containers": [container(limits=limits)]}
            posts.append(("/api/v1/namespaces/default/pods", {"metadata": {"name": f"{kind}-{name}"}, "spec": spec}))
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda post: transport.send(Request(method="POST", path=post[0], body=post[1])), posts)
        assert all(answer.is_success for answer in answers)


@pytest.mark.timeout(600)
def test_a_thousand_nodes_cost_a_request_for_each_page_and_one_costs_two(
    stage: Stage, record_property: Callable[[str, object], None]
) -> None:
    cluster = stage.connect()
    make_fleet(cluster._api._sender)  # type: ignore[arg-type] # the real one
    counting = count(cluster)

    began, wall = time.process_time(), time.monotonic()
    seen = cluster.observe(NAMES)
    cpu_s, wall_s = time.process_time() - began, time.monotonic() - wall

    record_property("cpu_s", round(cpu_s, 3))
    record_property("wall_s", round(wall_s, 3))
    record_property("requests", len(counting.sent))
    assert all(isinstance(view, NodeView) and len(view.gpu_pods) == 1 for view in seen.values())
    pages = {path: counting.pages(path) for path in (NODES_PATH, PODS_PATH)}
    for found in pages.values():
        assert all(len(page) == PAGE for page in found[:-1])
    # Whatever the fleet: kured's lock; and the claims, where a pod of another test has one.
    expected = ["/apis/apps/v1/daemonsets"]
    if any("resourceClaims" in pod["spec"] for page in pages[PODS_PATH] for pod in page):
        expected += ["/apis/resource.k8s.io", "/apis/resource.k8s.io/v1/resourceclaims"]
    assert sorted(path for path in counting.paths() if path not in pages) == expected
    assert cpu_s < 3

    counting.sent.clear()
    cluster.observe(NAMES[:1])
    assert counting.paths() == [NODES_PATH, PODS_PATH]
