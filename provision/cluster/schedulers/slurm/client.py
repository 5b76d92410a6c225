"""Runs scontrol and squeue, here or where the declaration says."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from provision.cluster.errors import ForbiddenError, SchedulerError
from provision.cluster.schedulers.cluster import SchedulerNode
from provision.cluster.schedulers.slurm.answers import (
    JOB_FORMAT,
    JOB_STATES,
    OURS,
    is_busy,
    is_drained,
    is_ours,
    is_unheard_of,
    parse_jobs,
    parse_nodes,
    parse_reservations,
    why_held,
    why_not_ready,
)
from provision.rollout.errors import UnreachableError
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.model import Job

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from provision.cluster.machine import Machine
    from provision.cluster.schedulers.program import Program, Ran
    from provision.cluster.schedulers.slurm.answers import SlurmNode
    from provision.rollout.model import NodeView

LIMIT_BYTES: Final = 64 << 20  # ten thousand nodes take ten
_SSH_FAILED: Final = 255
_ONES: Final = 16  # nodes that are asked for by name
_FEW: Final = 1000  # nodes whose jobs are asked for by name; for more, all jobs are
_SAFE: Final = re.compile(r"[A-Za-z0-9_.,:=@%/+-]+")
_UNREACHABLE: Final = ("unable to contact slurm controller", "connect failure", "timed out", "connection refused")
_FORBIDDEN: Final = ("permission denied", "access denied", "invalid user id")
_MAINTENANCE: Final = "MAINTENANCE"
_UNSEEN: Final = Job(id="a job that squeue does not show")  # PrivateData hides those of others
_UNHEARD: Final = Job(id="whatever ran before slurmctld started: its slurmd has not registered yet")


class SlurmScheduler:
    """Slurm. ``command`` is what its programs are run by; ``machines`` are what is known of the inventory's machines.

    ``reservation`` is the one for maintenance in which nodes may be changed.
    """

    def __init__(
        self, program: Program, command: Sequence[str], machines: Mapping[str, Machine], *, reservation: str = ""
    ) -> None:
        self.name = f"Slurm by {command[-1]}" if command else "Slurm"
        self._program = program
        self._command = tuple(command)
        self._machines = machines
        self._reservation = reservation
        self._known: dict[str, str] = {}  # the names of Slurm, by those of the inventory
        self._has_looked = False

    def look(self, views: Mapping[str, NodeView]) -> dict[str, SchedulerNode | NodeProblem]:
        """Return what slurmctld has on each node.

        Jobs are asked for where it matters: on nodes that we have drained, and on all the first time, for the plan.
        """
        nodes = self._nodes(views)
        found = match_slurm_nodes(tuple(views), self._machines, nodes, self.name)
        matched = [node for node in found.values() if not isinstance(node, NodeProblem)]
        jobs = self._jobs([node.name for node in matched if is_ours(node) or (is_busy(node) and not self._has_looked)])
        held = self._maintained() if any(_MAINTENANCE in node.states for node in matched) else {}
        self._has_looked = True
        self._known |= {name: node.name for name, node in found.items() if not isinstance(node, NodeProblem)}
        return {
            name: node if isinstance(node, NodeProblem) else _described(node, jobs, held)
            for name, node in found.items()
        }

    def drain(self, node: str, reason: str) -> None:
        """Drain the node; jobs that run on it go on."""
        self._ask("scontrol", "update", f"nodename={self._known[node]}", "state=drain", f"reason={OURS}{reason}")

    def resume(self, node: str) -> None:
        """Have the node take jobs again. Slurm refuses this for a node that already does."""
        name = self._known[node]
        ran = self._run("scontrol", "update", f"nodename={name}", "state=resume")
        if ran.code or ran.problem:
            now = parse_nodes(self._ask("scontrol", "show", "node", name)).get(name)
            if now is None or is_drained(now):
                raise self._error("scontrol", ran)

    def _nodes(self, names: Collection[str]) -> dict[str, SlurmNode]:
        """Return the nodes of the cluster; where only a few known ones are asked for, no others."""
        known = [self._known[name] for name in names if name in self._known]
        if known and len(known) == len(names) <= _ONES:
            ran = self._run("scontrol", "show", "node", ",".join(known))
            if not ran.code and not ran.problem:
                return parse_nodes(ran.output.decode(errors="replace"))
        return parse_nodes(self._ask("scontrol", "show", "node"))  # one of them may be gone

    def _jobs(self, nodes: Collection[str]) -> dict[str, tuple[Job, ...]]:
        if not nodes:
            return {}
        chosen = [f"--nodelist={','.join(nodes)}"] if len(nodes) <= _FEW else []
        answer = self._ask("squeue", "--noheader", "--all", f"--states={JOB_STATES}", f"--format={JOB_FORMAT}", *chosen)
        return parse_jobs(answer)

    def _maintained(self) -> dict[str, str]:
        """Return which nodes are reserved for a maintenance that is not ours, and until when."""
        answer = self._ask("scontrol", "show", "reservation", "--oneliner")
        return {
            node: f"it is reserved for maintenance ({each.name}) until {each.until}; a reservation that nodes may be "
            "changed in is named in scheduler.slurm.reservation"
            for each in parse_reservations(answer)
            if each.name != self._reservation
            for node in each.nodes
        }

    def _ask(self, *arguments: str) -> str:
        ran = self._run(*arguments)
        if ran.code or ran.problem:
            raise self._error(arguments[0], ran)
        return ran.output.decode(errors="replace")

    def _run(self, *arguments: str) -> Ran:
        unsafe = [each for each in arguments if not _SAFE.fullmatch(each)]
        if unsafe:  # a shell behind ssh would act on it
            raise SchedulerError(f"{arguments[0]} is not run: an argument has characters that a shell acts on")
        return self._program.run((*self._command, *arguments))

    def _error(self, program: str, ran: Ran) -> SchedulerError | UnreachableError | ForbiddenError:
        said, message = ran.errors.lower(), f"{program} of {self.name}: {ran.complaint}"
        if any(each in said for each in _FORBIDDEN):
            hint = "draining nodes takes an operator or administrator of Slurm (`sacctmgr show user`), or SlurmUser"
            return ForbiddenError(message, hint=hint)
        is_silent = ran.problem.startswith("no answer")
        if is_silent or ran.code == _SSH_FAILED or any(each in said for each in _UNREACHABLE):
            return UnreachableError(message, hint="see `scontrol ping`, and scheduler.slurm.command")
        hint = "install Slurm's commands here, or say in scheduler.slurm.command what runs them where they are"
        return SchedulerError(message, hint=hint if ran.problem else "")


def _described(node: SlurmNode, jobs: Mapping[str, tuple[Job, ...]], held: Mapping[str, str]) -> SchedulerNode:
    return SchedulerNode(
        is_drained=is_drained(node),
        is_ours=is_ours(node),
        jobs=jobs.get(node.name) or _unseen(node),
        why_not_ready=why_not_ready(node),
        held_by=why_held(node) or held.get(node.name, ""),
        registered=node.started,
    )


def _unseen(node: SlurmNode) -> tuple[Job, ...]:
    """Return what the node's state tells of jobs of which squeue has told nothing."""
    if is_unheard_of(node):
        return (_UNHEARD,)
    return (_UNSEEN,) if is_busy(node) else ()


