"""A node that is declared otherwise: its daemon is a pod, and its kubelet gives GPUs, CPUs and huge pages together."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from lab.cluster import Cluster
from lab.machine.errors import CommandError
from plugin.daemon.optional.config_by_label import ANNOTATION
from tests.e2e import controller_image, daemonset, numa
from tests.e2e.conftest import NAME
from tests.e2e.manifests import STAY, Manifest, container, pod
from tests.e2e.stage import DAEMON, KUBELET
from tests.e2e.test_claims import (
    CLASS,
    DRIVER,
    claims_one,
    prepared,
    suppress_conflict,
    template,
    versions,
    wait_for_devices,
)
from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.operator import Operator
    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]  # two applies

FOLDER = "/etc/kubernetes/kubelet.conf.d"
HUGE = 4  # MiB of a pod
PAGES = 8
LOOK_AT_MEMORY = "grep -E '^(Cpus_allowed_list|Mems_allowed_list)' /proc/self/status; grep ' /huge ' /proc/mounts"
CAPABILITIES = """\
import glob
for path in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        words = open(path).read().split("\\0")
        if "--in-pod" in words and "run" in words:
            status = open(path.replace("cmdline", "status")).read().split("\\n")
            print([line for line in status if line.startswith(("CapEff", "CapBnd", "NoNewPrivs"))])
    except OSError:
        pass
