"""Engines of other systems' package managers: what is there stays, what comes works, and all of it goes again.

dnf, rpm, signatures, systemd, containerd and runc are real on a node that says it is Rocky Linux 9. The packages are
the lab's, with the relations of Docker's; Podman's is a stand-in.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from lab import sources
from lab.bundle.repository import PUBLIC_KEY
from lab.cri import ContainerSpec, container_config
from lab.images import reference
from lab.nodes import NodeSpec
from lab.pods import pods_on
from lab.sources.systems import DOCKERS
from tests.journey.systems import RPM, SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.nodes import Node, Site
    from tests.journey.conftest import Controller

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(900)]

NAME = "rocky"
RUNNING = "ctr -n k8s.io tasks ls | awk '$3 == \"RUNNING\" {print $1, $2}' | sort"
ENGINE = "/var/lib/grapnel/engine"
DROP_IN = "/etc/systemd/system/containerd.service.d"
TROUBLE = "[Service]\nExecStartPre=/bin/sh -c '! containerd --version | grep -q 2.2.1'\n"
# The image that containerd's own settings name is the lab's.
PAUSE = f"""ctr -n k8s.io images tag --force {reference("pause")} \
$(containerd config default | sed -n "s/^ *sandbox = '\\(.*\\)'$/\\1/p")"""
LOOK = ["sh", "-c", "ls /dev/nvidia0 /usr/lib*/libcuda.so.1 /usr/lib/*/libcuda.so.1 2>/dev/null; true"]
# Of the site: this node may not lower what the kernel's choice of a victim goes by, nor has it every controller.
SITES = """\
version = 3
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
tolerate_missing_hugetlb_controller = true
"""
DRIVER = """
dnf -y -q module enable nvidia-driver:580-open
dnf -y -q install nvidia-driver-cuda-580.126.09 kmod-nvidia-open-dkms-580.126.09
modprobe -a nvidia nvidia-uvm
"""
SETTINGS = "/etc/yum.repos.d /etc/pki/rpm-gpg /etc/containerd /etc/cni /etc/dnf/plugins/versionlock.list"


@pytest.fixture(scope="module")
def node(site: Site) -> Iterator[Node]:
    made = site.up(NodeSpec(NAME, suite=sources.BASE_SUITE, gpus=1, system="rocky9"))
    say(made, f"{DRIVER}rm -r /etc/containerd")  # of the site's administrator: the package brings its own
    yield made
    site.remove(NAME)


@pytest.fixture(autouse=True)
def _own_state(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(controller.folder / "state"))


def declare(controller: Controller, node: Node, **runtime: Any) -> None:
    """Declare a runtime alone, of Docker's repository unless another source is named."""
    key = node.machine.bundle.joinpath(PUBLIC_KEY).read_text()
    docker = {"source": "docker", "repository": {"url": f"file://{SOURCES}/{DOCKERS}", "key": key}}
    of_docker = {} if "source" in runtime else docker
    spec = {
        "driver": {"enabled": False},
        "runtime": {"entitlement": "env", **of_docker, **runtime},
        "plugin": {"enabled": False},
    }
    document = {"apiVersion": "grapnel.dev/v1alpha1", "kind": "GpuStack", "spec": spec}
    controller.folder.joinpath("grapnel.yaml").write_text(json.dumps(document))


def say(node: Node, script: str) -> str:
    return node.run(["sh", "-c", script]).stdout.strip()


def packages(node: Node) -> list[str]:
    return sorted(row for row in node.run(RPM).stdout.splitlines() if not row.startswith("gpg-pubkey"))


def settings(node: Node) -> str:
    return say(node, f"find {SETTINGS} -type f -exec sha256sum '{{}}' + 2>/dev/null | sort -k 2")


def problems(controller: Controller) -> list[dict[str, str]]:
    done = controller.grapnel("plan", "--json", NAME)
    (plan,) = json.loads(done.stdout)["plans"]
    found: list[dict[str, str]] = plan["problems"]
    return found


def call(controller: Controller, verb: str, *words: str) -> str:
    done = controller.call(verb, *words, NAME)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_system_without_the_engine_says_where_it_is(node: Node, controller: Controller) -> None:
    declare(controller, node, source="distribution")

    (problem,) = problems(controller)

    assert problem["code"] == "engine-missing"
    assert "rocky has no package of it" in problem["message"]
    assert "runtime.source: docker" in problem["hint"]


def test_what_others_run_with_is_not_taken_away(node: Node, controller: Controller) -> None:
    """Docker's containerd.io takes the place of runc, which Podman starts its containers with."""
    say(node, "dnf -y -q install podman")
    before, declared = packages(node), settings(node)
    declare(controller, node)

    (problem,) = problems(controller)
    refused = controller.call("apply", NAME)

    assert problem["code"] == "engine-packages-conflict"
    assert "would take runc 4:1.3.6-1.el9 off" in problem["message"]
    assert refused.returncode != 0
    assert (packages(node), settings(node)) == (before, declared)
    say(node, "dnf -y -q remove podman runc")


