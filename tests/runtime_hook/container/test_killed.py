"""A hook that is killed at any moment: the next start of the same container ends as if nothing had been."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runtime_hook.container.writing import TemporaryNames
from tests.runtime_hook.containers import MULTIARCH, REPOSITORY, host_mounts, run_hook
from tests.runtime_hook.drivertree import uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.runtime_hook.drivertree import DriverTree

ROUNDS = 16
LEFT = ".grapnel-new"
# The hook, which kills itself at the n-th call that it makes of a name, or of any name, while it is at the container.
KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from runtime_hook.container import kernel
from runtime_hook.prestart import prestart

count, last, wanted = 0, int(sys.argv[2]), sys.argv[5]
def notice(frame, event, argument):
    global count
    if "/runtime_hook/container/" not in frame.f_code.co_filename:
        return
    if wanted and (event != "c_call" or argument.__name__ != wanted):
        return
    count += 1
    if count == last:
        os.kill(os.getpid(), signal.SIGKILL)
sys.setprofile(notice)
prestart(sys.argv[3], sys.argv[4])
sys.setprofile(None)
print(count)
"""


class Bundle:
    """A bundle whose container is a process in a mount namespace of its own, each time another one."""

    def __init__(self, folder: Path, root: Path, arguments: list[str]) -> None:
        self.folder = folder
        self.arguments = arguments
        folder.mkdir()
        config = {"root": {"path": str(root)}, "annotations": {"grapnel.dev/allocation": uuid(0)}}
        (folder / "config.json").write_text(json.dumps(config))

    def start(self, run: Callable[[bytes], subprocess.CompletedProcess[bytes]]) -> subprocess.CompletedProcess[bytes]:
        with subprocess.Popen(["unshare", "--mount", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"\n")
            process.stdin.flush()
            process.stdout.read(1)  # cat answers: it is in its own mount namespace
            state = {"id": "killed", "pid": process.pid, "bundle": str(self.folder)}
            try:
                return run(json.dumps(state).encode())
            finally:
                process.stdin.close()

    def start_whole(self) -> subprocess.CompletedProcess[bytes]:
        return self.start(lambda state: run_hook(["prestart", *self.arguments], state))

    def start_killed(self, last: int, call: str = "") -> subprocess.CompletedProcess[bytes]:
        options = [self.arguments[1], self.arguments[3], call]
        argv = ["/usr/bin/python3", "-ISc", KILLED, str(REPOSITORY), str(last), *options]
        return self.start(lambda state: subprocess.run(argv, input=state, capture_output=True, check=False))


def content(root: Path) -> dict[str, bytes]:
    """Return everything below a root: text of files, targets of links."""
    found = {}
    for path in sorted(root.rglob("*")):
        data = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(root))] = data
    return found


@pytest.fixture
def image(root: Path) -> Path:
    """Make an image that has a link to replace."""
    (root / MULTIARCH / "libcuda.so.1").symlink_to("libcuda.so.440")
    return root


@pytest.mark.functional
def test_after_hooks_killed_anywhere_a_start_leaves_what_it_always_leaves(
    configure: Callable[..., list[str]], driver: DriverTree, image: Path, tmp_path: Path
) -> None:
    expected = Path(shutil.copytree(image, tmp_path / "expected", symlinks=True))
    mounts = host_mounts()
    arguments = configure()
    steps = int(Bundle(tmp_path / "whole", expected, arguments).start_killed(-1).stdout)
    assert driver.gpus
    for number in range(ROUNDS):
        root = Path(shutil.copytree(image, tmp_path / f"root{number}", symlinks=True))
        bundle = Bundle(tmp_path / f"bundle{number}", root, arguments)
        assert bundle.start_killed(1 + steps * number // ROUNDS).returncode == -signal.SIGKILL
        assert bundle.start_whole().returncode == 0
        assert content(root) == content(expected)
    assert host_mounts() == mounts


@pytest.mark.functional
def test_a_hook_killed_again_and_again_while_it_replaces_a_name_leaves_nothing_that_grows(
    configure: Callable[..., list[str]], driver: DriverTree, image: Path, tmp_path: Path
) -> None:
    bundle = Bundle(tmp_path / "bundle", image, configure())
    assert driver.gpus
    for _ in range(3):
        assert bundle.start_killed(1, "rename").returncode == -signal.SIGKILL
        assert [path.name for path in image.rglob(".grapnel*")] == [LEFT]
    assert bundle.start_whole().returncode == 0
    assert list(image.rglob(".grapnel*")) == []


@pytest.fixture
def folder(tmp_path: Path) -> int:
    """Open a folder, as ``Syscalls.open_folder`` does."""
    return os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)


def test_what_a_killed_hook_left_under_the_temporary_name_is_removed(tmp_path: Path, folder: int) -> None:
    (tmp_path / LEFT).write_text("left")
    assert TemporaryNames().name(folder) == LEFT
    assert list(tmp_path.iterdir()) == []


def test_two_hooks_in_one_folder_never_share_a_name(folder: int) -> None:
    first, second = TemporaryNames(), TemporaryNames()
    assert first.name(folder) == first.name(folder)
    assert len({first.name(folder), second.name(folder), second.name(folder)}) == 3


@pytest.mark.parametrize("kind", ["a folder", "a held lock"])
def test_an_image_that_holds_the_temporary_name_holds_up_nobody(tmp_path: Path, folder: int, kind: str) -> None:
    if kind == "a folder":
        (tmp_path / LEFT / "full").mkdir(parents=True)
    else:
        fcntl.flock(os.open(tmp_path, os.O_RDONLY), fcntl.LOCK_EX)
    assert not (tmp_path / TemporaryNames().name(folder)).exists()
