"""Says from which phase a node's upgrade may go to which, and why, in one table for code, tests and documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from provision.rollout.model import UNTOUCHED, Phase

NOT_BEGUN: Final = None  # a node without a record
OUT_OF_SERVICE: Final = tuple(phase for phase in Phase if not phase.is_over)
FORWARD: Final = tuple(phase for phase in OUT_OF_SERVICE if phase is not Phase.ROLLBACK)


@dataclass(frozen=True, slots=True)
class Transition:
    """Any of ``sources`` may be followed by ``target``; ``when`` is what has to be true then."""

    sources: tuple[Phase | None, ...]
    target: Phase | None
    when: str


TRANSITIONS: Final = (
    Transition(
        (NOT_BEGUN, Phase.DONE, Phase.RETURNED), Phase.CORDON, "another driver is declared, and its turn has come"
    ),
    Transition((Phase.CORDON,), Phase.JOBS, "it takes no new pods, and jobs are to be waited for"),
    Transition((Phase.CORDON,), Phase.DRAIN, "it takes no new pods"),
    Transition((Phase.JOBS,), Phase.DRAIN, "the jobs have ended, or their time is up"),
    Transition((Phase.DRAIN,), Phase.RELEASE, "no pod has a GPU"),
    Transition((Phase.RELEASE,), Phase.SWAP, "no process holds a GPU"),
    Transition((Phase.SWAP,), Phase.VERIFY, "the driver is exchanged"),
    Transition((Phase.VERIFY,), Phase.RESUME, "every check has passed"),
    Transition((Phase.RESUME,), Phase.DONE, "its GPUs are offered, and the kubelet is ready"),
    Transition(
        (Phase.CORDON, Phase.JOBS, Phase.DRAIN, Phase.RELEASE, Phase.SWAP), Phase.VERIFY, "it is as declared already"
    ),
    Transition((Phase.SWAP, Phase.VERIFY, Phase.RESUME), Phase.ROLLBACK, "the step has failed, or its time is up"),
    Transition((Phase.RELEASE,), Phase.ROLLBACK, "another node of its domain has failed"),
    Transition((Phase.CORDON, Phase.JOBS, Phase.DRAIN), Phase.RETURNED, "the same, before its GPUs are released"),
    Transition(
        (Phase.CORDON, Phase.JOBS, Phase.DRAIN), Phase.ROLLBACK, "the same, on a node whose GPUs were released before"
    ),
    Transition((Phase.ROLLBACK,), Phase.VERIFY, "the former driver is back"),
    Transition((Phase.RESUME,), Phase.RETURNED, "the same, on the way back"),
    Transition((Phase.CORDON,), Phase.RETURNED, "its maintenance is not granted in time"),
    Transition((Phase.CORDON, Phase.FAILED), Phase.CORDON, "it begins again, and its maintenance is not granted yet"),
    Transition((Phase.JOBS,), Phase.RETURNED, "the jobs have not ended in time, and are not to be evicted"),
    Transition(FORWARD, Phase.DRAIN, "another driver is declared meanwhile, or somebody has put it back into service"),
    Transition(FORWARD, Phase.JOBS, "another driver, or jobs to wait for, are declared meanwhile"),
    Transition(FORWARD, Phase.VERIFY, "what it has is declared meanwhile, or it is not to be changed"),
    Transition(OUT_OF_SERVICE, Phase.FAILED, "a step before the swap or of the way back has failed, or its time is up"),
    Transition(UNTOUCHED, NOT_BEGUN, "its window has closed before its pods were gone, or it is not to be changed"),
    Transition((Phase.RESUME,), NOT_BEGUN, "it is not to be changed, and what it has is verified"),
    Transition((Phase.RETURNED,), NOT_BEGUN, "the driver that it has is declared again"),
    Transition((Phase.DONE, Phase.RETURNED), NOT_BEGUN, "what it was about was taken away"),
    Transition((Phase.FAILED,), Phase.DRAIN, "the next apply tries it again"),
    Transition((Phase.FAILED,), Phase.JOBS, "the next apply tries it again, and jobs are to be waited for"),
    Transition((Phase.FAILED,), Phase.VERIFY, "the next apply finds it as declared"),
)


def is_legal(source: Phase | None, target: Phase | None) -> bool:
    """Tell whether a phase, or a node without a record, may be followed by another phase."""
    return any(source in each.sources and each.target is target for each in TRANSITIONS)


def render_diagram() -> str:
    """Return the table as a Mermaid state diagram; what may happen in every phase of a group is drawn once."""
    lines = ["stateDiagram-v2", '    state "out of service" as out {', '        state "on the way" as forward {']
    lines += [f"            {_state(phase)}" for phase in FORWARD]
    lines += [_arrow("            ", _id(phase), each) for each in TRANSITIONS for phase in _within(each, FORWARD)]
    lines += ["        }"]
    lines += [_arrow("        ", _id(phase), each) for each in TRANSITIONS for phase in _between(each)]
    lines += ["    }"]
    lines += [_arrow("    ", source, each) for each in TRANSITIONS for source in _outside(each)]
    return "\n".join(lines) + "\n"


_GROUPS: Final[dict[tuple[Phase | None, ...], str]] = {OUT_OF_SERVICE: "out", FORWARD: "forward"}


def _within(each: Transition, group: tuple[Phase, ...]) -> tuple[Phase, ...]:
    """Return the sources of a transition that stays in a group and does not begin in all phases of one."""
    if each.sources in _GROUPS or each.target not in group:
        return ()
    return tuple(source for source in each.sources if source in group)


def _between(each: Transition) -> tuple[Phase, ...]:
    """Return the sources of a transition that stays out of service, to the way back or from it."""
    within = _within(each, FORWARD)
    return tuple(source for source in _within(each, OUT_OF_SERVICE) if source not in within)


def _outside(each: Transition) -> tuple[str, ...]:
    if each.sources in _GROUPS:
        return (_GROUPS[each.sources],)
    inside = _within(each, OUT_OF_SERVICE)
    return tuple("[*]" if source is NOT_BEGUN else _id(source) for source in each.sources if source not in inside)


def _arrow(indent: str, source: str, each: Transition) -> str:
    return f"{indent}{source} --> {_id(each.target)}: {each.when}"


def _state(phase: Phase) -> str:
    return phase.value if _id(phase) == phase.value else f'state "{phase.value}" as {_id(phase)}'


def _id(phase: Phase | None) -> str:
    """Return what the diagram calls a phase: Mermaid's names of states have no hyphens."""
    return "[*]" if phase is None else phase.name.lower()


if __name__ == "__main__":
    import sys

    sys.stdout.write(render_diagram())
