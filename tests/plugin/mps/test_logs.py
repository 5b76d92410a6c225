from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from plugin.sharing.mps.folders import MAX_BYTES, trim_logs
from plugin.sharing.mps.plan import MpsDaemon
from tests.plugin.fakes import gpu

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def daemon(tmp_path: Path) -> MpsDaemon:
    made = MpsDaemon(gpu(0).uuid, tmp_path, 4, 20389, 25)
    made.log.mkdir()
    return made


def test_a_log_that_is_too_large_is_emptied_under_its_writer(daemon: MpsDaemon) -> None:
    with (daemon.log / "control.log").open("ab") as writer:
        writer.truncate(MAX_BYTES + 1)
        trim_logs(daemon)
        writer.write(b"one more line\n")
    assert (daemon.log / "control.log").read_bytes() == b"one more line\n"


def test_a_log_of_ordinary_size_stays(daemon: MpsDaemon) -> None:
    (daemon.log / "server.log").write_text("a line\n")
    trim_logs(daemon)
    assert (daemon.log / "server.log").read_text() == "a line\n"


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_what_a_link_in_its_place_leads_to_stays(daemon: MpsDaemon, tmp_path: Path, link: object) -> None:
    other = tmp_path / "other"
    with other.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    assert callable(link)
    link(other, daemon.log / "control.log")
    trim_logs(daemon)
    assert other.stat().st_size == MAX_BYTES + 1


def test_a_pipe_in_its_place_holds_nobody_up(daemon: MpsDaemon) -> None:
    os.mkfifo(daemon.log / "control.log")
    trim_logs(daemon)
