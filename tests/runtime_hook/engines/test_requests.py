"""Requests, requirements and rules under a real runtime: what starts, what does not, what is seen inside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.runtime_hook.driverlayers import add_imex
from tests.runtime_hook.drivertree import VERSION, uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.runtime_hook.containers import Container
    from tests.runtime_hook.drivertree import DriverTree

pytestmark = pytest.mark.functional

NODES = ["/bin/sh", "-c", "cd /dev; ls nvidia[0-9]* 2>/dev/null; exec /bin/probe libcuda.so.1"]
GIVEN, NOTHING = "libcuda.so.1 42\n", "libcuda.so.1 -1\n"
FOLDER = "/var/run/nvidia-container-devices"
ALLOCATED = [("/dev/nvidiactl", 62), ("/dev/nvidia-uvm", 60), ("/dev/nvidia0", 16)]
CHANNEL = ("/dev/nvidia-caps-imex-channels/channel0", 0)
CONTAINERD = {"io.kubernetes.cri.sandbox-namespace": "web", "io.kubernetes.cri.sandbox-name": "pod-1"}
STRICT = {"entitlement": "env", "acceptEnvvarUnprivileged": False}


def mounts(*names: str) -> list[dict[str, Any]]:
    return [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
        *(
            {"destination": f"{FOLDER}/{name}", "type": "bind", "source": "/dev/null", "options": ["bind"]}
            for name in names
        ),
    ]


@pytest.mark.parametrize(
    ("settings", "options", "seen"),
    [
        pytest.param(
            {**STRICT, "acceptVolumeMounts": True},
            {"changes": {"mounts": mounts("1")}},
            "nvidia1\n" + GIVEN,
            id="mounts",
        ),
        pytest.param(STRICT, {"changes": {"mounts": mounts("1")}}, NOTHING, id="mounts that are not accepted"),
        pytest.param(
            {"entitlement": "env", "swarmResources": ["DOCKER_RESOURCE_GPU"]},
            {"environment": ["DOCKER_RESOURCE_GPU=1", "NVIDIA_VISIBLE_DEVICES=0"]},
            "nvidia1\n" + GIVEN,
            id="a swarm variable",
        ),
        pytest.param(
            {"entitlement": "env"},
            {"environment": [f"NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu={uuid(1)},10:0.0"]},
            "nvidia0\nnvidia1\n" + GIVEN,
            id="a CDI name and a PCI address",
        ),
        pytest.param(
            {"entitlement": "env"},
            {"environment": ["NVIDIA_VISIBLE_DEVICES=1"], "capabilities": ["CAP_SYS_ADMIN", "CAP_MKNOD"]},
            "nvidia1\n" + GIVEN,
            id="a privileged container, what it asks for and not all",
        ),
        pytest.param(
            {"entitlement": "env", "rules": [{"decision": "allow", "users": [4711]}]},
            {"environment": ["NVIDIA_VISIBLE_DEVICES=all"]},
            NOTHING,
            id="a user that no rule allows",
        ),
    ],
)
def test_a_container_sees_what_its_request_gives(
    container: Callable[..., Container], settings: dict[str, Any], options: dict[str, Any], seen: str
) -> None:
    done = container(NODES, settings, **options).run()
    assert (done.returncode, done.stdout) == (0, seen), done.stderr


@pytest.mark.parametrize(
    ("settings", "options", "words"),
    [
        pytest.param(
            {},
            {"devices": ALLOCATED, "environment": ["NVIDIA_REQUIRE_DRIVER=driver>=999 driver<1"]},
            f"NVIDIA_REQUIRE_DRIVER is not met on {uuid(0)}: driver>=999 fails, as driver is {VERSION}",
            id="a requirement",
        ),
        pytest.param(
            {"rules": [{"decision": "deny", "namespaces": ["web"]}, {"decision": "allow"}]},
            {"devices": ALLOCATED, "annotations": CONTAINERD},
            "rules[0] denies GPUs for namespace web",
            id="a rule",
        ),
        pytest.param(
            {"rules": [{"decision": "allow", "capabilities": ["utility"]}]},
            {"devices": ALLOCATED, "environment": ["NVIDIA_DRIVER_CAPABILITIES=compute"]},
            "unsupported driver capabilities compute",
            id="a capability that the rule does not allow",
        ),
        pytest.param(
            {"entitlement": "env"},
            {"environment": ["NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_MIG_CONFIG_DEVICES=all"]},
            "NVIDIA_MIG_CONFIG_DEVICES is for privileged containers",
            id="administration without privilege",
        ),
    ],
)
def test_a_container_does_not_start_and_is_told_why(
    container: Callable[..., Container], settings: dict[str, Any], options: dict[str, Any], words: str
) -> None:
    done = container(NODES, settings, **options).run()
    assert done.returncode != 0
    assert words in done.stderr


def test_a_requirement_that_is_switched_off_does_not_count(container: Callable[..., Container]) -> None:
    environment = ["NVIDIA_REQUIRE_DRIVER=driver>=999", "NVIDIA_DISABLE_REQUIRE=true"]
    done = container(NODES, devices=ALLOCATED, environment=environment).run()
    assert (done.returncode, done.stdout) == (0, "nvidia0\n" + GIVEN), done.stderr


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        pytest.param([CHANNEL], "channel0\n" + GIVEN, id="with the channel that was allocated"),
        pytest.param([], GIVEN, id="without one, whatever the image asks for"),
    ],
)
def test_imex_channels_of_a_pod_are_those_of_its_allocation(
    container: Callable[..., Container], driver: DriverTree, given: list[tuple[str, int]], seen: str
) -> None:
    add_imex(driver)
    look = ["/bin/sh", "-c", "ls /dev/nvidia-caps-imex-channels 2>/dev/null; exec /bin/probe libcuda.so.1"]
    asked = ["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_IMEX_CHANNELS=0,1"]
    done = container(look, devices=[*ALLOCATED, *given], environment=asked).run()
    assert (done.returncode, done.stdout) == (0, seen), done.stderr
