"""What an attacker's reading of the hook found: a test for each, named after what was possible."""

from __future__ import annotations

import ctypes
import json
import os
import struct
import subprocess
import sys
import threading
import tracemalloc
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runtime_hook.base.deadline import Deadline
from runtime_hook.base.errors import DeadlineError, InjectionError, RequestError
from runtime_hook.container.injection import apply_plan
from runtime_hook.container.libc import clone_path
from runtime_hook.container.mounttable import is_mounted_outside
from runtime_hook.container.undo import UndoLog
from runtime_hook.host.hosttree import HostTree
from runtime_hook.inputs.bundle import parse_container
from runtime_hook.inputs.config import parse_config
from runtime_hook.inputs.origin import Origin
from runtime_hook.loader.cache import CacheEntry, LoaderCache, merge, name_key
from runtime_hook.loader.elf import identify
from runtime_hook.request.claim import Claim
from runtime_hook.request.entitlement import find_claim
from runtime_hook.request.grant import resolve_claim
from runtime_hook.request.policy import apply_rules
from tests.runtime_hook.attack.watch import mounts_below
from tests.runtime_hook.containers import run_hook
from tests.runtime_hook.nodes import inventory as inventory_of_a_node
from tests.runtime_hook.recording import RecordingSyscalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runtime_hook.container.syscalls import Syscalls
    from tests.runtime_hook.containers import Container

MEBIBYTE = 1 << 20
ALLOCATED = [("/dev/nvidiactl", 62), ("/dev/nvidia-uvm", 60), ("/dev/nvidia0", 16)]
CACHE_HEADER, CACHE_ENTRY = struct.Struct("<20sIIB3xI12x"), struct.Struct("<iIIIQ")
REPOSITORY = Path(__file__).resolve().parents[3]


def cache_with(string: bytes, entries: int = 1) -> bytes:
    """A loader cache whose entries all have this string as their name and their path."""
    start = CACHE_HEADER.size + entries * CACHE_ENTRY.size
    header = CACHE_HEADER.pack(b"glibc-ld.so.cache1.1", entries, len(string) + 1, 2, 0)
    return header + CACHE_ENTRY.pack(0x303, start, start, 0, 0) * entries + string + b"\0"


def test_a_name_without_end_in_a_cache_costs_no_gigabytes() -> None:
    """A name of 30 MiB took 2.3 GiB of memory and seven seconds to compare."""
    tracemalloc.start()
    merge(LoaderCache(cache_with(b"l" * (3 * MEBIBYTE))), [CacheEntry("libcuda.so.1", "/x", 0x303)])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30 * MEBIBYTE


@pytest.mark.slow
@pytest.mark.timeout(20)
def test_a_number_without_end_in_a_name_costs_no_minutes() -> None:
    """A number of a million digits was multiplied digit by digit; C wraps it at 32 bits."""
    assert name_key(b"9" * 2_000_000) == [(1, -1)]  # 10 ** 2,000,000 is a multiple of 2 ** 32
    assert name_key(b"4294967297") == [(1, 1)]


