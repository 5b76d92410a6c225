"""CUDA forward compatibility in real containers: which libcuda a program gets, also after an ldconfig of its own."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.runtime_hook.containers import run_hook, snapshot
from tests.runtime_hook.drivertree import VERSION, compile_library

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.runtime_hook.containers import Container
    from tests.runtime_hook.drivertree import DriverTree

pytestmark = pytest.mark.functional
ALLOCATED = [("/dev/nvidiactl", 62), ("/dev/nvidia-uvm", 60), ("/dev/nvidia0", 16)]
PROBE = ["/bin/probe", "libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"]
COMPAT_FOUND = "libcuda.so.1 43\nlibcuda.so 43\nlibnvidia-ml.so.1 42\n"
DRIVER_FOUND = "libcuda.so.1 42\nlibcuda.so 42\nlibnvidia-ml.so.1 42\n"
NOTE = {"format": 1, "CUDA version": "12.9", "driver": [535, 550, 575], "device": [1]}
SOURCE = r"""
int driver_answer(void) { return 43; }
__asm__(".pushsection .note.cuda.fwd_compatibility,\"a\",@note\n.long 19,2f-1f,1\n.asciz \"NVIDIA Corporation\"\n"
        ".balign 4\n1: .ascii \"%s\"\n2: .balign 4\n.popsection");
"""
CONF = "etc/ld.so.conf.d/00-grapnel-compat.conf"


def give_compat(root: Path, version: str = "575.57.08") -> Path:
    """Lay an image out as CUDA's packages do: the folder is reached through links."""
    folder = root / "usr/local/cuda-12.9/compat"
    folder.mkdir(parents=True)
    (root / "usr/local/cuda").symlink_to("/etc/alternatives/cuda")
    (root / "etc/alternatives").mkdir()
    (root / "etc/alternatives/cuda").symlink_to("/usr/local/cuda-12.9")
    source = SOURCE % json.dumps(NOTE).replace('"', r"\\\"")
    compile_library(folder / f"libcuda.so.{version}", "libcuda.so.1", source)
    (folder / "libcuda.so.1").symlink_to(f"libcuda.so.{version}")
    (folder / "libcuda.so").symlink_to("libcuda.so.1")
    (folder / "libcuda.so.1.1").symlink_to("libcuda.so.1")
    (root / "etc/ld.so.conf.d").mkdir()
    (root / "etc/ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n")
    multiarch = f"/usr/lib/{os.uname().machine}-linux-gnu"
    (root / "etc/ld.so.conf.d/zz.conf").write_text(f"{multiarch}\n")
    return folder


@pytest.mark.parametrize("runtime", ["runc", "crun"])
def test_an_images_newer_libcuda_is_used_where_its_note_lists_the_driver(
    container: Callable[..., Container], driver: DriverTree, root: Path, runtime: str
) -> None:
    give_compat(root)
    before = snapshot(driver.root)
    done = container(PROBE, devices=ALLOCATED).run(runtime)
    assert (done.returncode, done.stdout) == (0, COMPAT_FOUND), done.stderr
    assert (root / CONF).read_text() == "/usr/local/cuda/compat\n"
    assert snapshot(driver.root) == before


def test_an_ldconfig_in_the_container_comes_to_the_same_order(container: Callable[..., Container], root: Path) -> None:
    give_compat(root)
    script = container(["/bin/sh", "-c", ":"], devices=ALLOCATED)
    script.run()
    subprocess.run(["/sbin/ldconfig", "-r", str(root)], check=True, capture_output=True)
    listed = subprocess.run(
        ["/sbin/ldconfig", "-p", "-C", str(root / "etc/ld.so.cache")], check=True, capture_output=True, text=True
    ).stdout
    first = next(line for line in listed.splitlines() if line.startswith("\tlibcuda.so.1 "))
    assert first.endswith("=> /usr/local/cuda/compat/libcuda.so.1")
    assert container(PROBE, devices=ALLOCATED).run().stdout == COMPAT_FOUND


