"""Claims are read as seldom as possible, and one that was just allocated is never taken for none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from provision.cluster.kubernetes.api.client import Api
from provision.cluster.kubernetes.pods.claims import ClaimReader
from provision.cluster.kubernetes.pods.gpu_pods import Given
from tests.provision.cluster.fakes import Clock, answer, refusal
from tests.provision.cluster.test_devices_by_claims import claim

if TYPE_CHECKING:
    from provision.cluster.kubernetes.api.exchange import ApiResponse, Request

GPU = Given(frozenset({"gpu.nvidia.com"}))


class ClaimServer:
    """Serves claims; ``code`` refuses them."""

    name = "cluster x"

    def __init__(self, *claims: dict[str, Any]) -> None:
        self.claims = list(claims)
        self.code = 0
        self.asked: list[str] = []

    def send(self, request: Request) -> ApiResponse:
        """Answer as the API server does."""
        if request.path == "/apis/resource.k8s.io":
            version = {"groupVersion": "resource.k8s.io/v1", "version": "v1"}
            return answer(200, {"preferredVersion": version}) if self.code != 404 else refusal(404)
        if self.code:
            return refusal(self.code, "no")
        name = str(request.query.get("fieldSelector", "")).removeprefix("metadata.name=")
        assert request.path == f"/apis/resource.k8s.io/v1{'/namespaces/default' if name else ''}/resourceclaims"
        self.asked.append(name or "all")
        return answer(200, {"items": [each for each in self.claims if name in {"", each["metadata"]["name"]}]})


def waiting(name: str) -> dict[str, Any]:
    return claim(name) | {"status": {}}


def test_claims_are_listed_once_for_all_pods_that_have_them() -> None:
    server = ClaimServer(claim("a", "gpu-0"), claim("b", "nic-0", driver="dra.example.com"))
    reader = ClaimReader(Api(server), Clock())

    assert [reader.given("default", name) for name in "abab"] == [GPU, Given(frozenset({"dra.example.com"}))] * 2
    assert server.asked == ["all"]


def test_a_claim_that_was_allocated_since_the_last_list_is_asked_for_by_itself() -> None:
    server, clock = ClaimServer(claim("a", "gpu-0"), waiting("b")), Clock()
    reader = ClaimReader(Api(server), clock)
    assert reader.given("default", "a") == GPU

    server.claims = [claim("a", "gpu-0"), claim("b", "gpu-1"), claim("c", "gpu-2")]

    assert [reader.given("default", name) for name in "bcbc"] == [GPU] * 4
    assert server.asked == ["all", "b", "c"]


def test_what_has_no_device_is_asked_for_again_and_after_a_while_with_all_others() -> None:
    server, clock = ClaimServer(waiting("a")), Clock()
    reader = ClaimReader(Api(server), clock)

    assert [reader.given("default", name) for name in ("a", "gone")] == [Given()] * 2
    clock.sleep(5)
    assert reader.given("default", "a") == Given()
    assert server.asked == ["all", "gone", "all"]


@pytest.mark.parametrize("code", [403, 404, 500], ids=["not allowed", "not served", "refused"])
def test_where_claims_cannot_be_read_nothing_is_known_and_nobody_asks_again(code: int) -> None:
    server, clock = ClaimServer(claim("a", "gpu-0")), Clock()
    server.code = code
    reader = ClaimReader(Api(server, sleep=clock.sleep, clock=clock), Clock())

    assert reader.given("default", "a") is None
    server.code = 0
    assert reader.given("default", "a") is None
    assert not server.asked
