from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path

import pytest

from plugin.kubelet.registration.inotify import FolderWatch
from plugin.system.sockets import SocketAddress, socket_identity


def listen(path: Path) -> None:
    """Leave a socket that nobody serves."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def descriptors_on(start: str) -> int:
    """Count this process's descriptors by what they lead to; those of others come and go with the collector."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists the folder
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
        await asyncio.wait_for(heard.wait(), 10)  # the kernel says that it forgets the folder above
        heard.clear()
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
