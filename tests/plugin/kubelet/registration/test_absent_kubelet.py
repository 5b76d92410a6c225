"""Whether there is a kubelet to be waited for after a resume: a node without one is in service at once."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from plugin.base.log import Logger
from plugin.kubelet.registration.link import Link, Timing

if TYPE_CHECKING:
    from pathlib import Path

HIDDEN_S = 2.0  # a kubelet that starts has no socket for a moment


def lacks_kubelet(root: Path, *, since_s: float = HIDDEN_S, registration: str = "auto", streams: int = 0) -> bool:
    """Ask a link that has seen no ``kubelet.sock`` for so long, and that so many streams watch."""
    now = [0.0]

    async def ask() -> bool:
        link = Link(
            resource="nvidia.com/gpu",
            kubelet_root=root,
            registration=registration,
            logger=Logger(),
            on_state=lambda _: None,
            timing=Timing(hidden_s=HIDDEN_S),
            clock=lambda: now[0],
        )
        now[0] = since_s
        if not streams:
            return link.lacks_kubelet
        with link.publisher.stream():
            return link.lacks_kubelet

    return asyncio.run(ask())


def listen(root: Path, folder: str) -> socket.socket:
    (root / folder).mkdir(exist_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(root / folder / "kubelet.sock"))
    listener.listen(1)
    return listener


def test_a_node_on_which_no_kubelet_ever_ran_lacks_one_at_once(tmp_path: Path) -> None:
    assert lacks_kubelet(tmp_path, since_s=0.0)


@pytest.mark.parametrize(("since_s", "expected"), [(0.1, False), (HIDDEN_S, True)], ids=["just now", "for a while"])
def test_a_kubelet_that_may_be_starting_is_waited_for(tmp_path: Path, since_s: float, *, expected: bool) -> None:
    (tmp_path / "device-plugins").mkdir()

    assert lacks_kubelet(tmp_path, since_s=since_s) is expected


def test_a_kubelet_with_its_socket_is_there(tmp_path: Path) -> None:
    with listen(tmp_path, "device-plugins"):
        assert not lacks_kubelet(tmp_path)


def test_a_kubelet_that_watches_is_there_without_its_socket(tmp_path: Path) -> None:
    assert not lacks_kubelet(tmp_path, streams=1)


@pytest.mark.parametrize(("registration", "expected"), [("auto", False), ("watcher", False), ("socket", True)])
def test_a_kubelet_that_finds_plugins_is_there_where_they_may_be_found(
    tmp_path: Path, registration: str, *, expected: bool
) -> None:
    (tmp_path / "plugins_registry").mkdir()
    with listen(tmp_path, "pod-resources"):
        assert lacks_kubelet(tmp_path, registration=registration) is expected
