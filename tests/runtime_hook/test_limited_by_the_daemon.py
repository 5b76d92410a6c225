"""From the kubelet's Allocate to a program that gets no more memory: the whole daemon, the hook, runc on cgroup v2."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from typing import TYPE_CHECKING

import pytest

from lab.kubelet import Container as Asked
from lab.kubelet import Kubelet, Pod
from lab.nvml import install, install_cuda
from lab.podresources.server import serving
from tests.control_groups import control_group
from tests.plugin.daemon.test_whole_daemon import Node
from tests.runtime_hook.drivertree import uuid
from tests.runtime_hook.limited import POD, add_program, into_pod, machine
from tests.runtime_hook.test_limited_containers import ALLOCATED, OUT_OF_MEMORY
from tests.waiting import wait_until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.runtime_hook.containers import Container

pytestmark = [pytest.mark.functional, pytest.mark.slow]
MEMORY = "aliyun.com/gpu-mem"
VERSION = "615.71.09"
CGROUPS = "/sys/fs/cgroup"
# The daemon as on a host without cgroup v1.
_ONLY_V2 = f'umount -R {CGROUPS} && mount -t cgroup2 none {CGROUPS} && exec "$0" "$@"'
_numbers = itertools.count(1)


class LimitingNode(Node):
    """A daemon that offers one GPU in units of 64 MiB, and a kubelet that knows who has some."""

    def __init__(self, folder: Path, policy: str) -> None:
        super().__init__(folder, 1)
        self.library = install(folder / "lib", VERSION, machine(cgroup_root=CGROUPS))
        install_cuda(folder / "lib", VERSION)
        self.configure(memoryUnits=[{"unitMiB": 64}], memoryLimits=policy)

    def configure(self, **keys: object) -> None:
        path = self.folder / "node.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))

    def command(self, *arguments: str) -> list[str]:
        return ["unshare", "--mount", "sh", "-c", _ONLY_V2, *super().command(*arguments)]

    @contextlib.contextmanager
    def with_kubelet(self) -> Iterator[Kubelet]:
        kubelet_root = self.folder / "kubelet"
        with Kubelet(kubelet_root) as kubelet, serving(kubelet_root, kubelet.device_manager.list_response):
            yield kubelet


@pytest.fixture
def start(tmp_path: Path, root: Path, container: Callable[..., Container]) -> Iterator[Callable[..., str]]:
    """Run a program in a container of the pod with an annotation; returns what it says, or why it did not start."""
    add_program(root)
    with control_group(f"grapnel-test-{os.getpid()}/kubepods/pod{POD}") as pod:

        def run(memory: str, *sizes: str) -> str:
            annotations = {"grapnel.dev/allocation": uuid(0), "grapnel.dev/memory": memory}
            name = f"{next(_numbers):064x}"
            made = container(["allocate", *sizes], annotations=annotations, devices=ALLOCATED, name=name)
            made = into_pod(made, pod, tmp_path / "lib", cgroups=CGROUPS)
            done: subprocess.CompletedProcess[str] = made.run("runc-v2")
            return done.stdout or done.stderr

        yield run


def test_a_container_gets_the_units_that_the_kubelet_gave_it(tmp_path: Path, start: Callable[..., str]) -> None:
    node = LimitingNode(tmp_path, "required")
    with node.with_kubelet() as kubelet:
        with node.running():
            kubelet.wait_for_devices(MEMORY, 640)
            kubelet.admit(Pod("train-0", (Asked("main", 2),), resource=MEMORY))
            memory = f"required,{uuid(0)}={128 << 20}"
            assert start(memory, "100", "100") == f"100 0\n100 {OUT_OF_MEMORY}\n", node.log()
            forged = memory.replace(str(128 << 20), str(4096 << 20))
            assert "no container was given this memory" in start(forged, "100")
        assert "node.sock" in start(memory, "100"), "started while nobody could set its limit"
        with node.running():
            wait_until(lambda: "registered" in node.log(), node.log)
            assert start(memory, "200") == f"200 {OUT_OF_MEMORY}\n", node.log()


def test_an_operator_decides_what_an_older_driver_means(tmp_path: Path, start: Callable[..., str]) -> None:
    node = LimitingNode(tmp_path, "preferred")
    install(tmp_path / "lib", VERSION, machine(cgroup_root=CGROUPS, memory_limits_from=0))
    with node.with_kubelet() as kubelet, node.running():
        kubelet.wait_for_devices(MEMORY, 640)
        memory = kubelet.allocate(MEMORY, 2, "pod").response.annotations["grapnel.dev/memory"]
        assert memory == f"{uuid(0)}={128 << 20}"
        assert start(memory, "200") == "200 0\n", node.log()
        wait_until(lambda: "this driver has no memory limits" in node.log(), node.log)
