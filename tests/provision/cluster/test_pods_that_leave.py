"""Which pods have to leave a node, which stay and say so, and which are waited for or replaced first."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from provision.cluster.kubernetes.objects.pods import Toleration
from provision.cluster.kubernetes.pods.gpu_pods import NodePods
from provision.cluster.kubernetes.pods.pod_rules import DRAIN_SKIP, tolerates
from provision.declaration.spec.model import DaemonSets
from provision.declaration.spec.values.label_selector import parse_selector
from tests.provision.cluster.samples import container, pod, pods_of_nodes
from tests.provision.cluster.test_pods import GPU, OWNER, RULES, only

DAEMON = {"ownerReferences": [OWNER | {"kind": "DaemonSet", "name": "d", "controller": True}]}
CONTROLLED = {"ownerReferences": [OWNER | {"kind": "Job", "name": "train", "controller": True}]}


def test_daemon_sets_that_are_evicted_have_to_leave() -> None:
    found = only(replace(RULES, daemon_sets=DaemonSets.EVICT), **DAEMON)

    assert (found.is_mirror_or_daemon, found.stays, found.only_waited) == (False, "", "")


def test_a_daemon_set_that_tolerates_every_taint_stays_and_says_so() -> None:
    everything = {"tolerations": [{"operator": "Exists"}]}
    found = only(replace(RULES, daemon_sets=DaemonSets.EVICT), everything, **DAEMON)

    assert found.stays == "its DaemonSet tolerates every taint, and would start it again at once"


def test_daemon_sets_may_be_waited_for_and_are_no_jobs() -> None:
    rules = replace(RULES, daemon_sets=DaemonSets.WAIT)
    found = pods_of_nodes([pod(metadata=DAEMON, spec={"containers": [container(limits=GPU)]})], rules)["n1"]

    assert [each.only_waited for each in found.gpu] == ["pods of DaemonSets are only waited for"]
    assert found.jobs == ()


def test_nvidias_label_keeps_a_pod_where_it_is() -> None:
    found = only(labels={"nvidia.com/gpu-driver-upgrade-drain.skip": "true"})

    assert found.stays == "it has the label nvidia.com/gpu-driver-upgrade-drain.skip=true"
    assert only(labels={"nvidia.com/gpu-driver-upgrade-drain.skip": "false"}).stays == ""


@pytest.mark.parametrize(
    ("rules", "spec", "metadata", "why"),
    [
        pytest.param(
            {"only_wait": {"default"}}, {}, CONTROLLED, "namespace default may only be waited for", id="its place"
        ),
        pytest.param({"keeps_bare": True}, {}, {}, "nothing would restart it", id="no controller"),
        pytest.param(
            {"keeps_data": True},
            {"volumes": [{"name": "d", "emptyDir": {}}]},
            CONTROLLED,
            "its emptyDir would be lost",
            id="data",
        ),
        pytest.param(
            {"keeps_data": True},
            {"volumes": [{"name": "d", "emptyDir": {"medium": "Memory"}}]},
            CONTROLLED,
            "",
            id="memory",
        ),
        pytest.param({"keeps_bare": True}, {}, CONTROLLED, "", id="a controller"),
        pytest.param({"only_wait": {"elsewhere"}}, {}, CONTROLLED, "", id="another place"),
    ],
)
def test_a_pod_is_never_asked_to_leave_for(
    rules: dict[str, Any], spec: dict[str, Any], metadata: dict[str, Any], why: str
) -> None:
    one = pod(metadata=metadata, spec={"containers": [container(limits=GPU)]} | spec)
    found = pods_of_nodes([one], replace(RULES, **rules))["n1"]

    assert found.gpu[0].only_waited == why
    assert len(found.jobs) == bool(why), "what may only be waited for is waited for before anything is evicted"


JOBS = replace(RULES, selector=parse_selector("app=train"), namespaces=frozenset({"default"}))
TRAIN = {"labels": {"app": "train"}}


@pytest.mark.parametrize(
    ("changes", "is_job"),
    [
        pytest.param({"metadata": TRAIN}, True, id="selected, without a GPU"),
        pytest.param({"metadata": TRAIN, "status": {"phase": "Pending"}}, True, id="not yet started"),
        pytest.param({"metadata": TRAIN, "status": {"phase": "Succeeded"}}, False, id="ended"),
        pytest.param({"metadata": TRAIN | {"namespace": "shop"}}, False, id="in another namespace"),
        pytest.param({"metadata": {"labels": {"app": "web"}}}, False, id="with another label"),
        pytest.param({"metadata": TRAIN | DAEMON}, False, id="of a DaemonSet, which never ends"),
        pytest.param({"metadata": TRAIN, "spec": {"nodeName": ""}}, False, id="on no node"),
    ],
)
def test_a_pod_is_waited_for_that_is(changes: dict[str, Any], is_job: bool) -> None:  # noqa: FBT001 - see above
    found = pods_of_nodes([pod(**changes)], JOBS)

    assert bool(found.get("n1", NodePods()).jobs) is is_job
    assert found.get("n1", NodePods()).gpu == ()


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        pytest.param({"operator": "Exists"}, True, id="every taint"),
        pytest.param({"operator": "Exists", "effect": "NoSchedule"}, True, id="every taint of this effect"),
        pytest.param({"operator": "Exists", "effect": "NoExecute"}, False, id="every taint of another effect"),
        pytest.param({"key": "grapnel.dev/upgrade", "operator": "Exists"}, True, id="ours"),
        pytest.param({"key": "grapnel.dev/upgrade", "value": "x"}, False, id="ours with another value"),
        pytest.param({"key": "nvidia.com/gpu", "operator": "Exists"}, False, id="another"),
    ],
)
def test_our_taint_is_tolerated_by_who_tolerates(toleration: dict[str, str], expected: bool) -> None:  # noqa: FBT001 - see above
    assert tolerates([Toleration(**toleration)]) is expected


@pytest.mark.parametrize(
    ("rules", "owners", "expected"),
    [
        pytest.param({}, CONTROLLED, False, id="nothing is selected"),
        pytest.param({"first": "app=web"}, CONTROLLED, True, id="its labels"),
        pytest.param({"first": "app=shop"}, CONTROLLED, False, id="other labels"),
        pytest.param({"first": "app=web", "first_namespaces": {"default"}}, CONTROLLED, True, id="its namespace, too"),
        pytest.param({"first": "app=web", "first_namespaces": {"shop"}}, CONTROLLED, False, id="another namespace"),
        pytest.param({"first": ""}, CONTROLLED, True, id="every pod of the namespaces"),
        pytest.param({"first": "app=web"}, DAEMON, False, id="of a DaemonSet"),
    ],
)
def test_a_pod_is_replaced_first_where(rules: dict[str, Any], owners: dict[str, Any], *, expected: bool) -> None:
    first = rules | {"first": parse_selector(rules["first"])} if rules else {}

    found = only(replace(RULES, **first), labels={"app": "web"}, **owners)

    assert found.is_replaced_first is expected


@pytest.mark.parametrize(
    ("rules", "labels", "expected"),
    [
        pytest.param({}, {}, True, id="which stays"),
        pytest.param({}, {DRAIN_SKIP: "true"}, False, id="that has the label to be left alone"),
        pytest.param({"daemon_sets": DaemonSets.EVICT}, {}, False, id="that is evicted before"),
        pytest.param({"daemon_sets": DaemonSets.WAIT}, {}, False, id="that is waited for"),
    ],
)
def test_a_pod_of_a_daemon_set_is_restarted_afterwards(
    rules: dict[str, Any],
    labels: dict[str, str],
    expected: bool,  # noqa: FBT001 - a column of the table
) -> None:
    owner = OWNER | {"kind": "DaemonSet", "name": "dcgm", "controller": True}
    meta = {"ownerReferences": [owner], "labels": labels, "creationTimestamp": "2026-05-04T11:59:00Z"}
    found = pods_of_nodes([pod(metadata=meta, spec={"containers": [container(limits=GPU)]})], replace(RULES, **rules))
    (seen,) = found["n1"].gpu
    assert seen.is_restarted is expected
    assert seen.created == datetime(2026, 5, 4, 11, 59, tzinfo=UTC)