def test_a_containerd_comes_from_dockers_repository_works_and_goes(node: Node, controller: Controller) -> None:
    before, former = packages(node), settings(node)
    declare(controller, node)

    items = controller.plan_items(NAME)
    assert "1 converged" in call(controller, "apply")

    assert ("install", "containerd.io") in {(item["action"], item["target"]) for item in items}
    assert "containerd.io 2.4.2-1.el9" in packages(node)
    assert controller.plan_items(NAME) == []
    assert say(node, "systemctl is-active containerd; systemctl is-enabled containerd") == "active\nenabled"
    plugins = say(node, "ctr plugins ls")
    assert [line.split()[-1] for line in plugins.splitlines() if "io.containerd.cri.v1" in line] == ["ok", "ok"]
    assert "runtimes.nvidia" in say(node, "containerd config dump")

    say(node, "echo enabled=0 >> /etc/yum.repos.d/grapnel-docker.repo")
    (drifted,) = controller.plan_items(NAME)
    assert (drifted["action"], drifted["target"]) == ("write", "/etc/yum.repos.d/grapnel-docker.repo")
    started = say(node, "systemctl show -p ExecMainStartTimestampMonotonic --value containerd")
    call(controller, "apply")
    assert say(node, "systemctl show -p ExecMainStartTimestampMonotonic --value containerd") == started

    declare(controller, node, source="distribution")
    assert {item["action"] for item in controller.plan_items(NAME)} == {"remove"}
    call(controller, "apply")
    assert say(node, "ls /etc/yum.repos.d/grapnel-docker.repo /etc/pki/rpm-gpg/*docker 2>/dev/null || :") == ""
    assert "containerd.io 2.4.2-1.el9" in packages(node)
    assert controller.plan_items(NAME) == []
    assert say(node, "systemctl show -p ExecMainStartTimestampMonotonic --value containerd") == started

    assert "1 removed" in call(controller, "remove")
    assert packages(node) == before
    assert settings(node) == former
    assert say(node, "ls -d /etc/containerd /var/lib/grapnel 2>/dev/null || :") == ""


def test_a_version_is_exchanged_under_a_pod_and_given_back_where_it_does_not_work(
    node: Node, controller: Controller
) -> None:
    folder = node.root / "etc/containerd"
    folder.mkdir()
    folder.joinpath("config.toml").write_text(SITES)
    before, former = packages(node), settings(node)
    declare(controller, node, version="2.2.1")
    assert "1 converged" in call(controller, "apply")
    assert "containerd.io 2.2.1-1.el9" in packages(node)

    with pods_on(node) as pods:
        pods.load_images(["pause", "gpu-shell"])
        say(node, PAUSE)
        pod = pods.cri.run_pod("stays", handler="nvidia")
        pods.cri.start(pod, container_config(ContainerSpec(image=reference("gpu-shell"), command=["sleep", "3600"])))
    running = say(node, RUNNING)
    assert len(running.splitlines()) == 2

    declare(controller, node, version="2.4.2")
    stage, item = controller.plan_items(NAME)
    assert (stage["action"], stage["target"], stage["disruption"]) == ("stage", "containerd.io", "none")
    assert (item["action"], item["target"], item["disruption"]) == ("upgrade", "containerd.io", "drain")
    assert "1 staged" in controller.grapnel("stage", "--no-cluster", NAME).stdout
    assert "containerd.io 2.2.1-1.el9" in packages(node)
    assert [one["action"] for one in controller.plan_items(NAME)] == ["upgrade"]

    with without_source(node):
        applied = call(controller, "apply")
    assert "1 converged" in applied
    assert "downloaded while the node was out of service" not in applied
    assert "containerd.io 2.4.2-1.el9" in packages(node)
    assert say(node, f"ls {ENGINE} 2>/dev/null || :") == ""
    assert controller.plan_items(NAME) == []
    assert say(node, RUNNING) == running
    assert_containers(node)

    # One that does not start with the other version.
    place = node.root / DROP_IN.lstrip("/")
    place.mkdir()
    place.joinpath("trouble.conf").write_text(TROUBLE)
    declare(controller, node, version="2.2.1")
    failed = controller.call("apply", NAME)
    assert failed.returncode != 0
    assert "its former packages were put back, and containerd.service works with them" in failed.stdout + failed.stderr
    assert "containerd.io 2.4.2-1.el9" in packages(node)
    assert say(node, RUNNING) == running
    assert_containers(node)

    say(node, f"rm -r {DROP_IN}; systemctl daemon-reload")
    with pods_on(node) as pods:
        pods.cri.remove_pod(pod)
    assert "staged" in say(node, f"ls {ENGINE}")  # for another try
    assert "1 removed" in call(controller, "remove")
    assert packages(node) == before
    assert settings(node) == former
    assert say(node, f"ls {ENGINE} 2>/dev/null || :") == ""
    say(node, "rm -r /etc/containerd")


@contextmanager
def without_source(node: Node) -> Iterator[None]:
    """Have the node reach its source of the engine no more."""
    say(node, f"mount -t tmpfs none {SOURCES}/{DOCKERS}")
    try:
        yield
    finally:
        say(node, f"umount {SOURCES}/{DOCKERS}")


def assert_containers(node: Node) -> None:
    """See that a container gets the GPU that it names, and one of the default handler none."""
    spec = ContainerSpec(image=reference("gpu-shell"), command=LOOK, env={"NVIDIA_VISIBLE_DEVICES": "all"})
    say(node, PAUSE)
    with pods_on(node) as pods:
        given, other = pods.run(spec), pods.run(spec, handler="")
    assert "/dev/nvidia0" in given.log
    assert "libcuda.so.1" in given.log
    assert other.log == ""


def test_podman_comes_from_the_system_itself_and_goes(node: Node, controller: Controller) -> None:
    before, former = packages(node), settings(node)
    declare(controller, node, source="distribution", engine="podman")

    assert "1 converged" in call(controller, "apply")

    there = packages(node)
    assert {"podman 4:5.4.0-1.el9", "runc 4:1.3.6-1.el9"} == {*there} - {*before}
    assert "grapnel" in say(node, "cat /usr/share/containers/oci/hooks.d/99-grapnel.json")
    assert controller.plan_items(NAME) == []
    assert "1 removed" in call(controller, "remove")
    assert packages(node) == before
    assert settings(node) == former
