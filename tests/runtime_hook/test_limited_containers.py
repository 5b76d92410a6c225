"""Real containers with limited memory: runc on cgroup v2, the hook, the daemon's socket, the laboratory's driver.

A program in the container allocates through the simulated CUDA library, which asks nobody: it keeps to what was set.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab.nvml.machine import MIB
from runtime_hook.container.memorylimit import limit_memory
from runtime_hook.inputs.bundle import OciState
from tests.control_groups import control_group, hierarchy, inside
from tests.runtime_hook.drivertree import uuid
from tests.runtime_hook.limited import LIBRARIES, POD, add_program, into_pod, limiting_daemon, machine
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.runtime_hook.containers import Container

pytestmark = [pytest.mark.functional, pytest.mark.slow]
ALLOCATED = [("/dev/nvidiactl", 62), ("/dev/nvidia-uvm", 60), ("/dev/nvidia0", 16)]
OUT_OF_MEMORY = 2
_numbers = itertools.count(1)


@pytest.fixture
def pod() -> Iterator[Path]:
    """Make the group of a pod."""
    with control_group(f"grapnel-test-{os.getpid()}/kubepods/pod{POD}") as group:
        yield group


@pytest.fixture
def start(tmp_path: Path, root: Path, pod: Path, container: Callable[..., Container]) -> Callable[..., Container]:
    """Make a container of the pod; its options are those of `Container`."""
    add_program(root)

    def make(command: list[str], memory: str, **options: Any) -> Container:
        annotations = {"grapnel.dev/allocation": uuid(0), **({"grapnel.dev/memory": memory} if memory else {})}
        name = f"{next(_numbers):064x}"
        made = container(command, annotations=annotations, devices=ALLOCATED, name=name, **options)
        return into_pod(made, pod, tmp_path / "driver" / LIBRARIES)

    return make


def test_a_program_gets_what_its_container_was_given_and_no_more(
    tmp_path: Path, start: Callable[..., Container]
) -> None:
    with limiting_daemon(tmp_path, machine()) as daemon:
        done = start(["allocate", "60", "60", "40"], daemon.allocate(100)).run("runc-v2")
    assert done.stdout.splitlines() == ["60 0", f"60 {OUT_OF_MEMORY}", "40 0"], done.stderr


def test_what_a_container_uses_is_told_while_it_runs(tmp_path: Path, start: Callable[..., Container]) -> None:
    with limiting_daemon(tmp_path, machine()) as daemon:
        made = start(["allocate", "60", "wait"], daemon.allocate(100))
        running = threading.Thread(target=made.run, args=("runc-v2",))
        running.start()

        def measured() -> list[tuple[int, int]]:
            return [memory[uuid(0)] for _, memory in daemon.read()]

        wait_until(lambda: measured() == [(100 * MIB, 60 * MIB)], lambda: str(measured()))
        (tmp_path / "driver" / LIBRARIES / "go").touch()
        running.join(60)
        wait_until(lambda: daemon.read() == (), lambda: "the group is still there")


def test_what_an_image_says_of_memory_is_nothing(tmp_path: Path, start: Callable[..., Container]) -> None:
    environment = ["NVIDIA_GPU_MEMORY_LIMIT=40000", "NVIDIA_GPU_MEMORY_REQUEST=1", "CUDA_DEVICE_MEMORY_LIMIT_0=40g"]
    with limiting_daemon(tmp_path, machine()) as daemon:
        done = start(["allocate", "200"], daemon.allocate(100), environment=environment).run("runc-v2")
    assert done.stdout == f"200 {OUT_OF_MEMORY}\n", done.stderr


def test_a_group_that_the_container_makes_for_itself_is_no_way_out(
    tmp_path: Path, start: Callable[..., Container]
) -> None:
    with limiting_daemon(tmp_path, machine()) as daemon:
        done = start(["allocate", f"enter={hierarchy()}", "200", "90"], daemon.allocate(100)).run("runc-v2")
    assert done.stdout.splitlines() == ["entered 1", f"200 {OUT_OF_MEMORY}", "90 0"], done.stderr


def test_two_containers_of_a_pod_have_a_limit_each(tmp_path: Path, start: Callable[..., Container]) -> None:
    with limiting_daemon(tmp_path, machine()) as daemon:
        small, large = daemon.allocate(50), daemon.allocate(200)
        assert start(["allocate", "60"], small).run("runc-v2").stdout == f"60 {OUT_OF_MEMORY}\n"
        assert start(["allocate", "160"], large).run("runc-v2").stdout == "160 0\n"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"driver_version": "580.95.05"}, id="an older driver"),
        pytest.param({"memory_limits_from": 0}, id="a driver that has no limits"),
    ],
)
def test_without_limits_in_the_driver_it_starts_only_where_it_may(
    tmp_path: Path, start: Callable[..., Container], changes: dict[str, Any]
) -> None:
    with limiting_daemon(tmp_path, machine(**changes), "required") as daemon:
        done = start(["allocate", "60"], daemon.allocate(100)).run("runc-v2")
        assert done.returncode != 0
        assert "this driver has no memory limits for control groups" in done.stderr
        assert "60" not in done.stdout
    with limiting_daemon(tmp_path, machine(**changes), "preferred") as daemon:
        done = start(["allocate", "200"], daemon.allocate(100)).run("runc-v2")
        assert done.stdout == "200 0\n", done.stderr


def test_an_amount_that_was_never_given_out_starts_nothing(tmp_path: Path, start: Callable[..., Container]) -> None:
    with limiting_daemon(tmp_path, machine()) as daemon:
        daemon.allocate(100)
        done = start(["allocate", "200"], f"required,{uuid(0)}={39 << 30}").run("runc-v2")
    assert done.returncode != 0
    assert "no container was given this memory" in done.stderr


def test_without_a_daemon_a_container_waits_for_it(tmp_path: Path, start: Callable[..., Container]) -> None:
    with limiting_daemon(tmp_path, machine()) as daemon:
        memory = daemon.allocate(100)
    done = start(["allocate", "60"], memory, settings={"timeoutS": 2}).run("runc-v2")
    assert done.returncode != 0
    assert "node.sock" in done.stderr


def test_of_many_containers_at_once_each_has_its_limit(tmp_path: Path, pod: Path) -> None:
    """More than the daemon answers at once: as after a reboot, when every pod starts."""
    sizes = {f"{number:064x}": 10 + number for number in range(1, 41)}
    with limiting_daemon(tmp_path, machine()) as daemon, contextlib.ExitStack() as stack:
        started = {}
        for name in sizes:
            stack.enter_context(control_group(str((pod / name).relative_to(hierarchy() or pod))))
            sleeping = subprocess.Popen(inside(pod / name, ["sleep", "300"]))
            stack.callback(lambda process=sleeping: (process.kill(), process.wait()))
            started[name] = OciState(id=name, pid=sleeping.pid, bundle="/")
        wait_until(lambda: all((pod / name / "cgroup.procs").read_text() for name in sizes), lambda: "not started")
        annotations = {name: daemon.allocate(size) for name, size in sizes.items()}
        socket = str(tmp_path / "run/node.sock")
        with ThreadPoolExecutor(len(sizes)) as pool:
            asked = [pool.submit(limit_memory, socket, started[name], annotations[name], 30) for name in sizes]
            assert {each.result() for each in asked} == {("memory limit set",)}
        limits = {Path(group.path).name: memory[uuid(0)].limit_bytes for group, memory in daemon.read()}
        assert limits == {name: size * MIB for name, size in sizes.items()}


def test_a_whole_gpu_has_no_limit(tmp_path: Path, start: Callable[..., Container]) -> None:
    with limiting_daemon(tmp_path, machine()):
        done = start(["allocate", "200"], "").run("runc-v2")
    assert done.stdout == "200 0\n", done.stderr