# Says which node of Slurm is which machine of the inventory. A machine is found by its name (NodeName, else
# NodeHostname), and by the addresses that the operator connects to (NodeAddr). Where both say something, they have to
# agree.

_SEE = "NodeName, NodeHostname and NodeAddr of slurm.conf are compared with the inventory's name and address"


def match_slurm_nodes(
    names: Collection[str], machines: Mapping[str, Machine], nodes: Mapping[str, SlurmNode], where: str
) -> dict[str, SlurmNode | NodeProblem]:
    """Return the node of each machine, or why it has none; ``where`` is what messages call Slurm."""
    by_address, by_host = defaultdict(list), defaultdict(list)
    for node in nodes.values():
        by_address[node.address].append(node)
        by_host[node.hostname].append(node)
    found: dict[str, SlurmNode | NodeProblem] = {}
    for name in names:
        addresses = machines[name].addresses if name in machines else frozenset()
        named = _named(name, nodes, by_host)
        addressed = [node for address in sorted(addresses) for node in by_address[address]]
        found[name] = _agreed(name, named, addressed, where)
    return _each_once(found, where)


def _named(name: str, nodes: Mapping[str, SlurmNode], by_host: Mapping[str, list[SlurmNode]]) -> list[SlurmNode]:
    short = name.partition(".")[0]
    for each in dict.fromkeys((name, short)):
        if each in nodes:
            return [nodes[each]]
    for each in dict.fromkeys((name, short)):
        if each in by_host:
            return by_host[each]
    return []


def _agreed(name: str, named: list[SlurmNode], addressed: list[SlurmNode], where: str) -> SlurmNode | NodeProblem:
    candidates = [node for node in named if node in addressed] or named or addressed
    if not candidates:
        return NodeProblem(name=name, message=f"{where} has no node of that name or address", hint=_SEE)
    words = ", ".join(node.name for node in candidates[:3])
    if len(candidates) > 1:
        return NodeProblem(name=name, message=f"{where} has several nodes that it may be: {words}", hint=_SEE)
    if addressed and candidates[0] not in addressed:
        message = f"by its name it is node {words} of {where}, by its address {addressed[0].name}"
        return NodeProblem(name=name, message=message, hint=_SEE)
    return candidates[0]


def _each_once(found: dict[str, SlurmNode | NodeProblem], where: str) -> dict[str, SlurmNode | NodeProblem]:
    owners: dict[str, list[str]] = defaultdict(list)
    for name, node in found.items():
        if not isinstance(node, NodeProblem):
            owners[node.name].append(name)
    for node_name, names in owners.items():
        if len(names) > 1:
            message = f"node {node_name} of {where} would be {' and '.join(names[:3])} of the inventory"
            found |= {name: NodeProblem(name=name, message=message, hint=_SEE) for name in names}
    return found