@pytest.mark.parametrize(
    ("version", "settings"),
    [
        pytest.param("575.57.08", {"cudaCompat": "disabled"}, id="disabled"),
        pytest.param("550.1", {}, id="older than the driver"),
        pytest.param(VERSION, {}, id="the driver's own version"),
    ],
)
def test_else_the_hosts_driver_comes_first(
    container: Callable[..., Container], root: Path, version: str, settings: dict[str, str]
) -> None:
    give_compat(root, version)
    done = container(PROBE, settings, devices=ALLOCATED).run()
    assert (done.returncode, done.stdout) == (0, DRIVER_FOUND), done.stderr
    assert not (root / CONF).exists()


def test_a_root_goes_back_to_the_driver_when_that_has_become_newer(
    container: Callable[..., Container], root: Path
) -> None:
    folder = give_compat(root)
    assert container(PROBE, devices=ALLOCATED).run().stdout == COMPAT_FOUND
    (folder / "libcuda.so.575.57.08").rename(folder / "libcuda.so.550.1")
    (folder / "libcuda.so.1").unlink()
    (folder / "libcuda.so.1").symlink_to("libcuda.so.550.1")
    assert container(PROBE, devices=ALLOCATED).run().stdout == DRIVER_FOUND
    assert (root / CONF).read_text() == ""


def test_restarts_leave_nothing_that_grows(container: Callable[..., Container], root: Path) -> None:
    give_compat(root)
    container(PROBE, devices=ALLOCATED).run()
    before = snapshot(root / "etc")
    for _ in range(3):
        assert container(PROBE, devices=ALLOCATED).run().stdout == COMPAT_FOUND
    assert snapshot(root / "etc") == before


def fifo(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda path: path.symlink_to("/"), id="the root"),
        pytest.param(lambda path: path.symlink_to("/proc/self/root"), id="a magic link"),
        pytest.param(lambda path: path.symlink_to("../../../../../../../../usr/lib"), id="a link out"),
        pytest.param(lambda path: path.symlink_to("compat"), id="a circle"),
        pytest.param(fifo, id="a FIFO"),
        pytest.param(lambda path: path.write_text("text"), id="a file"),
    ],
)
def test_whatever_else_the_folder_is_the_container_starts_with_the_driver(
    container: Callable[..., Container], root: Path, spoil: Callable[[Path], None]
) -> None:
    (root / "usr/local/cuda").mkdir(parents=True)
    spoil(root / "usr/local/cuda/compat")
    done = container(PROBE, devices=ALLOCATED).run()
    assert (done.returncode, done.stdout) == (0, DRIVER_FOUND), done.stderr


@pytest.mark.parametrize("kind", ["fifo", "device", "link"])
def test_a_libcuda_that_is_no_file_is_never_opened(container: Callable[..., Container], root: Path, kind: str) -> None:
    folder = root / "usr/local/cuda/compat"
    folder.mkdir(parents=True)
    path = folder / "libcuda.so.575.1"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        os.mknod(path, 0o20666, os.makedev(1, 5))
    else:
        path.symlink_to("/etc/shadow")
    done = container(PROBE, devices=ALLOCATED).run()
    assert (done.returncode, done.stdout) == (0, DRIVER_FOUND), done.stderr


def test_explain_says_which_libcuda_and_why(container: Callable[..., Container], root: Path) -> None:
    give_compat(root)
    made = container(PROBE, devices=ALLOCATED)
    made.folder.mkdir()
    (made.folder / "config.json").write_text(json.dumps(made.config()))
    told = json.loads(run_hook(["explain", *made.hook_arguments, str(made.folder)]).stdout)
    reason = f"compat 575.57.08 on driver {VERSION}: its note lists branch 550, versions compared"
    assert f"take libraries of /usr/local/cuda/compat before the driver's ({reason})" in told["operations"]
