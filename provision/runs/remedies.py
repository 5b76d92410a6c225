"""Says what helps where a node did not get where it should be. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.apply.model import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.node_plan import Problem

KILLED: Final = "killed"
_AGAIN: Final = "then run the command again: what is done already is not done twice"
_OF_RESULTS: Final = {
    Status.UNREACHABLE.value: f"make the node reachable: ssh to it, as Ansible does it, has to work; {_AGAIN}",
    Status.REFUSED.value: f"nothing was changed on the node: mend what is in the way, {_AGAIN}",
    Status.CANCELED.value: "run the command again: it goes on where it was interrupted",
    Status.WAITING.value: "its turn has not come: run the command again when what it waits for is over",
    Status.UNFINISHED.value: "`grapnel plan` shows what is left; where that does not change, grapnel and the node "
    "disagree: see the log",
    KILLED: "the run was killed or its machine went down: run the command again, it goes on from there",
}
_OUT: Final = "the node stays out of service, and nothing is given to it: "
_FAILED: Final = f"mend what is reported, {_AGAIN}"


def remedy_for(result: str, problems: Sequence[Problem] = (), *, is_out: bool = False) -> str:
    """Return what to do, as one sentence."""
    hints = "; ".join(dict.fromkeys(problem.hint for problem in problems if problem.hint))
    if result == Status.REFUSED.value and hints:
        return hints
    about = _OF_RESULTS.get(result, _FAILED)
    return f"{_OUT}{about}" if is_out else about
