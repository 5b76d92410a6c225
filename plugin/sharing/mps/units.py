"""Control daemons as transient units of systemd, so that a restart of this daemon takes no GPU from a container.

A process that we start is in our own control group, and systemd ends it with us. A transient unit has a group of its
own, is found again by its name after a restart, and takes its servers along when the control daemon dies. It also has a
mount namespace in which `/dev/shm` is the folder that the containers of this GPU share with it, and no other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.base.errors import MpsError
from plugin.driver.uuid import is_gpu_uuid
from plugin.sharing.mps.control import PROTOCOL
from plugin.sharing.mps.plan import UNIT
from plugin.sharing.mps.programs import run_program

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from plugin.sharing.mps.plan import MpsDaemon

_ASK_S, _CHANGE_S = 10.0, 40.0
_START_S, _STOP_S = 20, 10
# As large as a container's own. Empty files take none of that, and what containers leave stays: hence a limit for both.
_SHM_OPTIONS = "size=64m,nr_inodes=16k,mode=1777,nosuid,nodev,noexec"
# Who can write to the control daemon's pipe for logs can fill them as fast as it reads: not all of /run with them.
_LOG_OPTIONS = "size=16m,nr_inodes=64,mode=700,nosuid,nodev,noexec"
_SHOWN = ("Id", "ActiveState", "MainPID", "Environment")
_ENDED = ("", "inactive", "failed")
_PIPE = "CUDA_MPS_PIPE_DIRECTORY="


@dataclass(frozen=True)
class UnitState:
    """What systemd says of a unit: `pipe` is the folder that its control daemon was started with."""

    uuid: str = ""
    is_active: bool = False
    main_pid: int = 0
    pipe: str = ""


@dataclass(frozen=True)
class Units:
    """Starts, finds and ends them. `tools` is where systemd's programs are; every call may raise MpsError."""

    program: Path
    tools: str = ""

    async def state(self, daemon: MpsDaemon) -> UnitState:
        """Return what runs for this GPU, of this process or of one before it."""
        return next(iter(await self._show([daemon.unit])), UnitState())

    async def list_all(self) -> tuple[UnitState, ...]:
        """Return every control daemon of ours on this machine, wanted or not."""
        return await self._show([f"{UNIT}*.service"])

    async def start(self, daemon: MpsDaemon) -> None:
        """Start the control daemon; it answers when this returns, or soon after."""
        if not self.program.is_file():
            hint = "it is in the package nvidia-cuda-mps, nvidia-compute-utils or nvidia-driver-cuda"
            raise MpsError(f"{self.program} is not installed", hint)
        for folder, options in ((daemon.shm, _SHM_OPTIONS), (daemon.log, _LOG_OPTIONS)):
            if not folder.is_mount():
                await self._mount(folder, options)
        properties = (f"--property={each}" for each in _properties(daemon))
        variables = (f"--setenv={name}={value}" for name, value in _environment(daemon).items())
        command = [*self._systemd_run, f"--unit={daemon.unit}", *properties, *variables, "--", str(self.program), "-d"]
        await run_program(command, _CHANGE_S)

    async def stop(self, daemon: MpsDaemon) -> None:
        """End the control daemon with its servers, by signals; whatever they do, it is over afterwards."""
        await run_program([f"{self.tools}systemctl", "stop", "--", daemon.unit], _CHANGE_S)

    @property
    def _systemd_run(self) -> list[str]:
        return [f"{self.tools}systemd-run", "--quiet", "--collect"]

    async def _mount(self, folder: Path, options: str) -> None:
        """Mount it in systemd's own mount namespace: this daemon's is one that container engines do not see."""
        mount = ["mount", "-t", "tmpfs", "-o", options, "grapnel-mps", str(folder)]
        await run_program([*self._systemd_run, "--wait", "--", *mount], _CHANGE_S)

    async def _show(self, units: list[str]) -> tuple[UnitState, ...]:
        shown = [f"--property={name}" for name in _SHOWN]
        answer = await run_program([f"{self.tools}systemctl", "show", *shown, "--", *units], _ASK_S)
        return tuple(_states(answer))


def _properties(daemon: MpsDaemon) -> Iterable[str]:
    return (
        f"Description=MPS control daemon of {daemon.uuid} (grapnel)",
        # In the background: every driver can. systemd guesses the main process: the only one left when the first exits.
        # The program's own PID file is not trusted, and driver 535 writes none.
        "Type=forking",
        f"BindPaths={daemon.shm}:/dev/shm",
        f"TimeoutStartSec={_START_S}",
        f"TimeoutStopSec={_STOP_S}",
        "OOMScoreAdjust=-900",
    )


def _environment(daemon: MpsDaemon) -> dict[str, str]:
    """Return its whole environment. The ceilings are in it, too; driver 580 does not look at the one on memory."""
    return {
        **PROTOCOL,
        "CUDA_VISIBLE_DEVICES": daemon.uuid,
        "CUDA_MPS_PIPE_DIRECTORY": str(daemon.pipe),
        "CUDA_MPS_LOG_DIRECTORY": str(daemon.log),
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(daemon.thread_percentage),
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"{daemon.uuid}={daemon.memory_mib}M",
    }


def _states(answer: str) -> Iterator[UnitState]:
    """Read the answer of `systemctl show`: a block for each unit. A pipe's path has no space: uuids and mpsRoot."""
    for block in answer.split("\n\n"):
        values = dict(line.partition("=")[::2] for line in block.splitlines())
        uuid = values.get("Id", "").removeprefix(UNIT).removesuffix(".service")
        pid = values.get("MainPID", "")
        words = values.get("Environment", "").split()
        if is_gpu_uuid(uuid):
            yield UnitState(
                uuid,
                is_active=values.get("ActiveState", "") not in _ENDED,
                main_pid=int(pid) if pid.isdecimal() else 0,
                pipe=next((word.removeprefix(_PIPE) for word in words if word.startswith(_PIPE)), ""),
            )