"""


def declaration(engine: str) -> dict[str, Any]:
    kubelet = {
        "topologyManagerPolicy": "single-numa-node",
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": numa.reserved(),
    }
    node = {"kubelet": kubelet, "kernel": {"hugepages": {"2Mi": PAGES}}}
    return {"grapnel_stack": {"node": node, "plugin": {"daemon": "daemonset"}, "runtime": {"engine": engine}}}


# With containerd, every run has the daemon in a pod through a change of driver (test_controller_upgrade), and claims of
# a service (test_claims).
@pytest.fixture(scope="module", params=[pytest.param("containerd", marks=pytest.mark.long), "crio"])
def node(
    request: pytest.FixtureRequest, stage: Stage, lab_nodes: tuple[LabNode, ...], operator: Operator
) -> Iterator[LabNode]:
    """A node with one of the engines; as it was again afterwards, by `apply` as well."""
    if numa.CPUS == 1:
        pytest.skip("a machine with one CPU has none for a second NUMA node")
    chosen = next((each for each in lab_nodes if each.engine == request.param), None)
    if chosen is None:
        pytest.skip("no node of this cluster has CRI-O")
    own = operator.folder / "host_vars" / f"{chosen.name}.yaml"
    before = own.read_text() if own.exists() else "{}"  # the engine, where it is not the others'

    def apply() -> None:
        done = operator.apply(chosen.name)
        assert done.returncode == 0, done.stdout

    def declare_as_others() -> None:
        own.write_text(before)
        apply()

    with ExitStack() as stack:
        stack.callback(stage.wait_until_settled, chosen)
        set_up_kubelet(stack, chosen)
        stage.wait_until_settled(chosen)
        own.parent.mkdir(exist_ok=True)
        own.write_text(json.dumps(declaration(chosen.engine)))
        stack.callback(declare_as_others)
        controller_image.load(chosen)
        # The pod waits for the node, and has it as soon as the service ends.
        stack.enter_context(daemonset.installed(Cluster(NAME), stage, chosen))
        apply()
        daemonset.daemon_pod(stage)
        stage.wait_until_settled(chosen)
        yield chosen


def set_up_kubelet(stack: ExitStack, node: LabNode) -> None:
    """Have the kubelet read a folder, and see two NUMA nodes."""
    flags = node.node.root / "etc/kubernetes/kubelet.env"
    before = flags.read_text()
    stack.callback(node.unit, "restart", KUBELET)
    stack.callback(flags.write_text, before)
    flags.write_text(before.replace('KUBELET_FLAGS="', f'KUBELET_FLAGS="--config-dir={FOLDER} '))
    node.node.run(["mkdir", "-p", FOLDER])
    numa.simulate(node)
    stack.callback(numa.end, node)
    node.unit("restart", KUBELET)


def test_a_pod_of_the_daemon_does_all_that_the_service_does(room: Room, stage: Stage, node: LabNode) -> None:
    name = daemonset.daemon_pod(stage)
    assert node.state(DAEMON) == "inactive"
    room.start(pod("holder", container(script=STAY, gpus=1), node=node.name))
    room.wait_running(["holder"])
    identity, given = room.identities("holder"), node.given_to(room.name, "holder")
    assert given == {"main": room.sight("holder").uuids}
    assert len(given["main"]) == 1

    node.grapnel_node("release")
    stage.wait_for_gpus(node.name, 0)
    expectation = {"schema": "grapnel.dev/expectation/v1alpha1", "driverVersion": node.module_version()}
    (node.node.root / "root/expectation.json").write_text(json.dumps(expectation))
    assert json.loads(node.grapnel_node("verify", "--json", "--expect", "/root/expectation.json"))["ok"]
    stage.api.delete_pod(daemonset.NAMESPACE, name)
    wait_for("another pod has the node", lambda: daemonset.daemon_pod(stage) != name)
    assert node.knows_its_devices(0)
    node.grapnel_node("resume")
    stage.wait_until_settled(node)
    assert (room.identities("holder"), node.given_to(room.name, "holder")) == (identity, given)


def test_a_pod_of_the_daemon_may_do_little(stage: Stage, node: LabNode, tmp_path: Path) -> None:
    name, cluster = daemonset.daemon_pod(stage), Cluster(NAME)
    seen = stage.api.run_in(daemonset.NAMESPACE, name, "daemon", ["python3", "-c", CAPABILITIES])
    only = "0000000000200000"  # CAP_SYS_ADMIN
    assert seen.strip() == str([f"CapEff:\t{only}", f"CapBnd:\t{only}", "NoNewPrivs:\t1"])

    wait_for("it labels its Node", lambda: "nvidia.com/gpu.count" in stage.api.node(node.name).metadata.labels)
    own = kubeconfig_of(cluster, name, tmp_path)
    another = next(each.name for each in stage.nodes if each.name != node.name)
    annotate = ["annotate", "--dry-run=server", "--overwrite", f"--kubeconfig={own}", "node"]
    cluster.kubectl([*annotate, node.name, f"{ANNOTATION}=y"])
    with pytest.raises(CommandError, match="the node daemon may change annotations of its own alone"):
        cluster.kubectl([*annotate, node.name, "example.com/x=y"])
    with pytest.raises(CommandError, match="the node daemon may change the Node that it runs on, and no other"):
        cluster.kubectl([*annotate, another, f"{ANNOTATION}=y"])


def kubeconfig_of(cluster: Cluster, pod: str, folder: Path) -> Path:
    """Return a kubeconfig with a token as the pod has one."""
    words = ["create", "token", "grapnel-node", "-n", daemonset.NAMESPACE, "--bound-object-kind", "Pod"]
    token = cluster.kubectl([*words, "--bound-object-name", pod]).strip()
    config = json.loads(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    made = folder / "kubeconfig"
    made.write_text(json.dumps(config))
    return made


def test_a_pod_of_the_daemon_serves_claims_and_the_next_one_takes_them_over(
    room: Room, stage: Stage, node: LabNode, operator: Operator
) -> None:
    with by_claims(stage, node, operator):
        room.start(template(), claims_one("first", node))
        room.wait_running(["first"])
        slices, identity, gone = versions(stage, node), room.identities("first"), daemonset.daemon_pod(stage)
        # The pod is recreated, and replaced as soon as the new one is ready.
        stage.api.delete_pod(daemonset.NAMESPACE, gone)
        wait_for("another pod is ready", lambda: daemonset.daemon_pod(stage) != gone)
        before = daemonset.daemon_pod(stage)
        daemonset.replace(Cluster(NAME))

        def names() -> list[str]:
            return [each.metadata.name for each in stage.api.pods(daemonset.NAMESPACE, daemonset.SELECTOR)]

        def evidence() -> str:
            return f"{room.evidence()}\n{stage.evidence(node.name, namespace=daemonset.NAMESPACE)}"

        wait_for("the pod before has gone", lambda: before not in names(), evidence=evidence)
        assert daemonset.daemon_pod(stage) != before
        room.start(claims_one("second", node))
        room.wait_running(["second"])
        assert versions(stage, node) == slices, "the kubelet has deleted nothing, and nothing was written anew"
        assert room.identities("first") == identity
        sights = [room.sight(name).uuids for name in ("first", "second")]
        assert [len(each) for each in sights] == [1, 1]
        assert sights[0] != sights[1]
        room.clear()
        wait_for("every claim is given back", lambda: prepared(node) == 0, evidence=evidence)
    status = stage.api.node(node.name).status.allocatable
    assert status["nvidia.com/gpu"] == str(len(node.uuids))


@contextmanager
def by_claims(stage: Stage, node: LabNode, operator: Operator) -> Iterator[None]:
    """Have a node with a pod of the daemon give its GPUs by claims for a while: declared, applied and verified."""
    own = operator.folder / "host_vars" / f"{node.name}.yaml"
    before, cluster = own.read_text(), Cluster(NAME)
    wanted = json.loads(before)
    wanted["grapnel_stack"]["plugin"]["interface"] = "dra"

    def declare(text: str) -> None:
        own.write_text(text)
        done = operator.apply(node.name)
        assert done.returncode == 0, done.stdout

    with ExitStack() as stack:
        with suppress_conflict():
            stage.api.resource.create_device_class(CLASS)
        stack.callback(stage.api.resource.delete_device_class, DRIVER)
        cluster.kubectl(["apply", "-f", str(daemonset.CLAIMS_ROLE)])
        stack.callback(cluster.kubectl, ["delete", "--ignore-not-found", "-f", str(daemonset.CLAIMS_ROLE)])
        stack.callback(stage.wait_for_gpus, node.name, len(node.uuids))
        stack.callback(declare, before)
        declare(json.dumps(wanted))
        wait_for_devices(stage, node, len(node.uuids))
        yield


def test_a_service_that_is_started_beside_the_pod_says_so(stage: Stage, node: LabNode) -> None:
    name = daemonset.daemon_pod(stage)
    node.node.run(["systemctl", "start", "--no-block", DAEMON])
    try:
        said = f"this node has a daemon already: pod {daemonset.NAMESPACE}/{name}"
        wait_for(
            "the service says why",
            lambda: said in node.journal(DAEMON, 20),
            evidence=lambda: stage.evidence(node.name, namespace=daemonset.NAMESPACE),
        )
        assert node.knows_its_devices(len(node.uuids))
    finally:
        node.unit("stop", DAEMON)


def aligned(name: str, node: LabNode, **limits: str) -> Manifest:
    """Return a pod with all of its CPUs to itself, and huge pages."""
    one = container(script=f"{LOOK_AT_MEMORY}\n{STAY}")
    one["resources"] = {"limits": {"cpu": "1", "memory": "64Mi", "nvidia.com/gpu": "1", **limits}}
    one["volumeMounts"] = [{"name": "huge", "mountPath": "/huge"}]
    made = pod(name, one, node=node.name)
    made["spec"]["volumes"] = [{"name": "huge", "emptyDir": {"medium": "HugePages"}}]
    return made


def test_gpu_and_cpus_of_a_pod_are_of_one_numa_node_and_it_has_huge_pages(room: Room, node: LabNode) -> None:
    room.start(aligned("aligned", node, **{"hugepages-2Mi": f"{HUGE}Mi"}))
    room.wait_running(["aligned"])
    (uuid,) = room.sight("aligned").uuids
    lines = room.api.log(room.name, "aligned", "main").splitlines()
    (cpus,) = (line.split()[1] for line in lines if line.startswith("Cpus_allowed_list"))
    numa_of = {gpu.uuid: gpu.numa_node for gpu in node.node.gpus}
    assert numa_of[uuid] == 1  # all CPUs of the other one are reserved
    assert {int(cpu) for cpu in cpus.split(",")} <= numa.cpus_of_1()
    assert any("hugetlbfs" in line and "pagesize=2M" in line for line in lines), lines
    status = room.api.node(node.name).status.allocatable
    assert status["hugepages-2Mi"] == f"{PAGES * 2}Mi"


def test_a_pod_whose_gpus_are_on_two_numa_nodes_is_refused(room: Room, node: LabNode) -> None:
    room.start(pod("wide", container(gpus=3), node=node.name))
    wait_for("the pod is refused", lambda: room.pod("wide").status.phase == "Failed", evidence=room.evidence)
    assert room.pod("wide").status.reason == "TopologyAffinityError"
