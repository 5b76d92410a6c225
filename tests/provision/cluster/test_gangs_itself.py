"""Kubernetes' own gang scheduling and Kueue's published definitions, on a real API server and a real scheduler."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

from lab.cluster import ControlPlane
from lab.cluster.components import gangs_of
from lab.golang.definitions import kueue_definitions
from lab.golang.programs import kubernetes_version
from lab.machine.errors import CommandError
from provision.planning.render.kueue import KUEUE_KINDS
from tests.provision.cluster.conftest import NO_KUBELETS_S
from tests.provision.cluster.stage import GPU, Stage, wait_until
from tests.provision.cluster.test_tenancy_itself import Tenants

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = tuple(map(int, kubernetes_version().split(".")))
pytestmark = [
    pytest.mark.functional,
    pytest.mark.skipif(VERSION < (1, 36), reason="PodGroups came with Kubernetes 1.36, and this is an older one"),
]
_NUMBERS = itertools.count(1)
UNPLACED = ("PodGroupScheduled", "PodGroupInitiallyScheduled")  # of Kubernetes 1.36, and from 1.37 on
GANG_JOB = {"scheduling": {"schedulingPolicy": {"gang": {}}}}  # batch/v1 of Kubernetes 1.37; alpha
FREE = 8  # GPUs of the two nodes, each of which has four


@pytest.fixture(scope="module")
def gangs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Run a control plane with gang scheduling and the definitions of Kueue, and two nodes with GPUs."""
    folder = tmp_path_factory.mktemp("gangs")
    with ControlPlane(folder, node_grace_s=NO_KUBELETS_S, has_gangs=True).running() as control_plane:
        found = Stage(control_plane)
        for _number in range(2):
            node = found.make_node()
            # What the node lifecycle controller takes off a Node whose kubelet has reported.
            wait_until(lambda name=node: not found.get("node", name)["spec"].get("taints"), "the node takes pods")  # type: ignore[misc] # bound now
        for kind in KUEUE_KINDS:
            found.define(kueue_definitions() / f"{kind.group}_{kind.plural}.yaml")
        yield found


@pytest.fixture
def place(gangs: Stage) -> Iterator[str]:
    """Make a namespace, and have nothing of it on the nodes afterwards."""
    name = Tenants(gangs, "any").make()
    yield name
    clear(gangs, name)


def group(stage: Stage, place: str, size: int) -> None:
    """Make a PodGroup and its pods, one GPU each."""
    name = f"mpi-{next(_NUMBERS)}"
    about = {"namespace": place}
    made: list[dict[str, Any]] = [
        {
            "apiVersion": gangs_of(kubernetes_version())[0],
            "kind": "PodGroup",
            "metadata": {"name": name, **about},
            "spec": {"schedulingPolicy": {"gang": {"minCount": size}}},
        }
    ]
    made += [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{index}", **about},
            "spec": {"schedulingGroup": {"podGroupName": name}, "containers": [container()]},
        }
        for index in range(size)
    ]
    stage.kubectl("create", "-f", "-", data={"apiVersion": "v1", "kind": "List", "items": made})


def container() -> dict[str, Any]:
    return {"name": "main", "image": "x", "resources": {"limits": {GPU: "1"}}}


def job(stage: Stage, place: str, size: int) -> None:
    """Make a Job that is a gang, as docs/tenancy.md says: in 1.36 every Indexed one whose pods all run at once is."""
    template = {"spec": {"restartPolicy": "Never", "containers": [container()]}}
    numbers = {"parallelism": size, "completions": size, "completionMode": "Indexed"}
    made = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"job-{next(_NUMBERS)}", "namespace": place},
        "spec": {**numbers, "template": template, **(GANG_JOB if VERSION >= (1, 37) else {})},
    }
    stage.kubectl("create", "-f", "-", data=made)


def placed(stage: Stage, place: str) -> list[bool]:
    """Return, for each pod, whether it has a node."""
    return ["nodeName" in pod["spec"] for pod in stage.get("pods", "-n", place)["items"]]


def conditions(stage: Stage, place: str) -> list[str]:
    """Return what the scheduler says of the groups that it could not place."""
    groups = stage.get("podgroups", "-n", place)["items"]
    found = [each for one in groups for each in one.get("status", {}).get("conditions", ())]
    return [each["message"] for each in found if each["type"] in UNPLACED and each["status"] == "False"]


@pytest.mark.parametrize("make", [group, job], ids=["group", "job"])
def test_a_gang_that_fits_is_placed_whole(gangs: Stage, place: str, make: Any) -> None:
    make(gangs, place, FREE)
    wait_until(lambda: placed(gangs, place) == [True] * FREE, "all of it has nodes")


@pytest.mark.parametrize("make", [group, job], ids=["group", "job"])
def test_of_a_gang_that_is_too_large_no_pod_is_placed(gangs: Stage, place: str, make: Any) -> None:
    make(gangs, place, FREE + 1)
    wait_until(lambda: len(placed(gangs, place)) == FREE + 1, "all of its pods are there")
    wait_until(lambda: bool(conditions(gangs, place)), "the scheduler says that it does not fit")
    assert not any(placed(gangs, place))

    make(gangs, place, FREE - 1)  # one that came later is not held up, and the larger one gets nothing of the rest
    wait_until(lambda: placed(gangs, place).count(True) == FREE - 1, "a smaller one is placed")
    assert placed(gangs, place).count(True) == FREE - 1
    assert len(conditions(gangs, place)) == 1


