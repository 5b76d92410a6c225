"""Takes machines out of service with the programs of a site, which run on this machine.

| program | exit code 0 | others |
|---|---|---|
| drain | the node takes no new work | the rollout stops; 75: tried again for a minute |
| isDrained | no work is left | 1: some is, and the output says which; others: the same, with what went wrong |
| resume | the node takes work again | as for drain |
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from provision.base.printable import printable
from provision.cluster.errors import SchedulerError
from provision.cluster.schedulers.cluster import SchedulerNode
from provision.rollout.errors import UnreachableError
from provision.rollout.model import Job, Phase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from provision.cluster.schedulers.program import Program
    from provision.declaration.spec.model import Commands
    from provision.rollout.model import NodeView

LIMIT_BYTES: Final = 64 << 10
NODE: Final = "{node}"
TEMPORARY: Final = 75  # EX_TEMPFAIL of sysexits.h
_HAS_WORK: Final = 1
_NAMED: Final = 20  # lines of output
_LONGEST: Final = 120  # characters of each
_AT_ONCE: Final = 16
_ASKING: Final = (Phase.CORDON, Phase.JOBS, Phase.DRAIN, Phase.RELEASE)


class CommandScheduler:
    """The programs of a site. What it knows of a node besides its work is what the state file has."""

    def __init__(self, program: Program, commands: Commands) -> None:
        self.name = f"drain commands ({commands.drain[0]})"
        self._program = program
        self._commands = commands

    def look(self, views: Mapping[str, NodeView]) -> dict[str, SchedulerNode]:
        """Ask about the work of nodes that are to lose it, several at once: no other node has to be empty."""
        asked = [name for name, view in views.items() if view.is_cordoned and _is_leaving(view)]
        with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="drained") as pool:
            work = dict(zip(asked, pool.map(self._work, asked), strict=True)) if asked else {}
        return {
            name: SchedulerNode(
                is_drained=view.is_cordoned, is_ours=view.is_cordoned, is_remembered=True, jobs=work.get(name, ())
            )
            for name, view in views.items()
        }

    def drain(self, node: str, reason: str) -> None:  # the program is told the node alone
        """Run the program that drains."""
        self._change("drain", self._commands.drain, node)

    def resume(self, node: str) -> None:
        """Run the program that resumes."""
        self._change("resume", self._commands.resume, node)

    def _work(self, node: str) -> tuple[Job, ...]:
        ran = self._program.run(_for(self._commands.is_drained, node))
        if ran.code == 0:
            return ()
        if ran.code != _HAS_WORK or ran.problem:
            return (Job(id=f"unknown work: isDrained ({self._commands.is_drained[0]}): {ran.complaint}"),)
        lines = [line for line in ran.output.decode(errors="replace").splitlines() if line.strip()][:_NAMED]
        return tuple(Job(id=printable(line.strip(), limit=_LONGEST)) for line in lines) or (Job(id="its work"),)

    def _change(self, key: str, command: Sequence[str], node: str) -> None:
        ran = self._program.run(_for(command, node))
        if ran.code == 0:
            return
        message = f"{key} of {node} ({command[0]}): {ran.complaint}"
        if ran.code == TEMPORARY or ran.problem.startswith("no answer"):
            raise UnreachableError(message)
        raise SchedulerError(message, hint=f"run it by hand; it is scheduler.commands.{key} of the declaration")


def _for(command: Sequence[str], node: str) -> tuple[str, ...]:
    return tuple(argument.replace(NODE, node) for argument in command)


def _is_leaving(view: NodeView) -> bool:
    return view.record is not None and view.record.phase in _ASKING
