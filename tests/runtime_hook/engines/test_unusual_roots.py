"""Roots that are not like others: without folders, read-only, of every propagation, of a file system that stalls."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.runtime_hook.containers import BUSYBOX, host_mounts, run_hook, snapshot
from tests.runtime_hook.drivertree import uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.runtime_hook.containers import Container
    from tests.runtime_hook.drivertree import DriverTree

pytestmark = pytest.mark.functional

ALLOCATED = [("/dev/nvidiactl", 62), ("/dev/nvidia-uvm", 60), ("/dev/nvidia0", 16)]
PROBE = ["/bin/probe", "libcuda.so.1"]
FOUND = "libcuda.so.1 42\n"


@pytest.mark.parametrize("runtime", ["runc", "crun"])
@pytest.mark.parametrize("missing", [("etc",), ("usr/bin",), ("etc", "usr"), ("etc", "usr", "tmp", "lib64", "lib")])
def test_folders_that_an_image_lacks_are_made(
    container: Callable[..., Container], root: Path, runtime: str, missing: tuple[str, ...]
) -> None:
    for name in missing:
        shutil.rmtree(root / name, ignore_errors=True)
    shutil.copy(BUSYBOX, root / "bin/busybox")
    script = ["/bin/sh", "-c", "ls /usr/lib*/libcuda.so.1 /usr/lib/*/libcuda.so.1 /etc/ld.so.cache 2>/dev/null"]
    done = container(script, devices=ALLOCATED).run(runtime)
    assert "libcuda.so.1\n" in done.stdout, done.stderr
    assert "/etc/ld.so.cache\n" in done.stdout


@pytest.mark.parametrize("runtime", ["runc", "crun"])
@pytest.mark.parametrize("propagation", ["private", "rprivate", "slave", "rslave", "shared", "rshared"])
def test_no_propagation_of_the_root_brings_mounts_to_the_host(
    container: Callable[..., Container], root: Path, runtime: str, propagation: str
) -> None:
    made = container(PROBE, devices=ALLOCATED)
    made.changes = {"linux": {**made.config()["linux"], "rootfsPropagation": propagation}}
    mounts = host_mounts()
    done = made.run(runtime)
    assert (done.returncode, done.stdout) == (0, FOUND), done.stderr
    assert host_mounts() == mounts
    assert root.exists()


@pytest.fixture
def mounted_root(root: Path) -> Iterator[Path]:
    """Mount the root on itself, as an engine's storage does, shared with everybody."""
    subprocess.run(["mount", "--bind", str(root), str(root)], check=True)
    subprocess.run(["mount", "--make-shared", str(root)], check=True)
    yield root
    subprocess.run(["umount", "--lazy", str(root)], check=True)


@pytest.mark.parametrize("runtime", ["runc", "crun"])
@pytest.mark.parametrize("propagation", ["rprivate", "rslave", "rshared"])
def test_a_root_that_is_a_shared_mount_keeps_ours_to_itself(
    container: Callable[..., Container], mounted_root: Path, runtime: str, propagation: str
) -> None:
    made = container(PROBE, devices=ALLOCATED)
    made.changes = {"linux": {**made.config()["linux"], "rootfsPropagation": propagation}}
    mounts = host_mounts()
    done = made.run(runtime)
    assert (done.returncode, done.stdout) == (0, FOUND), done.stderr
    assert host_mounts() == mounts
    assert mounted_root.exists()


def test_a_root_that_is_still_shared_when_the_hook_runs_is_refused(
    configure: Callable[..., list[str]], driver: DriverTree, mounted_root: Path, tmp_path: Path
) -> None:
    config = {"root": {"path": str(mounted_root)}, "annotations": {"grapnel.dev/allocation": uuid(0)}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    argv = ["unshare", "--mount", "--propagation", "unchanged", "cat"]
    mounts, before = host_mounts(), snapshot(driver.root)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.read(1)  # cat answers: it is in its own mount namespace
        state = {"id": "shared", "pid": process.pid, "bundle": str(tmp_path)}
        done = run_hook(["prestart", *configure()], json.dumps(state).encode())
        process.stdin.close()
    assert done.returncode == 1
    assert b"is a shared mount, and mounts in it would appear on the host" in done.stderr
    assert (host_mounts(), snapshot(driver.root)) == (mounts, before)


@pytest.fixture
def lower_only(root: Path, tmp_path: Path) -> Iterator[Path]:
    """Mount the root without a writable layer: a file system that nobody can make writable."""
    (tmp_path / "lower").mkdir()
    (tmp_path / "merged").mkdir()
    options = f"lowerdir={root}:{tmp_path / 'lower'}"
    subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", str(tmp_path / "merged")], check=True)
    yield tmp_path / "merged"
    subprocess.run(["umount", "--lazy", str(tmp_path / "merged")], check=True)


@pytest.mark.parametrize("runtime", ["runc", "crun"])
def test_a_root_without_a_writable_layer_is_refused_with_a_reason(
    container: Callable[..., Container], lower_only: Path, runtime: str, tmp_path: Path
) -> None:
    made = container(PROBE, {"log": str(tmp_path / "log")}, devices=ALLOCATED)
    made.changes = {"root": {"path": str(lower_only), "readonly": True}}
    mounts = host_mounts()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:  # crun keeps a hook's words to itself
        log.bind(str(tmp_path / "log"))
        done = made.run(runtime)
        line = log.recv(1 << 16, socket.MSG_DONTWAIT).decode()
    assert (done.returncode != 0, done.stdout) == (True, "")
    assert host_mounts() == mounts
    assert "read-only file system" in line
    assert "it needs a writable layer" in line


@pytest.mark.parametrize("runtime", ["runc", "crun"])
def test_a_root_that_becomes_read_only_is_no_hindrance(
    container: Callable[..., Container], root: Path, runtime: str
) -> None:
    made = container(PROBE, devices=ALLOCATED)
    made.changes = {"root": {"path": str(root), "readonly": True}}
    done = made.run(runtime)
    assert (done.returncode, done.stdout) == (0, FOUND), done.stderr


# An engine in a container: a root, processes and mounts of its own, on the host's files.
INSIDE = """
set -e
mount --rbind / "$1"
cd "$1"
pivot_root . ".$2"
umount --lazy "$2"
mount -t proc proc /proc
cd /
shift 2
exec "$@"
"""


def test_an_engine_in_a_container_gives_what_it_sees(container: Callable[..., Container], tmp_path: Path) -> None:
    made = container(PROBE, devices=ALLOCATED)
    for name in ("inside", "old"):
        (tmp_path / name).mkdir()
    engine = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", INSIDE, "sh"]
    places = [str(tmp_path / "inside"), str(tmp_path / "old")]
    runc = ["runc", "--root", str(tmp_path / "state"), "run", "--bundle", str(made.write()), f"nested-{tmp_path.name}"]
    mounts = host_mounts()
    argv = [*engine, *places, *runc]
    done = subprocess.run(argv, input="", capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, FOUND), done.stderr
    assert host_mounts() == mounts
