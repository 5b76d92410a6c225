"""Docker, then Podman, on a node that grapnel has set up: who gets a GPU by environment, who by a device's name."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from lab import images
from lab.nodes import NodeSpec, Site
from lab.sources import again
from provision.planning.engines.docker import GPUS_PATH
from tests.journey.conftest import VERSION, Controller
from tests.worker import of_this_worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.nodes import Node
    from lab.nodes.layer import Layer

pytestmark = pytest.mark.nodes

DAEMON_JSON = "/etc/docker/daemon.json"
# A node has no plain file system but there, and no netfilter of its own.
FOREIGN = {
    "data-root": "/var/lib/containerd/docker",
    "bridge": "none",
    "iptables": False,
    "features": {"buildkit": True},
    "runtimes": {"other": {"path": "/usr/sbin/runc"}},
}
DECLARATION = f"""\
apiVersion: grapnel.dev/v1alpha1
kind: GpuStack
spec:
  driver: {{{{version: "{VERSION}", kernelModule: none}}}}
  runtime: {{{{engine: {{engine}}, entitlement: env{{more}}}}}}
  plugin: {{{{enabled: false}}}}
"""
OTHER_DOCKER = "26.1.9"  # the same programs
IMAGE = "local/gpu-shell:1"
RUN = ["docker", "run", "--rm", "--network", "none"]
BY_ENVIRONMENT = ["--runtime", "nvidia", "--env", "NVIDIA_VISIBLE_DEVICES=1"]
LOOK = ["sh", "-c", "nvidia-smi -L; ls /dev | grep nvidia; true"]
ALL_NODES = ["nvidia-uvm", "nvidia-uvm-tools", "nvidia1", "nvidiactl"]


def furnish(layer: Layer, _: str) -> None:
    """Give the node a foreign Docker configuration."""
    layer.write(DAEMON_JSON, json.dumps(FOREIGN))


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    """An operator's folder with a declaration for Docker and a bare node."""
    site = Site(of_this_worker("engines"))
    site.destroy()
    try:
        site.up(NodeSpec("n1", gpus=2, driver_module=VERSION), furnish)
        folder = tmp_path_factory.mktemp("controller")
        folder.joinpath("grapnel.yaml").write_text(DECLARATION.format(engine="docker", more=""))
        folder.joinpath("inventory.yaml").symlink_to(site.inventory_path)
        yield Controller(folder)
    finally:
        site.destroy()


@pytest.fixture(scope="module")
def node(controller: Controller, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """The node after ``grapnel apply``, with Docker's client and an image."""
    node = Site(of_this_worker("engines")).node("n1")
    controller.converge("n1")
    node.run(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-y", "install", "docker-cli"])
    import_image(node, tmp_path_factory.mktemp("image"))
    return node


def import_image(node: Node, folder: Path) -> None:
    """Bring an image in as a plain root: Docker reads OCI layouts from release 25 on only."""
    images.rootfs("gpu-shell", folder / "root")
    transfer = node.root / "var/lib/containerd/image.tar"
    subprocess.run(["tar", "--create", "--file", transfer, "--directory", folder / "root", "."], check=True)
    node.run(["docker", "import", "/var/lib/containerd/image.tar", IMAGE])
    transfer.unlink()


def look(node: Node, *options: str) -> str:
    """Return what a container with these options sees."""
    return node.run([*RUN, *options, IMAGE, *LOOK]).stdout


def restart(node: Node) -> None:
    """Restart Docker, however often it was lately."""
    node.run(["systemctl", "reset-failed", "docker"])
    node.run(["systemctl", "restart", "docker"])


def test_somebody_elses_configuration_stays(node: Node) -> None:
    tree = json.loads((node.root / DAEMON_JSON.lstrip("/")).read_text())
    ours = {"nvidia": {"path": "/usr/lib/grapnel/hook/grapnel-runtime"}}
    assert tree == {**FOREIGN, "runtimes": {**FOREIGN["runtimes"], **ours}, "features": {"cdi": True, "buildkit": True}}  # type: ignore[dict-item] # a test's tree


def test_the_environment_brings_the_gpu_that_it_names(node: Node) -> None:
    seen = look(node, *BY_ENVIRONMENT)
    assert node.gpus[1].uuid in seen
    assert seen.count("GPU-") == 1
    assert seen.splitlines()[1:] == ALL_NODES


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--runtime", "nvidia"], id="our runtime, and nothing asked"),
        pytest.param(["--env", "NVIDIA_VISIBLE_DEVICES=all"], id="asked, of another runtime"),
    ],
)
def test_nothing_else_does(node: Node, options: list[str]) -> None:
    assert look(node, *options) == ""


