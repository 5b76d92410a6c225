"""What is said of a cluster by the versions of its API; a real one answers in ``test_gangs_itself``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from provision.cluster.kubernetes.api.client import Api
from provision.cluster.kubernetes.tenancy.served import look
from provision.declaration.spec.model import Tenancy
from provision.planning.render.kueue import KUEUE_KINDS
from provision.rollout.interface.tenancy import TenancyOrder
from tests.provision.cluster.fakes import answer, refusal

if TYPE_CHECKING:
    from provision.cluster.kubernetes.api.exchange import ApiResponse, Request

SCHEDULING, KUEUE = "scheduling.k8s.io", "kueue.x-k8s.io"
PRIORITIES = {f"{SCHEDULING}/v1": ["priorityclasses"]}
QUEUES = tuple(kind.plural for kind in KUEUE_KINDS)


class Discovery:
    """An API server that serves these resources, by version, the one that it prefers first."""

    name = "cluster x"

    def __init__(self, served: dict[str, list[str]]) -> None:
        self.served = served

    def send(self, request: Request) -> ApiResponse:
        """Answer what clients ask to learn what is served."""
        asked = request.path.removeprefix("/apis/")
        if asked in self.served:
            return answer(200, {"resources": [{"name": name} for name in self.served[asked]]})
        found = [{"groupVersion": each} for each in self.served if each.startswith(f"{asked}/")]
        return answer(200, {"versions": found, "preferredVersion": found[0]}) if found else refusal(404, "not found")


def problems(served: dict[str, list[str]], **section: Any) -> tuple[str, ...]:
    order = TenancyOrder("default", msgspec.convert(section, Tenancy))
    return look(Api(Discovery(served)), order).problems


@pytest.mark.parametrize("wanted", ["kubernetes", "any"])
@pytest.mark.parametrize(
    "gangs",
    [
        pytest.param({"v1alpha1": ["workloads"]}, id="Kubernetes 1.35, with groups in Workloads"),
        pytest.param({"v1alpha2": ["workloads", "podgroups", "podgroups/status"]}, id="Kubernetes 1.36"),
        pytest.param({"v1beta1": ["workloads", "podgroups", "podgroups/status"]}, id="Kubernetes 1.37"),
        pytest.param({"v1alpha3": ["podgroups", "compositepodgroups"]}, id="Kubernetes 1.37, the other version alone"),
        pytest.param({"v1beta1": ["workloads"], "v2": ["podgroups"]}, id="a Kubernetes that is not released yet"),
    ],
)
def test_gangs_are_found_in_whichever_version_a_cluster_serves_them(gangs: dict[str, list[str]], wanted: str) -> None:
    served = PRIORITIES | {f"{SCHEDULING}/{version}": names for version, names in gangs.items()}
    assert problems(served, gangs=wanted) == ()


@pytest.mark.parametrize(
    "served",
    [
        pytest.param({}, id="no group at all"),
        pytest.param(PRIORITIES, id="priorities alone"),
        pytest.param(PRIORITIES | {f"{SCHEDULING}/v1beta1": ["workloads"]}, id="Workloads without their PodGroups"),
        pytest.param({"scheduling.x-k8s.io/v1alpha1": ["podgroups"]}, id="the PodGroups of another scheduler"),
    ],
)
def test_a_cluster_without_gangs_is_told_what_each_release_takes(served: dict[str, list[str]]) -> None:
    (told,) = problems(served, gangs="kubernetes")
    assert told.startswith("tenancy.gangs: this cluster has no gang scheduling of its own: it takes Kubernetes 1.37")
    assert "--runtime-config=scheduling.k8s.io/v1beta1=true, or 1.36 with" in told


@pytest.mark.parametrize(
    ("served", "told"),
    [
        pytest.param({}, "serves no kueue.x-k8s.io/v1beta2, so no queue is made (", id="none"),
        pytest.param(
            {f"{KUEUE}/v1": QUEUES, f"{KUEUE}/v1beta1": QUEUES},
            "serves no kueue.x-k8s.io/v1beta2, but kueue.x-k8s.io/v1, kueue.x-k8s.io/v1beta1, so no queue is made (",
            id="other versions",
        ),
    ],
)
def test_a_cluster_whose_kueue_is_another_is_told_which_it_serves(served: dict[str, list[str]], told: str) -> None:
    (found,) = problems(served, kueue={"flavors": [{"name": "h100"}]})
    assert told in found
