from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from plugin.base.errors import MpsError
from plugin.sharing.mps.compute_mode import DEFAULT, EXCLUSIVE_PROCESS, EXCLUSIVE_THREAD, PROHIBITED, give_back, take
from plugin.sharing.mps.plan import MpsDaemon
from tests.plugin.fakes import gpu
from tests.plugin.mps.node import Modes

if TYPE_CHECKING:
    from pathlib import Path

UUID = gpu(0).uuid


@pytest.fixture
def daemon(tmp_path: Path) -> MpsDaemon:
    return MpsDaemon(UUID, tmp_path, 4, 20389, 25)


@pytest.mark.parametrize("earlier", [DEFAULT, EXCLUSIVE_PROCESS])
def test_a_gpu_gets_the_mode_back_that_it_had(daemon: MpsDaemon, earlier: int) -> None:
    modes = Modes({UUID: earlier})
    assert asyncio.run(take(modes, daemon)) == (earlier != EXCLUSIVE_PROCESS)
    assert modes.modes == {UUID: EXCLUSIVE_PROCESS}
    asyncio.run(take(modes, daemon))  # by the next process, which finds our own mode
    asyncio.run(give_back(modes, daemon))
    assert modes.modes == {UUID: earlier}
    assert not daemon.earlier_mode.exists()


@pytest.mark.parametrize("mode", [EXCLUSIVE_THREAD, PROHIBITED])
def test_a_mode_against_sharing_is_left_alone(daemon: MpsDaemon, mode: int) -> None:
    modes = Modes({UUID: mode})
    with pytest.raises(MpsError, match="which somebody has set"):
        asyncio.run(take(modes, daemon))
    assert modes.written == []
    assert not daemon.earlier_mode.exists()


def test_a_mode_that_somebody_set_meanwhile_stays(daemon: MpsDaemon) -> None:
    modes = Modes({UUID: DEFAULT})
    asyncio.run(take(modes, daemon))
    modes.modes[UUID] = PROHIBITED
    asyncio.run(give_back(modes, daemon))
    assert modes.modes == {UUID: PROHIBITED}


@pytest.mark.parametrize("text", ["", "7", "many\n"])
def test_a_note_that_a_crash_has_spoilt_stands_for_the_default(daemon: MpsDaemon, text: str) -> None:
    daemon.earlier_mode.write_text(text)
    modes = Modes({UUID: EXCLUSIVE_PROCESS})
    asyncio.run(give_back(modes, daemon))
    assert modes.modes == {UUID: DEFAULT}


def test_without_a_note_nothing_is_changed(daemon: MpsDaemon) -> None:
    modes = Modes({UUID: EXCLUSIVE_PROCESS})
    asyncio.run(give_back(modes, daemon))
    assert modes.written == []


def test_the_note_comes_before_the_change(daemon: MpsDaemon) -> None:
    class Killed(Modes):
        async def write(self, uuid: str, mode: int) -> None:
            del uuid, mode
            raise MpsError("the process is killed here")

    with pytest.raises(MpsError, match="killed here"):
        asyncio.run(take(Killed({UUID: DEFAULT}), daemon))
    assert daemon.earlier_mode.read_text() == "0\n"