@pytest.mark.parametrize(
    ("options", "gpus"),
    [
        pytest.param(["--gpus", "all"], [0, 1], id="all"),
        pytest.param(["--gpus", "1"], [0], id="a number"),
        pytest.param(["--gpus", "device=1"], [1], id="by index"),
        pytest.param(["--gpus", "device=1", "--env", "NVIDIA_VISIBLE_DEVICES=all"], [1], id="an image that wants more"),
        pytest.param(["--gpus", "device=1", "--runtime", "nvidia"], [1], id="with our runtime"),
    ],
)
def test_gpus_gives_what_was_asked_for_once(node: Node, options: list[str], gpus: list[int]) -> None:
    mounts = ["sh", "-c", "nvidia-smi -L; cut -d' ' -f5 /proc/self/mountinfo | sort | uniq -d; ls /dev | grep nvidia"]
    seen = node.run([*RUN, *options, IMAGE, *mounts]).stdout
    assert [each.uuid for each in node.gpus if each.uuid in seen] == [node.gpus[index].uuid for index in gpus]
    found = seen.splitlines()
    assert set(ALL_NODES[:2]) <= set(found)
    assert not [line for line in found if line.startswith("/")], "mounted twice"


def test_nvidias_own_program_goes_first_while_it_is_installed(node: Node) -> None:
    theirs = node.root / "usr/bin/nvidia-container-runtime-hook"
    theirs.write_text("#!/bin/sh\necho theirs $1 >&2\nexit 3\n")
    theirs.chmod(0o755)
    try:
        done = node.run([*RUN, "--gpus", "all", IMAGE, "true"], check=False)
    finally:
        theirs.unlink()
    assert done.returncode == 125
    assert "theirs prestart" in done.stderr


def test_a_docker_that_looked_before_is_told_of_and_works_after_its_next_start(
    node: Node, controller: Controller
) -> None:
    program, aside = GPUS_PATH, "/usr/local/sbin/aside"
    node.run(["mv", program, aside])
    restart(node)
    node.run(["sleep", "3"])
    node.run(["mv", aside, program])
    refused = node.run([*RUN, "--gpus", "all", IMAGE, "true"], check=False)
    assert "could not select device driver" in refused.stderr
    told = controller.grapnel("doctor").stdout
    assert "docker run --gpus works from Docker's next start on" in " ".join(told.split())

    restart(node)

    assert node.gpus[0].uuid in look(node, "--gpus", "all")
    assert "docker-gpus-late" not in controller.grapnel("doctor").stdout


@pytest.mark.usefixtures("node")
def test_what_gpus_starts_goes_with_grapnel(controller: Controller) -> None:
    foreseen = controller.grapnel("remove", "--no-cluster", "--plan", "--json").stdout
    steps = json.loads(foreseen)["nodes"][0]["steps"]
    assert ("remove", GPUS_PATH) in {(step["action"], step["target"]) for step in steps}


def test_a_devices_name_brings_it_from_dockers_next_start_on(node: Node) -> None:
    restart(node)
    seen = look(node, "--device", f"nvidia.com/gpu={node.gpus[1].uuid}")
    assert node.gpus[1].uuid in seen
    assert seen.count("GPU-") == 1
    assert set(seen.splitlines()[1:]) == {*ALL_NODES, "nvidia-modeset"}


def test_a_reboot_brings_the_names_of_devices_back(node: Node) -> None:
    """What describes them is in ``/run``, which a reboot empties."""
    node.reboot()
    node.run(["systemctl", "is-active", "--wait", "docker"])
    seen = look(node, "--device", "nvidia.com/gpu=0")
    assert node.gpus[0].uuid in seen
    assert seen.count("GPU-") == 1


