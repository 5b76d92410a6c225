"""What a container gets besides its GPU, so that its processes are clients of the GPU's MPS server. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from plugin.base.errors import InvalidRequest
from plugin.devices.allocation.answer import Mount

if TYPE_CHECKING:
    from collections.abc import Collection

    from plugin.sharing.mps.plan import MpsDaemon

_SHM = "/dev/shm"  # where CUDA looks


@dataclass(frozen=True)
class ShareAnswer:
    """Variables and mounts, for an answer to Allocate."""

    variables: tuple[tuple[str, str], ...]
    mounts: tuple[Mount, ...]


def answer_share(daemons: Collection[MpsDaemon]) -> ShareAnswer:
    """Return what a container gets with shares of these GPUs; raises InvalidRequest for more than one.

    A process has one folder of pipes, so it can be the client of one control daemon. The variables only repeat the
    ceilings: a process that changes them can give itself less, not more. The folder of pipes is for reading, which
    sockets and pipes do not mind: containers use them and replace none. `/dev/shm` is as NVIDIA's plugin has it.
    """
    if len({daemon.uuid for daemon in daemons}) != 1:
        names = ", ".join(sorted({daemon.uuid for daemon in daemons}))
        raise InvalidRequest(f"shares through MPS of several gpus for one container: {names}", "ask for one share")
    daemon = next(iter(daemons))
    client = answer_client(daemon)
    return replace(
        client,
        variables=(
            *client.variables,
            ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", f"{daemon.uuid}={daemon.memory_mib}M"),
            ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", str(daemon.thread_percentage)),
        ),
    )


def answer_client(daemon: MpsDaemon) -> ShareAnswer:
    """Return what a container gets that is a client, whatever its ceilings are."""
    pipe = str(daemon.pipe)
    mounts = (Mount(pipe, pipe, read_only=True), Mount(_SHM, str(daemon.shm), read_only=False))
    return ShareAnswer((("CUDA_MPS_PIPE_DIRECTORY", pipe),), mounts)
