"""Opens what the nodes' declarations say about their schedulers, as one cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.cluster.composite import CompositeCluster
from provision.cluster.errors import KubeconfigError
from provision.cluster.local.cluster import LocalCluster
from provision.cluster.schedulers import commands, program
from provision.cluster.schedulers.cluster import ScheduledCluster
from provision.cluster.schedulers.slurm import client
from provision.declaration.spec.model import SchedulerKind, Slurm

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from provision.cluster.machine import Machine
    from provision.cluster.schedulers.cluster import Scheduler
    from provision.declaration.spec.model import Scheduler as Section
    from provision.declaration.spec.model import StackSpec
    from provision.rollout.interface.cluster import Cluster

IN_KUBERNETES: Final = (SchedulerKind.AUTO, SchedulerKind.KUBERNETES)  # where there is one
# How the answers of Slurm's commands look must not depend on who runs them.
_FORMATS: Final = ("SQUEUE_", "SINFO_", "SCONTROL_", "SLURM_TIME_FORMAT", "SLURM_BITSTR_LEN")


def open_members(
    stacks: Mapping[str, StackSpec],
    connect: Callable[[], Cluster],
    *,
    journal: LocalCluster,
    machines: Mapping[str, Machine],
    environ: Mapping[str, str],
) -> Cluster:
    """Return where the state of all nodes lives; ``connect`` opens Kubernetes, or the journal where there is none.

    It is only called where a node may belong there. Raises ClusterError.
    """
    default: Cluster | None = None
    opened: dict[Section, Cluster] = {}
    homes: dict[str, Cluster] = {}
    for name, stack in stacks.items():
        section = stack.scheduler
        if section not in opened:
            if section.kind in IN_KUBERNETES:
                default = connect() if default is None else default
                opened[section] = _checked(default, section)
            else:
                opened[section] = _member(section, journal, machines, environ)
        homes[name] = opened[section]
    members = list({id(home): home for home in homes.values()}.values())
    if len(members) <= 1:
        return members[0] if members else connect()
    kubernetes = None if default is None or isinstance(default, LocalCluster) else default
    return CompositeCluster(homes, [each for each in (journal, kubernetes) if each is not None], kubernetes)


def _checked(found: Cluster, section: Section) -> Cluster:
    if section.kind is SchedulerKind.KUBERNETES and isinstance(found, LocalCluster):
        raise KubeconfigError(
            "nodes are declared to be in Kubernetes (scheduler.kind), and there is no kubeconfig",
            hint="add `--kubeconfig`, or set $KUBECONFIG",
        )
    return found


def _member(
    section: Section, journal: LocalCluster, machines: Mapping[str, Machine], environ: Mapping[str, str]
) -> Cluster:
    if section.kind is SchedulerKind.NONE:
        return journal

    return ScheduledCluster(journal, _scheduler(section, machines, environ))


def _scheduler(section: Section, machines: Mapping[str, Machine], environ: Mapping[str, str]) -> Scheduler:
    if section.kind is SchedulerKind.COMMANDS and section.commands is not None:
        runner = program.Program(
            timeout_s=section.commands.timeout_seconds, limit_bytes=commands.LIMIT_BYTES, environ=environ
        )
        return commands.CommandScheduler(runner, section.commands)
    slurm = section.slurm or Slurm()
    plain = {name: value for name, value in environ.items() if not name.startswith(_FORMATS)}
    runner = program.Program(timeout_s=slurm.timeout_seconds, limit_bytes=client.LIMIT_BYTES, environ=plain)
    return client.SlurmScheduler(runner, slurm.command, machines, reservation=slurm.reservation or "")
