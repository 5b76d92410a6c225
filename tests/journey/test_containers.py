"""Who sees a GPU on a node that grapnel has set up: exactly the container that was given one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab.cri import ContainerSpec
from lab.cri.errors import CallError
from lab.images import reference
from lab.kubelet import Kubelet
from lab.pods import Pods, pods_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.nodes import Node

pytestmark = pytest.mark.nodes

RESOURCE = "nvidia.com/gpu"
LIST = ["nvidia-smi", "-L"]
LOOK = ["sh", "-c", "ls /dev/nvidia* /usr/lib/x86_64-linux-gnu/libcuda* 2>&1; nvidia-smi -L"]


@pytest.fixture(scope="module")
def kubelet(gpu_node: Node) -> Iterator[Kubelet]:
    with Kubelet(gpu_node.root / "var/lib/kubelet") as stand_in:
        stand_in.wait_for_devices(RESOURCE, 4, timeout_s=30)
        yield stand_in


@pytest.fixture(scope="module")
def pods(gpu_node: Node) -> Iterator[Pods]:
    with pods_on(gpu_node) as made:
        made.load_images()
        yield made


@pytest.mark.parametrize("index", [0, 2])
def test_a_container_sees_the_gpu_that_it_was_given_and_no_other(
    index: int, gpu_node: Node, kubelet: Kubelet, pods: Pods
) -> None:
    given = gpu_node.gpus[index].uuid
    assignment = kubelet.allocate(RESOURCE, 1, "one", device_ids=[given])

    finished = pods.run(ContainerSpec(image=reference("gpu-shell"), command=LIST), assignment=assignment)

    kubelet.release("one")
    assert finished.exit_code == 0, finished.log
    assert finished.log.count("UUID: GPU-") == 1
    assert given in finished.log


def test_two_containers_never_see_each_others_gpus(gpu_node: Node, kubelet: Kubelet, pods: Pods) -> None:
    first = kubelet.allocate(RESOURCE, 2, "first")
    second = kubelet.allocate(RESOURCE, 2, "second")
    spec = ContainerSpec(image=reference("gpu-shell"), command=LIST)

    logs = [pods.run(spec, assignment=assignment).log for assignment in (first, second)]

    kubelet.release("first")
    kubelet.release("second")
    seen = [{gpu.uuid for gpu in gpu_node.gpus if gpu.uuid in log} for log in logs]
    assert seen == [set(first.device_ids), set(second.device_ids)]
    assert not seen[0] & seen[1]


NEIGHBOURS = {
    "whose image says NVIDIA_VISIBLE_DEVICES=all": ContainerSpec(image=reference("greedy"), command=LOOK),
    "whose author says NVIDIA_VISIBLE_DEVICES=all": ContainerSpec(
        image=reference("gpu-shell"), command=LOOK, env={"NVIDIA_VISIBLE_DEVICES": "all"}
    ),
    "that is silent": ContainerSpec(image=reference("gpu-shell"), command=LOOK),
}


@pytest.mark.parametrize("spec", NEIGHBOURS.values(), ids=NEIGHBOURS)
@pytest.mark.parametrize("handler", ["nvidia", ""], ids=["handler nvidia", "default handler"])
def test_a_neighbour_that_was_given_nothing_sees_nothing(spec: ContainerSpec, handler: str, pods: Pods) -> None:
    finished = pods.run(spec, handler=handler)

    assert finished.exit_code != 0
    assert "GPU-" not in finished.log
    assert finished.log.count("No such file") == 2, finished.log


def test_a_privileged_container_gets_no_driver_files(pods: Pods) -> None:
    spec = ContainerSpec(image=reference("greedy"), command=LOOK, privileged=True)

    finished = pods.run(spec)

    assert "nvidia-smi" in finished.log
    assert "GPU-" not in finished.log
    assert "libcuda.so.1" not in finished.log


def test_an_annotation_of_the_pods_author_gives_nothing(gpu_node: Node, pods: Pods) -> None:
    claim = {"grapnel.dev/allocation": gpu_node.gpus[0].uuid}
    pod = pods.cri.run_pod("forger", handler="nvidia", annotations=claim)
    try:
        finished = pods.cri.run(pod, reference("greedy"), LOOK)
    finally:
        pods.cri.remove_pod(pod)

    assert "GPU-" not in finished.log


def test_a_container_is_refused_when_the_hook_has_no_valid_configuration(
    gpu_node: Node, kubelet: Kubelet, pods: Pods
) -> None:
    config = gpu_node.root / "etc/grapnel/hook.json"
    good = config.read_text()
    mounts = gpu_node.run(["cat", "/proc/1/mounts"]).stdout
    assignment = kubelet.allocate(RESOURCE, 1, "refused")
    config.write_text('{"entitlement": "everybody"}')
    try:
        with pytest.raises(CallError, match="grapnel-hook"):
            pods.run(ContainerSpec(image=reference("gpu-shell"), command=LIST), assignment=assignment)
    finally:
        config.write_text(good)
        kubelet.release("refused")
    assert gpu_node.run(["cat", "/proc/1/mounts"]).stdout == mounts