def test_restarts_leave_nothing_that_grows(node: Node) -> None:
    given = ["--name", "again", "--network", "none", *BY_ENVIRONMENT]
    node.run(["docker", "run", "--detach", *given, IMAGE, "sleep", "1000"])
    try:
        traces = []
        for _ in range(5):
            node.run(["docker", "restart", "--time", "0", "again"])
            listed = node.run(["docker", "exec", "again", "nvidia-smi", "-L"]).stdout
            traces.append((listed, trace(node)))
    finally:
        node.run(["docker", "rm", "--force", "again"])
    assert node.gpus[1].uuid in traces[0][0]
    assert len(set(traces)) == 1, traces


def trace(node: Node) -> str:
    """Return what a container leaves: its changed files, mounts inside and outside, files of ours."""
    script = """
docker diff again | sort
docker exec again sh -c 'wc -l < /proc/self/mountinfo'
wc -l < /proc/1/mountinfo
find /run/grapnel /var/run/cdi/ -type f | sort
"""
    return node.run(["sh", "-c", script]).stdout


def test_a_wrapper_without_a_runtime_is_told_in_dockers_own_message(node: Node) -> None:
    node.run(["mv", "/usr/sbin/runc", "/usr/sbin/runc.away"])
    try:
        done = node.run([*RUN, *BY_ENVIRONMENT, IMAGE, "true"], check=False)
    finally:
        node.run(["mv", "/usr/sbin/runc.away", "/usr/sbin/runc"])
    assert done.returncode == 125
    assert "grapnel-runtime: found no runc or crun" in done.stderr


def test_another_version_of_docker_starts_containers_as_the_former_one_did(node: Node, controller: Controller) -> None:
    def declare(version: str) -> None:
        text = DECLARATION.format(engine="docker", more=f', version: "{version}"')
        controller.folder.joinpath("grapnel.yaml").write_text(text)

    asked = ["dpkg-query", "-W", "-f", "${Version}", "docker.io"]
    former = node.run(asked).stdout
    images_before = node.run(["docker", "image", "ls", "--quiet"]).stdout
    again.offer(node, again.Again("docker.io", f"{OTHER_DOCKER}-1"))
    try:
        for version in (OTHER_DOCKER, former.partition("+")[0]):
            declare(version)
            controller.converge("n1")
            assert node.run(asked).stdout.startswith(version)
            assert node.gpus[1].uuid in look(node, *BY_ENVIRONMENT)
    finally:
        again.take_back(node)
    assert node.run(asked).stdout == former
    assert node.run(["docker", "image", "ls", "--quiet"]).stdout == images_before
    assert node.run(["docker", "ps", "--all", "--quiet"]).stdout == ""


@pytest.fixture(scope="module")
def podman_root(node: Node, controller: Controller) -> str:
    """The node after ``grapnel apply`` for Podman, and an image's root on it."""
    controller.folder.joinpath("grapnel.yaml").write_text(DECLARATION.format(engine="podman", more=""))
    controller.converge("n1")
    images.rootfs("gpu-shell", node.root / "var/lib/containers/shell")
    return "/var/lib/containers/shell"


@pytest.mark.parametrize(
    ("options", "gpu"),
    [
        pytest.param(["--env", "NVIDIA_VISIBLE_DEVICES=0"], 0, id="by environment"),
        pytest.param(["--device", "nvidia.com/gpu=1"], 1, id="by a device's name"),
        pytest.param(["--gpus", "1"], 1, id="by --gpus, which is a device's name to Podman"),
        pytest.param([], None, id="not at all"),
    ],
)
def test_podman_gives_a_gpu(node: Node, podman_root: str, options: list[str], gpu: int | None) -> None:
    engine = ["podman", "--cgroup-manager", "cgroupfs", "--runtime", "runc"]
    seen = node.run([*engine, "run", "--rm", "--network", "none", *options, "--rootfs", podman_root, *LOOK]).stdout
    assert [each.uuid for each in node.gpus if each.uuid in seen] == ([] if gpu is None else [node.gpus[gpu].uuid])
