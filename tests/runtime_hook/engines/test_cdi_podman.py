"""Our CDI file, read by a real Podman: what a container gets by a device's name, and which hooks start."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from provision.planning.engines.files.hook import render_hook_file
from tests.provision.samples import make_stack
from tests.runtime_hook.containers import run_hook
from tests.runtime_hook.drivertree import uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.runtime_hook.drivertree import DriverTree
    from tests.runtime_hook.podman import Podman

pytestmark = [
    pytest.mark.functional,
    pytest.mark.skipif(shutil.which("podman") is None, reason="there is no podman: apt-get install podman"),
]

LOOK = [
    "/bin/sh",
    "-c",
    "/bin/probe libcuda.so.1; for n in 0 1; do (: < /dev/nvidia$n) 2>/dev/null && echo $n open; done; true",
]


@pytest.fixture
def described(podman: Podman, driver: DriverTree, configure: Callable[..., list[str]]) -> Podman:
    """A Podman that finds a CDI file of the host, whose hook is the checkout's."""
    argv = ["cdi", "--root", str(driver.root), "--config", configure()[1], "--hook", str(podman.counting_hook())]
    made = run_hook([*argv, "--output", str(podman.cdi / "grapnel.json")])
    assert made.returncode == 0, made.stderr
    return podman


@pytest.mark.parametrize("runtime", ["runc", "crun"])
@pytest.mark.parametrize(
    ("options", "seen"),
    [
        pytest.param(["--device", f"nvidia.com/gpu={uuid(1)}"], "1 open\n", id="a UUID"),
        pytest.param(["--device", "nvidia.com/gpu=0"], "0 open\n", id="an index"),
        pytest.param(["--device", "nvidia.com/gpu=all"], "0 open\n1 open\n", id="all"),
        pytest.param(
            ["--device", f"nvidia.com/gpu={uuid(0)}", "--env", "NVIDIA_VISIBLE_DEVICES=all"],
            "0 open\n",
            id="an environment that wants more",
        ),
    ],
)
def test_a_named_device_brings_its_nodes_and_the_driver(
    described: Podman, runtime: str, options: list[str], seen: str
) -> None:
    done = described.run(options, LOOK, runtime)
    assert (done.returncode, done.stdout) == (0, f"libcuda.so.1 42\n{seen}"), done.stderr
    assert described.starts() == 1


def test_the_driver_capabilities_of_the_environment_count(described: Podman) -> None:
    options = ["--device", "nvidia.com/gpu=0", "--env", "NVIDIA_DRIVER_CAPABILITIES=utility"]
    done = described.run(options, ["/bin/probe", "libnvidia-ml.so.1", "libcuda.so.1"])
    assert done.stdout == "libnvidia-ml.so.1 42\nlibcuda.so.1 -1\n", done.stderr


def test_a_privileged_container_gets_the_driver_with_the_device(described: Podman) -> None:
    done = described.run(["--privileged", "--device", "nvidia.com/gpu=0"], ["/bin/probe", "libcuda.so.1"])
    assert done.stdout == "libcuda.so.1 42\n", done.stderr


def test_without_a_device_the_hook_does_not_start(described: Podman) -> None:
    done = described.run(["--env", "NVIDIA_VISIBLE_DEVICES=all", "--env", "GRAPNEL_INJECTION=cdi"], LOOK)
    assert done.stdout == "libcuda.so.1 -1\n", done.stderr
    assert described.starts() == 0


def test_beside_a_hook_file_the_work_is_done_once(described: Podman, configure: Callable[..., list[str]]) -> None:
    stack = make_stack(runtime={"engine": "podman", "entitlement": "env"}, plugin={"enabled": False})
    described.install(render_hook_file(stack), configure(entitlement="env"))

    done = described.run(["--device", "nvidia.com/gpu=1", "--env", "NVIDIA_VISIBLE_DEVICES=0"], LOOK)

    assert done.stdout == "libcuda.so.1 42\n1 open\n", done.stderr
    assert described.starts() == 2


def test_a_device_that_is_not_there_is_the_engines_refusal(described: Podman) -> None:
    done = described.run(["--device", "nvidia.com/gpu=7"], LOOK)
    assert done.returncode != 0
    assert "nvidia.com/gpu=7" in done.stderr
