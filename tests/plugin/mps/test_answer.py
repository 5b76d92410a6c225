from __future__ import annotations

from pathlib import Path

import pytest

from plugin.base.errors import InvalidRequest
from plugin.devices.allocation.answer import Mount
from plugin.sharing.mps.answer import answer_share
from plugin.sharing.mps.plan import MpsDaemon
from tests.plugin.fakes import gpu

ROOT = Path("/run/grapnel/mps")
FIRST, SECOND = (MpsDaemon(gpu(index).uuid, ROOT / gpu(index).uuid, 4, 20389, 25) for index in range(2))


def test_a_container_gets_the_pipes_the_memory_and_its_ceilings() -> None:
    answer = answer_share([FIRST])
    pipe = f"/run/grapnel/mps/{FIRST.uuid}/pipe"
    assert dict(answer.variables) == {
        "CUDA_MPS_PIPE_DIRECTORY": pipe,
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"{FIRST.uuid}=20389M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
    }
    assert answer.mounts == (
        Mount(pipe, pipe, read_only=True),
        Mount("/dev/shm", f"/run/grapnel/mps/{FIRST.uuid}/shm", read_only=False),
    )


def test_several_shares_of_one_gpu_raise_no_ceiling() -> None:
    assert answer_share([FIRST, FIRST]) == answer_share([FIRST])


@pytest.mark.parametrize("daemons", [(), (FIRST, SECOND)])
def test_a_container_is_the_client_of_one_control_daemon(daemons: tuple[MpsDaemon, ...]) -> None:
    with pytest.raises(InvalidRequest, match="several gpus for one container"):
        answer_share(daemons)