def test_a_gang_of_which_a_quota_refuses_a_pod_is_not_placed_in_part(gangs: Stage, place: str) -> None:
    tenants = Tenants(gangs, "quota")
    tenants.bring(tenants.order(tenants=[{"namespace": place, "quota": {GPU: 2}}]))
    wait_until(lambda: "hard" in gangs.get("resourcequota", "grapnel", "-n", place)["status"], "it is counted")
    with pytest.raises(CommandError) as caught:
        group(gangs, place, 3)
    assert "exceeded quota: grapnel" in caught.value.hint
    other = tenants.make()
    group(gangs, other, 2)
    wait_until(lambda: placed(gangs, other) == [True, True], "one that came later is placed")
    assert placed(gangs, place) == [False, False]
    clear(gangs, other)


def clear(gangs: Stage, place: str) -> None:
    """Take everything of a namespace off the nodes."""
    gangs.kubectl("delete", "jobs,pods", "--all", "-n", place, "--force", "--grace-period=0")


def test_without_a_group_part_of_the_pods_would_be_placed(gangs: Stage, place: str) -> None:
    """What the tests above would see of a scheduler without gangs."""
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"single-{index}", "namespace": place},
            "spec": {"containers": [container()]},
        }
        for index in range(FREE + 1)
    ]
    gangs.kubectl("create", "-f", "-", data={"apiVersion": "v1", "kind": "List", "items": pods})
    wait_until(lambda: placed(gangs, place).count(True) == FREE, "as many as there are GPUs")


QUEUES: dict[str, Any] = {
    "flavors": [
        {"name": "h100", "product": "NVIDIA-H100-80GB-HBM3"},
        {"name": "a100", "product": "NVIDIA-A100-SXM4-80GB", "nodeLabels": {"example.com/pool": "training"}},
    ],
    "cohorts": [{"name": "everyone", "parent": "site"}],
    "queues": [
        {
            "name": "research",
            "cohort": "everyone",
            "quotas": [
                {
                    "flavor": "h100",
                    "resources": {GPU: 8, "cpu": "128", "memory": "1Ti"},
                    "borrow": {GPU: 4},
                    "lend": {GPU: 2},
                },
                {"flavor": "a100", "resources": {GPU: 4}},
            ],
        },
        {"name": "spare", "quotas": [{"flavor": "h100", "resources": {GPU: 1}}]},
    ],
}


def test_queues_are_what_kueue_defines(gangs: Stage) -> None:
    tenants = Tenants(gangs, "queues")
    place = tenants.make()
    wanted = tenants.order(gangs="any", kueue=QUEUES, tenants=[{"namespace": place, "queue": "research"}])
    done = tenants.bring(wanted)
    assert done.problems == ()
    assert [each.partition(" is created")[0] for each in done.changes] == [
        "ResourceFlavor h100",
        "ResourceFlavor a100",
        "Cohort everyone",
        "Cohort site",
        "ClusterQueue research",
        "ClusterQueue spare",
        f"LocalQueue {place}/research",
    ]
    queue = gangs.get("clusterqueue", "research")["spec"]
    (resources,) = queue["resourceGroups"]
    assert queue["cohortName"] == "everyone"
    assert resources["coveredResources"] == ["cpu", "memory", GPU]
    assert [each["name"] for each in resources["flavors"]] == ["h100", "a100"]
    gpus = {"name": GPU, "nominalQuota": "8", "borrowingLimit": "4", "lendingLimit": "2"}
    assert resources["flavors"][0]["resources"][2] == gpus
    assert queue["namespaceSelector"]["matchExpressions"][0]["values"] == [place]
    assert gangs.get("resourceflavor", "h100")["spec"]["nodeLabels"] == {
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"
    }

    moved = tenants.bring(tenants.order(kueue=QUEUES, tenants=[{"namespace": place, "queue": "spare"}]))
    assert f"LocalQueue {place}/research is deleted: it is declared no more" in moved.changes
    gone = tenants.bring(tenants.order())
    assert len(gone.changes) == 7
    assert all(each.endswith("is deleted: it is declared no more") for each in gone.changes)


def test_what_kueues_definitions_refuse_is_told_in_their_words(gangs: Stage) -> None:
    """Borrowing without a cohort is refused by `grapnel check` before; here a declaration gets past it."""
    tenants = Tenants(gangs, "refused")
    quota = {"flavor": "h100", "resources": {GPU: 1}, "borrow": {GPU: 1}}
    wanted = tenants.order(kueue={"queues": [{"name": "lonely", "quotas": [quota]}]})
    (told,) = tenants.bring(wanted).problems
    assert told.startswith("ClusterQueue lonely: ")
    assert "borrowingLimit must be nil when cohort is empty" in told.replace("cohortName", "cohort")


def test_a_cluster_that_has_both_lacks_nothing(gangs: Stage) -> None:
    tenants = Tenants(gangs, "served")
    for wanted in ("any", "kubernetes", "kueue"):
        assert tenants.bring(tenants.order(gangs=wanted)).problems == ()
    assert json.loads(gangs.kubectl("get", "--raw", f"/apis/{gangs_of(kubernetes_version())[0]}"))["resources"]
