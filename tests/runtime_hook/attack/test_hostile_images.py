"""Images that want to reach the host through the hook: nothing of the host changes, nothing is left half-made."""

from __future__ import annotations

import ctypes
import os
import shutil
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.runtime_hook.attack.hostile import AT_FDCWD, KINDS, LINKS, RENAME_EXCHANGE, occupy
from tests.runtime_hook.attack.watch import mounts_below
from tests.runtime_hook.containers import MULTIARCH, START, snapshot
from tests.runtime_hook.drivertree import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.runtime_hook.containers import Container
    from tests.runtime_hook.drivertree import DriverTree

pytestmark = pytest.mark.functional

ALLOCATED = [("/dev/nvidiactl", 62), ("/dev/nvidia-uvm", 60), ("/dev/nvidia0", 16)]
TARGETS = {"the library folder": MULTIARCH, "the cache": "etc/ld.so.cache"}
HERE = [kind for kind in (*LINKS, *KINDS) if kind not in {"a mount", "an immutable file"}]  # those need an arena
ROUNDS = 12
CRUN_SAYS = "(exit code: 1)"  # it does not pass on what a hook says


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """Make a folder of the host that an image points at."""
    folder = tmp_path / "victim"
    folder.mkdir()
    for name in ("secret", "ld.so.cache", "nvidia-smi", f"libcuda.so.{VERSION}", "libcuda.so.1"):
        (folder / name).write_text("the host's own")
    return folder


@contextmanager
def host_unchanged(*folders: Path) -> Iterator[None]:
    before, mounts = [snapshot(folder) for folder in folders], mounts_below(folders[0].parent)
    yield
    assert [snapshot(folder) for folder in folders] == before
    assert mounts_below(folders[0].parent) == mounts


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", HERE)
def test_no_target_leads_to_the_host(
    container: Callable[..., Container], root: Path, victim: Path, target: str, kind: str
) -> None:
    occupy(root / TARGETS[target], kind, victim if "folder" in target else victim / "ld.so.cache")
    assert_harmless(container(["/bin/busybox", "true"], devices=ALLOCATED), victim, "runc")


def test_no_target_leads_to_the_host_with_crun(container: Callable[..., Container], root: Path, victim: Path) -> None:
    occupy(root / MULTIARCH, "an absolute link", victim)
    assert_harmless(container(["/bin/busybox", "true"], devices=ALLOCATED), victim, "crun")


def assert_harmless(made: Container, victim: Path, runtime: str) -> None:
    with host_unchanged(Path(made.hook_arguments[-1]), victim):
        done = made.run(runtime)
    if done.returncode:
        assert_refused(done.stderr, runtime)


def assert_refused(said: str, runtime: str) -> None:
    assert (CRUN_SAYS if runtime.startswith("crun") else "grapnel-hook: cannot ") in said, said
    assert "Traceback" not in said


@pytest.mark.parametrize("runtime", START)
@pytest.mark.parametrize("kind", ["an absolute link", "a fifo"])
def test_a_refused_container_has_nothing_left_in_its_root(
    container: Callable[..., Container], root: Path, victim: Path, kind: str, runtime: str
) -> None:
    occupy(root / "etc/ld.so.cache", kind, victim)
    before = set(snapshot(root))
    done = container(["/bin/busybox", "true"], devices=ALLOCATED).run(runtime)
    assert done.returncode != 0
    assert_refused(done.stderr, runtime)
    left = {path for path in set(snapshot(root)) - before if not path.startswith(f"{root}/dev")}
    assert left == set()


def test_an_optional_target_in_the_way_is_skipped(
    container: Callable[..., Container], root: Path, victim: Path
) -> None:
    occupy(root / "usr/bin/nvidia-smi", "an absolute link", victim / "nvidia-smi")
    done = container(["/bin/probe", "libcuda.so.1"], devices=ALLOCATED).run()
    assert (done.returncode, done.stdout) == (0, "libcuda.so.1 42\n"), done.stderr


def test_an_old_driver_in_the_image_is_covered_not_destroyed(container: Callable[..., Container], root: Path) -> None:
    old = root / MULTIARCH / "libcuda.so.1"
    old.write_text("an old driver")
    done = container(["/bin/probe", "libcuda.so.1"], devices=ALLOCATED).run()
    assert (done.returncode, done.stdout) == (0, "libcuda.so.1 42\n"), done.stderr
    assert old.read_text() == "an old driver"


def test_a_volume_over_the_library_folder_is_not_written_to(
    container: Callable[..., Container], root: Path, victim: Path
) -> None:
    (root / "volume").mkdir()
    shutil.rmtree(root / "usr/bin")
    (root / "usr/bin").symlink_to("/volume")
    made = container(["/bin/busybox", "true"], devices=ALLOCATED)
    volume = {"destination": "/volume", "type": "bind", "source": str(victim), "options": ["rbind", "rw"]}
    made.changes = {"mounts": [*made.config()["mounts"], volume]}
    with host_unchanged(victim):
        assert made.run().returncode == 0


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(b"", id="an empty one"),
        pytest.param(b"glibc-ld.so.cache1.1" + b"\xff" * 4000, id="a torn one"),
        pytest.param(os.urandom(100_000), id="noise"),
    ],
)
def test_a_damaged_cache_is_written_afresh(container: Callable[..., Container], root: Path, damage: bytes) -> None:
    (root / "etc/ld.so.cache").write_bytes(damage)
    done = container(["/bin/probe", "libcuda.so.1"], devices=ALLOCATED).run()
    assert (done.returncode, done.stdout) == (0, "libcuda.so.1 42\n"), done.stderr


def test_a_shared_root_does_not_leak_mounts(container: Callable[..., Container], driver: DriverTree) -> None:
    made = container(["/bin/busybox", "true"], devices=ALLOCATED)
    linux = {**made.config()["linux"], "rootfsPropagation": "shared"}
    made.changes = {"linux": linux}
    with host_unchanged(driver.root):
        done = made.run()
    assert done.returncode == 0 or "is a shared mount" in done.stderr, done.stderr


def test_a_read_only_root_of_the_configuration_is_no_hindrance(container: Callable[..., Container], root: Path) -> None:
    made = container(["/bin/probe", "libcuda.so.1"], devices=ALLOCATED)
    made.changes = {"root": {"path": str(root), "readonly": True}}
    done = made.run()
    assert (done.returncode, done.stdout) == (0, "libcuda.so.1 42\n"), done.stderr


def test_swapping_a_target_while_the_hook_runs_never_reaches_the_host(
    container: Callable[..., Container], root: Path, victim: Path
) -> None:
    """As in the arena, with a real runtime around: another container on a shared root could do it."""
    folder, aside = os.fsencode(root / MULTIARCH), os.fsencode(root / "aside")
    (root / "aside").symlink_to(victim)
    libc = ctypes.CDLL(None)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            libc.renameat2(AT_FDCWD, folder, AT_FDCWD, aside, RENAME_EXCHANGE)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        with host_unchanged(victim):
            for _ in range(ROUNDS):
                container(["/bin/busybox", "true"], devices=ALLOCATED).run()
    finally:
        stop.set()
        thread.join()