@pytest.mark.functional
@pytest.mark.parametrize("size", [pytest.param(3 * MEBIBYTE, id="accepted"), pytest.param(24 * MEBIBYTE, id="refused")])
def test_an_enormous_cache_costs_a_bounded_amount_of_memory(
    container: Callable[..., Container], root: Path, size: int
) -> None:
    """1.3 million entries took 515 MiB."""
    (root / "etc/ld.so.cache").write_bytes(cache_with(b"libz.so.1", size // CACHE_ENTRY.size))
    made = container(["/bin/busybox", "true"], devices=ALLOCATED)
    program = made.folder.with_suffix(".sh")
    program.write_text(f'#!/bin/sh\nulimit -v {256 << 10}\nexec {made.config()["hooks"]["prestart"][0]["path"]} "$@"\n')
    program.chmod(0o755)
    hook = {**made.config()["hooks"]["prestart"][0], "path": str(program)}
    hook["args"] = [str(program), *hook["args"][1:]]
    made.changes = {"hooks": {"prestart": [hook]}}
    done = made.run()
    assert "internal error" not in done.stderr
    assert done.returncode == 0 if size < 4 * MEBIBYTE else "larger than" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("offset", "number"),
    [pytest.param(32, 2**64 - 1, id="its headers"), pytest.param(32, 2**63 - 1, id="its headers, just so")],
)
def test_a_damaged_library_with_offsets_beyond_any_file_is_none(tmp_path: Path, offset: int, number: int) -> None:
    """The read answered with OverflowError or EINVAL, which came out as an internal error."""
    header = bytearray(64)
    header[:6], header[18:20], header[54:58] = b"\x7fELF\x02\x01", b"\x3e\0", struct.pack("<HH", 56, 4)
    header[offset : offset + 8] = struct.pack("<Q", number)
    path = tmp_path / "damaged.so"
    path.write_bytes(header)
    with path.open("rb") as file:
        assert identify(lambda length, offset: os.pread(file.fileno(), length, offset)) is None


@pytest.mark.functional
def test_no_folder_on_the_way_to_the_inventory_is_writable_by_all(
    container: Callable[..., Container], tmp_path: Path
) -> None:
    """The hook clears the umask, and makedirs minds it for parents: whoever was there could exchange the inventory."""
    path = tmp_path / "run/deep/er/inventory.json"
    done = container(["/bin/busybox", "true"], {"inventory": str(path)}, devices=ALLOCATED).run()
    assert done.returncode == 0, done.stderr
    assert [folder for folder in path.parents if folder.stat().st_mode & 0o022 and tmp_path in folder.parents] == []


def test_the_limit_striking_behind_a_failure_does_not_forget_the_undo() -> None:
    class Failing:
        is_mandatory = True

        def describe(self) -> str:
            return "fail"

        def stage(self, syscalls: Syscalls) -> None:
            """Need nothing."""

        def apply(self, syscalls: Syscalls) -> str:
            syscalls.put_file(syscalls.open_folder("/"), "half-made", b"")
            raise OSError(5, "told to fail")

    class Once(Deadline):
        struck = False

        def stop(self) -> None:
            super().stop()
            if not self.struck:
                self.struck = True
                self.expire()

    syscalls = RecordingSyscalls()
    before = syscalls.state()
    with pytest.raises((DeadlineError, InjectionError)):
        apply_plan([Failing()], syscalls, Once())
    assert syscalls.state() == before


def test_the_limit_striking_while_a_step_is_undone_does_not_forget_that_step() -> None:
    deadline = Deadline()

    class Slow(RecordingSyscalls):
        def remove(self, folder: int, name: str) -> None:
            deadline._on_alarm(14, None)
            super().remove(folder, name)

    syscalls = Slow()
    before = syscalls.state()
    undo_log = UndoLog(syscalls, deadline)
    undo_log.put_file(undo_log.open_folder("/"), "half-made", b"")
    with pytest.raises(DeadlineError):
        undo_log.undo_to(0)
    assert syscalls.state() == before


@pytest.mark.functional
@pytest.mark.parametrize("target", ["{host}", "../../host", "/proc/self/root{host}"])
def test_a_link_in_another_driver_root_shows_no_file_of_the_host(tmp_path: Path, target: str) -> None:
    """Its paths were resolved when the driver was searched for, and followed by the host's kernel afterwards."""
    root, host = tmp_path / "driver", tmp_path / "host"
    for folder in (root / "usr/lib", host):
        folder.mkdir(parents=True)
        (folder / "libcuda.so.1").write_text("the driver's" if folder != host else "the host's")
    path = HostTree(str(root)).host_path("/usr/lib/libcuda.so.1")
    assert content_of(clone_path(path, str(root))) == "the driver's"

    (root / "usr/lib").rename(root / "usr/lib64")
    (root / "usr/lib").symlink_to(target.format(host=host))
    with pytest.raises(OSError, match=r"libcuda\.so\.1"):
        clone_path(path, str(root))

    (root / "usr/lib").unlink()
    (root / "usr/lib").symlink_to("/usr/lib64")
    assert content_of(clone_path(path, str(root))) == "the driver's"


def content_of(tree: int) -> str:
    try:
        return Path(f"/proc/self/fd/{tree}").read_text()
    finally:
        os.close(tree)


@contextmanager
def renaming(folder: Path) -> Iterator[None]:
    """Rename something on the host all the time, as any busy host does."""
    stop, libc = threading.Event(), ctypes.CDLL(None)
    names = [os.fsencode(folder / name) for name in ("first", "second")]
    for name in names:
        Path(os.fsdecode(name)).mkdir()

    def rename() -> None:
        while not stop.is_set():
            for _ in range(1000):
                libc.renameat2(-100, names[0], -100, names[1], 2)

    thread = threading.Thread(target=rename)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def in_own_mounts(work: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python that has the hook's modules, in a mount namespace of its own."""
    script = f"import os, sys\nsys.path.insert(0, {str(REPOSITORY)!r})\n{work}"
    argv = ["unshare", "--mount", sys.executable, "-c", script, *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


# Opens the same folder with and without the hook's care, until the kernel has asked for patience often enough.
OPEN_OFTEN = """
import errno
from runtime_hook.container import kernel, libc
syscalls = kernel.KernelSyscalls(int(sys.argv[1]), sys.argv[2])
syscalls.enter()
how = libc._OPEN_HOW.pack(os.O_PATH | os.O_DIRECTORY, 0, kernel._INSIDE)
asked = 0
while asked < 100:
    try:
        os.close(libc._syscall(libc.NR_openat2, syscalls._root, b"/a/b/link", how, len(how)))
    except OSError as reason:
        assert reason.errno == errno.EAGAIN, reason
        asked += 1
    os.close(syscalls.open_folder("/a/b/link"))
    syscalls._folders.clear()
"""


@pytest.mark.functional
def test_a_busy_host_does_not_refuse_containers(tmp_path: Path) -> None:
    """A rename anywhere on the host makes openat2 answer EAGAIN where a link of the image goes upwards."""
    (tmp_path / "root/a/b").mkdir(parents=True)
    (tmp_path / "root/a/c").mkdir()
    (tmp_path / "root/a/b/link").symlink_to("/".join(["../b"] * 18) + "/../c")
    with other_namespace(tmp_path / "root") as pid, renaming(tmp_path):
        done = in_own_mounts(OPEN_OFTEN, str(pid), str(tmp_path / "root"))
    assert done.returncode == 0, done.stderr


@contextmanager
def other_namespace(root: Path, script: str = "") -> Iterator[int]:
    """A process in a mount namespace of its own, where ``root`` is mounted; ``script`` goes on from there."""
    setting = f'mount --bind "{root}" "{root}" && mount --make-private "{root}" && {script or "exec cat"}'
    argv = ["unshare", "--mount", "sh", "-c", setting]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.read(1)
        yield process.pid
        process.stdin.close()


@pytest.mark.functional
def test_a_process_that_has_left_the_hosts_root_is_refused(
    configure: Callable[..., list[str]], driver: object, root: Path, tmp_path: Path
) -> None:
    """With the pid used again, or at a later stage, paths are the image's: Python would have imported its modules."""
    assert driver
    proof = root / "proof"
    way = root / str(root)[1:]
    way.parent.mkdir(parents=True)
    way.symlink_to("/")  # so that the root's path leads to the root in there, too
    for name in ("encodings/ascii.py", "ascii.py"):
        place = root / "usr/lib/python3.11" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"open({str(proof)!r}, 'w')\n")
    (tmp_path / "config.json").write_text(
        json.dumps({"root": {"path": str(root)}, "process": {"env": ["NVIDIA_VISIBLE_DEVICES=all"]}})
    )
    pivot = f'cd "{root}" && mkdir -p old && pivot_root . old && /bin/busybox umount -l old && exec /bin/busybox cat'
    with other_namespace(root, pivot) as pid:
        state = {"id": "c1", "pid": pid, "bundle": str(tmp_path)}
        before = mounts_below(tmp_path)
        done = run_hook(["prestart", *configure(entitlement="env")], json.dumps(state).encode())
    assert (done.returncode, proof.exists()) == (1, False), done.stderr
    assert b"has left the host's root" in done.stderr
    assert mounts_below(tmp_path) == before


@pytest.mark.functional
@pytest.mark.parametrize("kind", ["a folder of the host", "memory of the host"])
def test_no_device_node_is_made_in_a_volume(container: Callable[..., Container], tmp_path: Path, kind: str) -> None:
    """A volume over /dev got the nodes of the GPU: on the host, for everyone, for ever."""
    volume = tmp_path / "volume"
    volume.mkdir()
    made = container(["/bin/busybox", "true"], {"entitlement": "env"}, environment=["NVIDIA_VISIBLE_DEVICES=all"])
    if kind == "memory of the host":
        subprocess.run(["mount", "-t", "tmpfs", "volume", str(volume)], check=True)
    try:
        mounts = [{"destination": "/dev", "type": "bind", "source": str(volume), "options": ["rbind", "rw"]}]
        proc = {"destination": "/proc", "type": "proc", "source": "proc"}
        made.changes = {"mounts": [proc, *mounts]}
        done = made.run()
        nodes = [path for path in volume.iterdir() if path.name.startswith("nvidia")]
    finally:
        if kind == "memory of the host":
            subprocess.run(["umount", str(volume)], check=True)
    assert (done.returncode != 0, nodes) == (True, [])
    assert "/dev is a folder of the host" in done.stderr


HOST = "1 0 8:1 / / rw - ext4 d rw\n2 1 0:40 / /mnt/volume rw - tmpfs t rw\n"
ROOT = "10 1 0:50 / /run/root rw - overlay o rw\n"


@pytest.mark.parametrize(
    ("mounts", "mount", "expected"),
    [
        pytest.param("11 10 0:60 / /run/root/dev rw - tmpfs t rw\n", "11", False, id="memory of the container's own"),
        pytest.param("11 10 0:40 / /run/root/dev rw - tmpfs t rw\n", "11", True, id="memory of the host"),
        pytest.param("11 10 8:1 /home /run/root/dev rw - ext4 d rw\n", "11", True, id="a folder of the host"),
        pytest.param("", "10", False, id="the root's own mount"),
        pytest.param("11 10 0:60 / /a rw - t t rw\n12 11 0:61 / /a/b rw - t t rw\n", "12", False, id="two deep"),
        pytest.param("11 12 0:60 / /a rw - t t rw\n12 11 0:60 / /a/b rw - t t rw\n", "12", True, id="a circle"),
    ],
)
def test_a_volume_is_told_from_the_containers_own(mounts: str, mount: str, expected: bool) -> None:  # noqa: FBT001 - a table's column
    assert is_mounted_outside(HOST + ROOT + mounts, mount, "10") is expected


def test_an_image_cannot_evade_a_rule_by_speaking_of_cdi() -> None:
    """The variable that our CDI file sets made the hook leave the container alone, with its devices in place."""
    config = parse_config({"rules": [{"decision": "deny"}]}, "hook.json")
    content = {
        "process": {"env": ["GRAPNEL_INJECTION=cdi"]},
        "linux": {"devices": [{"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}]},
    }
    container = parse_container(content, "/bundle")
    applied = apply_rules(config, container, Origin())
    claim = find_claim(container, applied)
    assert isinstance(claim, Claim)
    with pytest.raises(RequestError, match="denies GPUs"):
        resolve_claim(claim, container, applied, inventory_of_a_node())
