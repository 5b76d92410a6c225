"""Values of a cluster: command lines, node files, states, refusals before anything starts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.cluster import (
    DEFAULT,
    WITH_CRIO,
    Cluster,
    ClusterError,
    ClusterNode,
    ClusterSpec,
    ControlPlane,
    Engine,
    controller,
)
from lab.cluster.certificates import Certificates
from lab.cluster.components import Layout, plan_components
from lab.cluster.node_files import kubelet_configuration, pod_network, render_routes
from lab.cluster.project import (
    CHECKOUT,
    TOUR_PAGE,
    render_invitation,
    render_stack_invitation,
    write_project,
    write_stack,
)
from lab.cluster.spec import DRIVER_MODULE, available_memory_bytes
from lab.cluster.status import ClusterStatus, NodeState, PodState, ProcessStatus, parse_node, parse_pod, render
from lab.cluster.tour import NEXT_DRIVER, Tour
from provision.controller.stacks.file import judge_stack, read_stack_file
from tasks.image.archive import write_archive

LAYOUT = Layout(Path("/f"), Path("/bin"), "10.177.9.1", 6443, Certificates(Path("/f/pki")))
NODE: dict[str, Any] = {
    "spec": {"unschedulable": True},
    "status": {
        "conditions": [
            {"type": "MemoryPressure", "status": "False", "message": "enough"},
            {"type": "Ready", "status": "True", "message": "kubelet is posting ready status"},
        ],
        "nodeInfo": {"containerRuntimeVersion": "containerd://1.7.24", "kubeletVersion": "v1.36.3", "bootID": "b1"},
        "allocatable": {"cpu": "2", "nvidia.com/gpu": "3"},
    },
}


def flags(component: str, layout: Layout = LAYOUT) -> dict[str, str]:
    argv = next(part.argv for part in plan_components(layout) if part.name == component)
    return dict(word.removeprefix("--").split("=", 1) for word in argv[1:])


def test_the_api_server_is_the_only_one_with_a_port() -> None:
    etcd = flags("etcd")
    urls = [etcd[name] for name in ("listen-client-urls", "listen-peer-urls")]
    assert all(url.startswith("unix://") and "/" not in url.removeprefix("unix://") for url in urls)
    assert flags("kube-apiserver")["etcd-servers"] == etcd["listen-client-urls"]
    assert [flags(name)["secure-port"] for name in ("kube-controller-manager", "kube-scheduler")] == ["0", "0"]
    api = flags("kube-apiserver")
    assert (api["bind-address"], api["secure-port"]) == ("10.177.9.1", "6443")


@pytest.mark.parametrize(
    ("release", "version", "gates"),
    [
        ("1.36.3", "v1alpha2", "GenericWorkload=true,GangScheduling=true,WorkloadWithJob=true"),
        ("1.37.2", "v1beta1", "GenericWorkload=true,WorkloadWithJob=true"),
    ],
)
def test_gangs_are_served_and_scheduled_as_a_release_has_them(release: str, version: str, gates: str) -> None:
    gated = replace(LAYOUT, has_gangs=True, kubernetes=release)
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        assert flags(name, gated)["feature-gates"] == gates
        assert "feature-gates" not in flags(name)
    assert flags("kube-apiserver", gated)["runtime-config"] == f"scheduling.k8s.io/{version}=true"
    assert flags("etcd", gated) == flags("etcd")


def test_a_release_without_gangs_says_so() -> None:
    with pytest.raises(ClusterError, match=r"Kubernetes 1\.34\.4 has no groups of pods"):
        flags("kube-apiserver", replace(LAYOUT, has_gangs=True, kubernetes="1.34.4"))


def test_a_scheduler_with_a_file_has_its_kubeconfig_there() -> None:
    plain, configured = flags("kube-scheduler"), flags("kube-scheduler", replace(LAYOUT, scheduler_config=Path("/f/s")))
    assert configured.pop("config") == "/f/s"
    assert plain.keys() - configured.keys() == {"kubeconfig", "leader-elect"}


def test_what_talks_to_the_api_server_waits_for_its_port() -> None:
    waiting = [part.name for part in plan_components(LAYOUT) if part.needs_api]
    assert waiting == ["kube-controller-manager", "kube-scheduler"]


def test_a_kubelet_takes_this_machine_and_tells_quickly() -> None:
    written = kubelet_configuration(Engine.PACKAGED)
    assert written["failCgroupV1"] is False
    assert written["cgroupDriver"] == "cgroupfs"
    assert written["nodeStatusUpdateFrequency"] == "1s"
    assert written["authentication"]["anonymous"] == {"enabled": False}


def test_pods_of_different_nodes_have_networks_of_their_own_and_routes() -> None:
    subnets = [pod_network(f"10.177.9.{octet}")["plugins"][0]["ipam"]["ranges"][0][0]["subnet"] for octet in (11, 12)]
    assert subnets == ["10.178.11.0/24", "10.178.12.0/24"]
    routes = render_routes("10.177.9.11", range(11, 14))
    assert routes == (
        "[Route]\nDestination=10.178.12.0/24\nGateway=10.177.9.12\n"
        "[Route]\nDestination=10.178.13.0/24\nGateway=10.177.9.13\n"
    )


def test_a_specification_is_the_same_after_it_was_kept() -> None:
    assert ClusterSpec.from_json(json.loads(json.dumps(DEFAULT.to_json()))) == DEFAULT


def test_the_stage_has_an_engine_of_each_kind() -> None:
    engines = [(node.suite, node.engine) for node in DEFAULT.nodes]
    assert engines == [
        ("trixie", Engine.CONTAINERD_2),
        ("trixie", Engine.PACKAGED),
        ("bookworm", Engine.PACKAGED),
    ]


def test_a_node_is_read_from_its_object() -> None:
    state = parse_node("n2", "10.177.9.12", is_running=True, seen=NODE)
    assert (state.is_ready, state.is_cordoned, state.gpus, state.boot_id) == (True, True, 3, "b1")
    assert (state.engine, state.kubelet) == ("containerd://1.7.24", "v1.36.3")


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(None, id="no object"),
        pytest.param({"metadata": {}}, id="an object that nobody has filled yet"),
        pytest.param({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, id="a silent kubelet"),
    ],
)
def test_a_node_that_has_not_told_anything_is_not_ready(seen: dict[str, Any] | None) -> None:
    state = parse_node("n1", "10.177.9.11", is_running=True, seen=seen)
    assert (state.is_ready, state.gpus) == (False, 0)


def test_a_pod_that_is_being_deleted_says_so() -> None:
    pod = {"metadata": {"namespace": "a", "name": "p", "deletionTimestamp": "now"}, "status": {"phase": "Running"}}
    assert parse_pod(pod) == PodState("a", "p", "Terminating", "-")


def test_the_status_is_a_table_of_each_kind() -> None:
    status = ClusterStatus(
        (ProcessStatus("etcd", 12, 1, None, Path("/l")), ProcessStatus("kube-scheduler", 0, 3, 1, Path("/l"))),
        (
            parse_node("n1", "10.177.9.11", is_running=True, seen=NODE),
            NodeState("n2", "10.177.9.12", is_running=False),
        ),
        (),
    )
    assert render(status) == (
        "CONTROL PLANE   PID  STARTS  ENDED WITH\n"
        "etcd            12   1       -\n"
        "kube-scheduler  -    3       1\n"
        "\n"
        "NODE  STATE           ADDRESS      KUBELET  ENGINE               GPUS\n"
        "n1    Ready,cordoned  10.177.9.11  v1.36.3  containerd://1.7.24  3\n"
        "n2    off             10.177.9.12  -        -                    0"
    )


def test_memory_is_what_could_be_had() -> None:
    assert available_memory_bytes("MemTotal: 9 kB\nMemAvailable:   3 kB\n") == 3072


@pytest.mark.slow
def test_a_cluster_that_cannot_fit_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cluster = Cluster("big")
    with pytest.raises(ClusterError, match=r"of memory is available, a cluster of 100000 nodes needs"):
        cluster.up(ClusterSpec(tuple(ClusterNode(f"n{number}") for number in range(100_000))))
    assert not cluster.site.folder.exists()


def test_a_cluster_that_is_not_there_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(ClusterError, match="there is no cluster none"):
        Cluster("none").status()


def test_a_control_plane_that_never_started_says_so(tmp_path: Path) -> None:
    control_plane = ControlPlane(tmp_path)
    with pytest.raises(ClusterError, match="has not been started yet"):
        control_plane.kubectl(["get", "nodes"])
    assert control_plane.status() == []


def made_of(spec: ClusterSpec, name: str) -> Cluster:
    """Return a cluster that was made of these nodes, and never started."""
    cluster = Cluster(name)
    cluster.folder.mkdir(parents=True)
    (cluster.folder / "cluster.json").write_text(json.dumps(spec.to_json()))
    return cluster


def test_a_cluster_is_kept_as_it_was_made() -> None:
    assert ClusterSpec.from_json(json.loads(json.dumps(WITH_CRIO.to_json()))) == WITH_CRIO


def test_a_crio_node_is_declared_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "project"

    write_project(made_of(WITH_CRIO, "mine"), folder)

    assert [path.name for path in (folder / "host_vars").iterdir()] == ["n4.yaml"]
    assert "engine: crio" in (folder / "host_vars" / "n4.yaml").read_text()
    assert kubelet_configuration(Engine.CRIO)["containerRuntimeEndpoint"] == "unix:///var/run/crio/crio.sock"


def test_a_project_keeps_its_declaration_and_touches_no_foreign_inventory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "project"
    cluster = made_of(DEFAULT, "mine")
    write_project(cluster, folder)
    (folder / "grapnel.yaml").write_text("my own")
    write_project(cluster, folder)
    assert (folder / "grapnel.yaml").read_text() == "my own"
    assert (folder / "inventory.yaml").readlink() == cluster.site.inventory_path

    (folder / "inventory.yaml").unlink()
    (folder / "inventory.yaml").write_text("all: {}")
    with pytest.raises(ClusterError, match="was not written by the lab"):
        write_project(cluster, folder)
    assert (folder / "inventory.yaml").read_text() == "all: {}"


def test_what_is_printed_at_the_end_is_the_tour_and_the_page_has_its_commands_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    commands = Tour().commands()
    assert len(commands) == 5
    page = (CHECKOUT / TOUR_PAGE).read_text().splitlines()
    assert [line.removeprefix("$ ") for line in page if line.startswith("$ ")][: len(commands)] == list(commands)
    cluster = made_of(DEFAULT, "mine")
    (cluster.folder / "programs").write_text("/k8s")
    (cluster.site.folder / "site.json").write_text(json.dumps({"subnet": 9}))
    printed = render_invitation(cluster, tmp_path).splitlines()
    assert printed[-len(commands) :] == list(commands)
    assert "export GRAPNEL_LAB_CLUSTER=mine" in printed


def test_the_tour_through_the_controller_is_printed_at_the_end_and_the_page_has_its_commands_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    cluster = made_of(DEFAULT, "stage")
    (cluster.folder / "programs").write_text("/k8s")
    (cluster.site.folder / "site.json").write_text(json.dumps({"subnet": 9}))
    commands = Tour().controller_commands(cluster.name)
    page = (CHECKOUT / TOUR_PAGE).read_text().splitlines()
    assert [line.removeprefix("$ ") for line in page if line.startswith("$ ")][-len(commands) :] == list(commands)
    assert render_stack_invitation(cluster, tmp_path).splitlines()[-len(commands) :] == list(commands)


def test_the_stacks_of_the_tour_are_declarations_of_the_nodes_that_the_lab_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    cluster = made_of(ClusterSpec((*DEFAULT.nodes, ClusterNode("n4", engine=Engine.CRIO))), "mine")
    first = write_stack(cluster, tmp_path)
    former, following = (read_stack_file(file) for file in (first, tmp_path / "next.yaml"))
    assert former is not None
    assert following is not None
    stacks = [judge_stack(document)[0] for document in (former, following)]
    assert [str(stack.spec.driver.version) for stack in stacks] == [DRIVER_MODULE, NEXT_DRIVER]
    labels = {controller.POOL: "gpu"}
    assert [stack.selector.matches(labels) for stack in stacks] == [True, True]
    assert controller.pool(cluster) == ("n1", "n2", "n3"), "what is declared is containerd"
    assert not (tmp_path / "inventory.yaml").exists()


def test_the_name_of_an_image_is_read_from_its_archive(tmp_path: Path) -> None:
    (tmp_path / "root").write_bytes(b"")
    write_archive(tmp_path / "root", {}, "docker.io/local/grapnel:9.9.9", tmp_path / "image.tar", level=0)
    assert controller.reference_of(tmp_path / "image.tar") == "docker.io/local/grapnel:9.9.9"


def test_a_tour_leads_from_the_first_driver_to_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    write_project(made_of(DEFAULT, "mine"), tmp_path)
    former, following = (yaml.safe_load((tmp_path / name).read_text()) for name in ("grapnel.yaml", "next.yaml"))
    assert former.pop("spec")["driver"] == {"version": DRIVER_MODULE, "kernelModule": "none"}
    assert following.pop("spec")["driver"] == {"version": NEXT_DRIVER, "companions": []}
    assert former == following
    work, budget = yaml.safe_load_all((tmp_path / "serve.yaml").read_text())
    assert budget["spec"]["minAvailable"] == work["spec"]["replicas"] - 1
