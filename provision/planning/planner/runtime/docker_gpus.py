"""Plans what makes ``docker run --gpus`` work: a program by whose name Docker looks, and what is to be said of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.planning.engines.docker_gpus import GPUS_PATH, MARK, render_gpus_program
from provision.planning.node_plan import FileContent, Problem
from provision.planning.planner.part import is_running

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts

_INSTEAD: Final = (
    "until then: docker run --runtime {handler} -e NVIDIA_VISIBLE_DEVICES=0 (with entitlement: env), "
    "or --device nvidia.com/gpu=0 (Docker 25 and later)"
)


def gpus_files(facts: NodeFacts) -> tuple[FileContent, ...]:
    """Return the program, unless somebody else's is in its place."""
    return () if _is_foreign(facts) else (FileContent(GPUS_PATH, render_gpus_program(), "0755"),)


def gpus_warnings(facts: NodeFacts, handler: str) -> tuple[Problem, ...]:
    """Return why ``--gpus`` of the Docker that runs does not do what grapnel would do."""
    if _is_foreign(facts):
        foreign = Problem(
            code="docker-gpus-foreign",
            message=f"{GPUS_PATH} is not grapnel's, and decides what docker run --gpus does",
            hint="take it away, and plan again: grapnel then puts its own there",
        )
        return (foreign,)
    engine = facts.engines.get("docker")
    if engine is None or engine.takes_gpus is not False or not is_running(facts, "docker.service"):
        return ()
    late = Problem(
        code="docker-gpus-late",
        message="docker run --gpus works from Docker's next start on: dockerd looks for a program only when it starts",
        hint=f"systemctl restart docker (it ends containers without live-restore); {_INSTEAD.format(handler=handler)}",
    )
    return (late,)


def _is_foreign(facts: NodeFacts) -> bool:
    state = facts.file(GPUS_PATH)
    return state is not None and MARK not in (state.content or "")
