from __future__ import annotations

import asyncio
import shutil
import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plugin.kubelet.registration.inotify import FolderWatch
from plugin.system.sockets import SocketAddress, socket_identity

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose path leaves room: that of a socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="grapnel-") as folder:
        yield Path(folder)


def listen(path: Path) -> None:
    """Leave a socket that nobody serves."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def descriptors_on(start: str) -> int:
    """Count this process's descriptors by what they lead to; those of others come and go with the collector."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that lists the folder
            found.append(str(link.readlink()))
    return sum(path.startswith(start) for path in found)


def test_a_socket_that_was_replaced_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.sock"
    assert socket_identity(path) is None
    listen(path)
    first = socket_identity(path)
    assert first == socket_identity(path) is not None
    path.unlink()
    listen(path)
    assert socket_identity(path) not in {None, first}


def test_a_file_is_no_socket(tmp_path: Path) -> None:
    (tmp_path / "kubelet.sock").write_text("")
    assert socket_identity(tmp_path / "kubelet.sock") is None


@pytest.mark.parametrize("extra", [0, 1], ids=["the longest path", "one byte more"])
def test_an_address_always_fits(tmp_path: Path, extra: int) -> None:
    folder = tmp_path / ("x" * (107 + extra - len(str(tmp_path)) - len("//s.sock")))
    folder.mkdir()
    address = SocketAddress(folder, "s.sock")
    listen(Path(address.target.removeprefix("unix:")))
    assert socket_identity(folder / "s.sock")
    assert address.target.startswith("unix:/proc/self/fd/") is bool(extra)
    address.close()
    address.close()


def test_descriptors_are_given_back(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    for _ in range(20):
        SocketAddress(folder, "s.sock").close()
    assert descriptors_on(str(tmp_path)) == 0


def test_a_folder_is_heard_of_though_those_above_it_come_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        heard = asyncio.Event()
        folder = tmp_path / "var/lib/kubelet/device-plugins"
        watch = FolderWatch(folder, heard.set)
        for above in (*reversed(folder.relative_to(tmp_path).parents[:-1]), folder.relative_to(tmp_path)):
            assert not watch.renew()
            heard.clear()
            (tmp_path / above).mkdir()
            await asyncio.wait_for(heard.wait(), 10)
        heard.clear()
        assert watch.renew()
        (folder.parent / "pods").mkdir()
        await asyncio.sleep(0.05)
        assert not heard.is_set()
        watch.close()

    asyncio.run(scenario())


def test_changes_in_a_folder_and_in_its_successor_are_heard(tmp_path: Path) -> None:
    async def scenario() -> None:
        heard = asyncio.Event()
        folder = tmp_path / "device-plugins"
        watch = FolderWatch(folder, heard.set)
        assert not watch.renew()
        for _ in range(2):
            heard.clear()
            folder.mkdir()
            await asyncio.wait_for(heard.wait(), 10)
            assert watch.renew()
            heard.clear()
            (folder / "kubelet.sock").write_text("")
            await asyncio.wait_for(heard.wait(), 10)
            heard.clear()
            (folder / "kubelet.sock").unlink()
            await asyncio.wait_for(heard.wait(), 10)
            heard.clear()
            folder.rmdir()
            await asyncio.wait_for(heard.wait(), 10)
            assert not watch.renew()
        watch.close()
        watch.close()

    asyncio.run(scenario())
    assert descriptors_on("anon_inode:inotify") == 0


def test_a_folder_that_goes_right_after_the_look_is_noticed_though_a_socket_is_bound_in_it(tmp_path: Path) -> None:
    """As long as the socket is open, the kernel does not tell that the folder itself is gone."""

    async def scenario() -> None:
        heard = asyncio.Event()
        folder = tmp_path / "device-plugins"
        folder.mkdir()
        with socket.socket(socket.AF_UNIX) as own:
            own.bind(str(folder / "own.sock"))
            watch = FolderWatch(folder, heard.set)
            assert watch.renew()
            (folder / "own.sock").unlink()
            await asyncio.wait_for(heard.wait(), 10)
            assert watch.renew()  # the look that this hint leads to, before the folder goes
            heard.clear()
            folder.rmdir()
            await asyncio.wait_for(heard.wait(), 10)
            heard.clear()
            assert not watch.renew()
            folder.mkdir()
            await asyncio.wait_for(heard.wait(), 10)
            assert watch.renew()
        watch.close()

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_whole_tree_that_goes_after_the_look_is_followed_back(short_path: Path) -> None:
    async def scenario() -> None:
        heard = asyncio.Event()
        folder = short_path / "lib/kubelet/device-plugins"
        folder.mkdir(parents=True)
        with socket.socket(socket.AF_UNIX) as own:
            own.bind(str(folder / "own.sock"))
            watch = FolderWatch(folder, heard.set)
            assert watch.renew()
            shutil.rmtree(short_path / "lib")
            for place in (folder.parent.parent, folder.parent, folder):
                await asyncio.wait_for(heard.wait(), 10)
                assert not watch.renew()
                heard.clear()
                place.mkdir()
            await asyncio.wait_for(heard.wait(), 10)
            assert watch.renew()
        watch.close()

    asyncio.run(scenario())


@pytest.mark.slow
def test_every_end_and_return_of_a_folder_is_heard_whenever_it_comes(tmp_path: Path) -> None:
    """Hints alone, without any look in between: a lost one would hang this test."""
    folder, rounds = tmp_path / "kubelet/device-plugins", 300
    goes_on = threading.Semaphore(0)

    def kubelet() -> None:
        for _ in range(rounds):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "kubelet.sock").write_text("")
            goes_on.acquire()
            shutil.rmtree(folder)
            goes_on.acquire()

    async def scenario() -> None:
        heard = asyncio.Event()
        watch = FolderWatch(folder, heard.set)
        watch.renew()
        thread = threading.Thread(target=kubelet, daemon=True)
        thread.start()
        for _ in range(rounds):
            while not (folder / "kubelet.sock").exists():
                await asyncio.wait_for(heard.wait(), 30)
                heard.clear()
                watch.renew()
            own = socket.socket(socket.AF_UNIX)
            with suppress(FileNotFoundError):
                own.bind(str(folder / "own.sock"))
            goes_on.release()
            while (folder / "kubelet.sock").exists():
                await asyncio.wait_for(heard.wait(), 30)
                heard.clear()
                watch.renew()
            goes_on.release()
            own.close()
        thread.join()
        watch.close()

    asyncio.run(scenario())
