"""Says what helps where a node did not get where it should be, and completes the commands that are offered. Pure."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.apply.model import Status
from provision.planning.node_plan import HAND_EDITED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.planning.node_plan import Problem

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
_MOST_NODES: Final = 20  # in a command; where more are in the same trouble it is for all nodes of the run
_FAILED: Final = f"mend what is reported, {_AGAIN}"
_NODE: Final = "NODE"
_FOR_ALL: Final = frozenset({"apply", "plan"})  # unless nodes are named; the others say where theirs stand
_COMPLETED: Final = _FOR_ALL | {"abandon", "explain", "reboot", "resume", "retry", "rollback", "skip"}
_OFFERED: Final = re.compile(r"`grapnel ([a-z]+)([^`]*)`")


def remedy_for(result: str, problems: Sequence[Problem] = (), *, is_out: bool = False) -> str:
    """Return what to do, as one sentence."""
    hints = "; ".join(dict.fromkeys(problem.hint for problem in problems if problem.hint))
    if result == Status.REFUSED.value and hints:
        return hints
    about = _OF_RESULTS.get(result, _FAILED)
    return f"{_OUT}{about}" if is_out else about


def command_for(command: Sequence[str], nodes: Sequence[str], problems: Sequence[Problem] = ()) -> tuple[str, ...]:
    """Return the words after ``grapnel`` that do what the remedy of these nodes says.

    It is the command of the run. Where only edited files are in the way, it overwrites them, on these nodes alone.
    """
    if command[:1] != ("apply",) or {problem.code for problem in problems} != {HAND_EDITED} or "--force" in command:
        return tuple(command)
    named = {name for word in command for name in word.split(",")}
    added = () if named.issuperset(nodes) or len(nodes) > _MOST_NODES else nodes
    return (*command, *added, "--force")


@dataclass(frozen=True, slots=True)
class Invocation:
    """How grapnel was called: ``options`` with which other verbs find the same nodes, and the ``limit``, if any.

    Texts name commands between backquotes, such as ```grapnel retry NODE```. Everything else in them stays as it is.
    """

    options: tuple[str, ...] = ()
    limit: str = ""

    def complete(self, text: str, nodes: Sequence[str], *, is_whole: bool = False) -> str:
        """Return a text with its commands complete, for these nodes.

        Where they are too many to be named, NODE stays, and an `apply` is for all that the invocation selects. So it is
        where ``is_whole``: some of the nodes belong to a domain, which is changed as one.
        """
        if len(nodes) > _MOST_NODES:
            return self.template(text, _NODE, "")
        named = shlex.join(nodes)
        return self.template(text, named, "" if is_whole else named)

    def template(self, text: str, named: str, limit: str) -> str:
        """Return a text with its commands complete: ``named`` for NODE, and ``limit`` for an `apply`, both quoted.

        An empty ``limit`` is that of the invocation.
        """
        options = [shlex.join(self.options)] if self.options else []
        limit = limit or (shlex.quote(self.limit) if self.limit else "")

        def completed(found: re.Match[str]) -> str:
            verb, words = found[1], found[2].replace(_NODE, named)
            if verb not in _COMPLETED:
                return f"`grapnel {verb}{words}`"
            limits = [limit] if limit and verb in _FOR_ALL else []
            return f"`{' '.join([f'grapnel {verb}{words}', *options, *limits])}`"

        pieces, at = [], 0
        for found in _OFFERED.finditer(text):
            pieces += [text[at : found.start()].replace(_NODE, named), completed(found)]
            at = found.end()
        return "".join([*pieces, text[at:].replace(_NODE, named)])

    def commands(self, text: str, nodes: Sequence[str], *, is_whole: bool = False) -> tuple[str, ...]:
        """Return the complete commands of a text, in its order."""
        complete = self.complete(text, nodes, is_whole=is_whole)
        return tuple(found[0].strip("`") for found in _OFFERED.finditer(complete) if found[1] in _COMPLETED)


BARE: Final = Invocation()
