"""Measures what Jobs cost: a fleet that is rolled out as in a cluster, by Jobs whose pods KWOK plays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.fleets import objects
from bench.fleets.figures import JobCosts
from bench.fleets.processes import Lead
from bench.fleets.requests import served

if TYPE_CHECKING:
    from bench.fleets.stage import Stage

OUT: Final = "50%"
MADE: Final = "POST jobs"
OWN: Final = "GET gpustacks"  # of this process, which waits


def measure(stage: Stage, nodes: int) -> JobCosts:
    """Look at every node and roll another driver out, all by Jobs."""
    stage.make(nodes, pods_per_node=0)
    stage.send("POST", objects.STACKS, objects.stack(objects.OLD, out=OUT))
    failing = sum(map(objects.is_faulty, objects.names_of(nodes)))
    with Lead.running(stage.control_plane.kubeconfig, "--jobs", objects.NAMESPACE) as lead:
        stage.wait_for("AsDeclared", nodes)
        stage.wait_for_marks(nodes)
        before, asked = served(stage.api), lead.counts().requests
        server, manager = stage.server_cpu_s(), stage.manager_cpu_s()
        stage.declare(objects.NEW)
        seconds = stage.wait_for("Degraded", nodes - failing)
        found = served(stage.api) - before
        jobs = found[MADE]
        return JobCosts(
            nodes=nodes,
            jobs=jobs,
            seconds=seconds,
            asked=(lead.counts().requests - asked) / jobs,
            served={name: times / jobs for name, times in found.items() if name != OWN},
            server_cpu_s=stage.server_cpu_s() - server,
            manager_cpu_s=stage.manager_cpu_s() - manager,
        )
