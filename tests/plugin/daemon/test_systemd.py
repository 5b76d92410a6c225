from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from plugin.daemon.systemd import ServiceStatus, notify

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("abstract", [False, True], ids=["a path", "an abstract address"])
def test_a_message_reaches_the_service_manager(tmp_path: Path, abstract: bool) -> None:  # noqa: FBT001 - a table column
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(10)
        manager.bind("\0" + path if abstract else path)
        notify("READY=1", "@" + path if abstract else path)
        assert manager.recv(100) == b"READY=1"


def test_a_manager_that_is_not_there_is_no_failure(tmp_path: Path) -> None:
    notify("READY=1", "")
    notify("READY=1", str(tmp_path / "nobody"))


def test_the_first_status_says_ready_and_none_is_said_twice() -> None:
    said: list[str] = []
    service = ServiceStatus(said.append)
    ready = [service.is_ready]
    for status in ("waiting", "waiting", "registered", "waiting"):
        service.say(status)
        ready.append(service.is_ready)
    assert ready == [False, True, True, True, True]
    assert said == ["READY=1\nSTATUS=waiting", "STATUS=registered", "STATUS=waiting"]
