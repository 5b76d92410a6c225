"""The hook under real runtimes: what a container sees, and what it may open."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from runtime_hook.inputs.bundle import parse_state
from tests.runtime_hook.containers import HOOK_ENVIRONMENT, MULTIARCH, host_mounts, snapshot
from tests.runtime_hook.drivertree import VERSION, uuid

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.runtime_hook.containers import Container
    from tests.runtime_hook.drivertree import DriverTree

pytestmark = [pytest.mark.functional, pytest.mark.parametrize("runtime", ["runc", "crun"])]

ALLOCATED = [("/dev/nvidiactl", 62), ("/dev/nvidia-uvm", 60), ("/dev/nvidia0", 16)]
PROBE = ["/bin/probe", "libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1"]
FOUND = "libcuda.so.1 42\nlibcuda.so 42\nlibnvidia-ml.so.1 42\nlibnvidia-ptxjitcompiler.so.1 42\n"


def test_an_allocated_gpu_brings_libraries_that_the_loader_finds(
    container: Callable[..., Container], driver: DriverTree, runtime: str
) -> None:
    before, mounts = snapshot(driver.root), host_mounts()
    done = container(PROBE, devices=ALLOCATED).run(runtime)
    assert (done.returncode, done.stdout) == (0, FOUND), done.stderr
    assert snapshot(driver.root) == before
    assert host_mounts() == mounts


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        pytest.param({}, {"environment": ["NVIDIA_VISIBLE_DEVICES=all"]}, id="an image that says all"),
        pytest.param({}, {}, id="an image that says nothing"),
        pytest.param({"entitlement": "env"}, {"devices": ALLOCATED}, id="devices where the environment decides"),
        pytest.param(
            {}, {"devices": ALLOCATED, "capabilities": ["CAP_SYS_ADMIN"]}, id="a privileged container's devices"
        ),
        pytest.param({}, {"devices": [("/dev/fuse", 40)]}, id="some other device"),
    ],
)
def test_a_container_that_was_given_no_gpu_gets_nothing(
    container: Callable[..., Container], root: Path, runtime: str, settings: dict[str, str], options: dict[str, object]
) -> None:
    before = snapshot(root)
    done = container(["/bin/probe", "libcuda.so.1"], settings, **options).run(runtime)
    assert (done.returncode, done.stdout) == (0, "libcuda.so.1 -1\n"), done.stderr
    changed = {path for path, found in snapshot(root).items() if before.get(path) != found}
    assert not {path for path in changed if "/dev" not in path and path != str(root)}


def test_the_allocation_annotation_entitles_a_privileged_container(
    container: Callable[..., Container], runtime: str
) -> None:
    annotations = {"grapnel.dev/allocation": uuid(1)}
    done = container(PROBE, annotations=annotations, capabilities=["CAP_SYS_ADMIN"]).run(runtime)
    assert (done.returncode, done.stdout) == (0, FOUND), done.stderr


def test_env_mode_makes_nodes_that_open_and_no_others(container: Callable[..., Container], runtime: str) -> None:
    script = (
        "for n in 0 1; do (: < /dev/nvidia$n) 2>/dev/null && echo $n open || echo $n shut; done;"
        "mknod /dev/other c 4 17; (: < /dev/other) 2>&1 | grep -o 'Operation not permitted'; ls /dev/nvidia*"
    )
    environment = ["NVIDIA_VISIBLE_DEVICES=0"]
    done = container(["/bin/sh", "-c", script], {"entitlement": "env"}, environment=environment).run(runtime)
    nodes = "/dev/nvidia-uvm\n/dev/nvidia-uvm-tools\n/dev/nvidia0\n/dev/nvidiactl\n"
    assert done.stdout == f"0 open\n1 shut\nOperation not permitted\n{nodes}", done.stderr


def test_env_mode_with_none_gives_libraries_without_devices(container: Callable[..., Container], runtime: str) -> None:
    script = "/bin/probe libcuda.so.1; ls /dev"
    environment = ["NVIDIA_VISIBLE_DEVICES=none"]
    result = container(["/bin/sh", "-c", script], {"entitlement": "env"}, environment=environment).run(runtime)
    assert result.stdout.startswith("libcuda.so.1 42\n"), result.stderr
    assert "nvidia" not in result.stdout.partition("\n")[2]


def test_files_of_the_host_are_read_only_nosuid_nodev(container: Callable[..., Container], runtime: str) -> None:
    name = f"/{MULTIARCH}/libcuda.so.{VERSION}"
    done = container(["/bin/sh", "-c", f"cat /proc/self/mountinfo; touch {name}"], devices=ALLOCATED).run(runtime)
    line = next(line for line in done.stdout.splitlines() if name in line)
    assert {"ro", "nosuid", "nodev"} <= set(line.split()[5].split(","))
    assert "Read-only" in done.stderr


def test_ldconfig_agrees_with_the_written_cache(container: Callable[..., Container], root: Path, runtime: str) -> None:
    assert container(["/bin/sh", "-c", ":"], devices=ALLOCATED).run(runtime).returncode == 0
    argv = ["/sbin/ldconfig", "-p", "-C", str(root / "etc/ld.so.cache")]
    listed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    for name in ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", f"libnvidia-gpucomp.so.{VERSION}"):
        assert f"\t{name} (libc6" in listed


def test_starting_the_same_root_again_changes_nothing_more(
    container: Callable[..., Container], root: Path, runtime: str
) -> None:
    first = container(PROBE, devices=ALLOCATED).run(runtime)
    cache = (root / "etc/ld.so.cache").read_bytes()
    names = sorted(path.name for path in (root / MULTIARCH).iterdir())
    second = container(PROBE, devices=ALLOCATED).run(runtime)
    assert (first.stdout, second.stdout) == (FOUND, FOUND)
    assert (root / "etc/ld.so.cache").read_bytes() == cache
    assert sorted(path.name for path in (root / MULTIARCH).iterdir()) == names


@pytest.mark.parametrize("stage", ["prestart", "createRuntime"])
def test_the_hook_understands_the_state_that_the_runtime_hands_over(
    container: Callable[..., Container], tmp_path: Path, runtime: str, stage: str
) -> None:
    """Of what the two write, only crun's ``root`` is not in the specification."""
    kept = tmp_path / "state.json"
    entry = {"path": "/bin/sh", "args": ["sh", "-c", f"cat > {kept}"], "env": HOOK_ENVIRONMENT}
    made = container([":"], annotations={"a": "1"}, changes={"hooks": {stage: [entry]}})

    made.run(runtime)

    state = parse_state(kept.read_bytes())
    told = json.loads(kept.read_bytes())
    assert state.pid > 0
    assert state.id.endswith(made.folder.name)
    assert state.bundle == str(made.folder)
    assert set(told) - {"root"} == {"ociVersion", "id", "status", "pid", "bundle", "annotations"}
    assert ("root" in told) is (runtime == "crun")
    assert told["annotations"] == {"a": "1"}


def test_the_hook_is_as_good_at_create_runtime(container: Callable[..., Container], runtime: str) -> None:
    made = container(PROBE, devices=ALLOCATED)
    made.changes = {"hooks": {"createRuntime": made.config()["hooks"]["prestart"]}}
    done = made.run(runtime)
    assert (done.returncode, done.stdout) == (0, FOUND), done.stderr
