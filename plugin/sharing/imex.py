"""Whose nvidia-imex runs on this node, and whether it is ready: asked, and never begun or ended here.

IMEX is the host's: a unit whose nodes are those of the clique, the same for each ComputeDomain that has it. The driver
has one session for it, so another one beside it (NVIDIA's daemon of a domain, in a pod) would take it away.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from plugin.base.errors import ClaimError, MpsError
from plugin.sharing.mps.programs import run_program
from plugin.system.durable import read_bounded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SERVICE = "nvidia-imex.service"
PROGRAM = "nvidia-imex"
_READY = "READY"
_ANSWER_S = 3.0
_MAX_BYTES = 4096
_MAX_SHOWN = 120
_START = f"systemctl enable --now {SERVICE}, with all nodes of the clique in /etc/nvidia-imex/nodes_config.cfg"


class Imex(NamedTuple):
    """`control` is where nvidia-imex-ctl is, `proc` the machine's /proc."""

    control: Path
    proc: Path

    async def require_ready(self) -> None:
        """Raise ClaimError unless the host's own nvidia-imex runs and says that it is ready.

        The driver has one session for all: where the unit is ready, no other one has it. Names of processes are
        anybody's to choose, so one in another group is named as a reason, and refuses nothing by itself.
        """
        owners = list(self._owners())
        foreign = next((f"; another one runs in {each[:_MAX_SHOWN]!a}" for each in owners if each != SERVICE), "")
        hint = f"one IMEX to a node: end the other one, such as NVIDIA's of a ComputeDomain; {_START}"
        if SERVICE not in owners:
            raise ClaimError(f"{SERVICE} does not run on this node{foreign}", hint if foreign else _START)
        try:
            said = await run_program([str(self.control), "-q"], _ANSWER_S)
        except MpsError as error:
            raise ClaimError(f"{PROGRAM} cannot be asked: {error.message}{foreign}", _START) from error
        if _READY not in map(str.strip, said.splitlines()):
            words = f"{SERVICE} is not ready, it says {said.strip()[:_MAX_SHOWN]!a}{foreign}"
            raise ClaimError(words, hint if foreign else _START)

    def _owners(self) -> Iterator[str]:
        """Yield the unit of each process, or its control group where it is in another one."""
        for process in self.proc.glob("[0-9]*"):
            with suppress(OSError):  # it has ended
                if read_bounded(process / "comm", _MAX_BYTES).decode("ascii", "replace").strip() != PROGRAM:
                    continue
                groups = read_bounded(process / "cgroup", _MAX_BYTES).decode("utf-8", "replace").splitlines()
                paths = [line.split(":", 2)[-1] for line in groups]
                yield SERVICE if f"/system.slice/{SERVICE}" in paths else next(iter(paths), "no group")
