"""Keeps a shared GPU for its MPS server alone, and gives it its earlier compute mode back.

In mode EXCLUSIVE_PROCESS a process that leaves MPS, by another CUDA_MPS_PIPE_DIRECTORY, gets no context at all: without
that it would have the whole GPU, without any ceiling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from plugin.base.errors import MpsError

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.sharing.mps.plan import MpsDaemon

DEFAULT, EXCLUSIVE_THREAD, PROHIBITED, EXCLUSIVE_PROCESS = range(4)  # nvmlComputeMode_t
_REFUSED = {EXCLUSIVE_THREAD: "EXCLUSIVE_THREAD", PROHIBITED: "PROHIBITED"}


class ComputeModes(Protocol):
    """Who asks the driver. Both raise MpsError, also when the driver does not answer in time."""

    async def read(self, uuid: str) -> int:
        """Return the mode of a GPU."""

    async def write(self, uuid: str, mode: int) -> None:
        """Set the mode of a GPU."""


async def take(modes: ComputeModes, daemon: MpsDaemon) -> bool:
    """Set EXCLUSIVE_PROCESS, after what was there before has been noted; returns whether it was another mode.

    Raises MpsError, also for a mode that somebody has chosen against sharing.
    """
    found = await modes.read(daemon.uuid)
    if found in _REFUSED:
        raise MpsError(
            f"its compute mode is {_REFUSED[found]}, which somebody has set",
            f"nvidia-smi -i {daemon.uuid} -c DEFAULT allows it to be shared",
        )
    if not daemon.earlier_mode.exists():
        _note(daemon.earlier_mode, found)
    if found != EXCLUSIVE_PROCESS:
        await modes.write(daemon.uuid, EXCLUSIVE_PROCESS)
    return found != EXCLUSIVE_PROCESS


async def give_back(modes: ComputeModes, daemon: MpsDaemon) -> None:
    """Set what was noted, unless somebody has set another mode meanwhile; raises MpsError."""
    earlier = _noted(daemon.earlier_mode)
    if earlier is not None and await modes.read(daemon.uuid) == EXCLUSIVE_PROCESS != earlier:
        await modes.write(daemon.uuid, earlier)
    daemon.earlier_mode.unlink(missing_ok=True)


def _note(path: Path, mode: int) -> None:
    try:
        path.write_text(f"{mode}\n")
    except OSError as error:
        raise MpsError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from error


def _noted(path: Path) -> int | None:
    """Return the mode; a file that a crash has left empty stands for the default."""
    try:
        text = path.read_text().strip()
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return DEFAULT
    return int(text) if text in {str(DEFAULT), str(EXCLUSIVE_PROCESS)} else DEFAULT
