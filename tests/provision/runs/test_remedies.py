"""The command beside a remedy does what the remedy says, and nothing else."""

from __future__ import annotations

import shlex

import pytest

from provision.cli import whole_parser
from provision.planning.node_plan import Problem
from provision.report.runs.remedies import Invocation, command_for
from provision.rollout.interface.pause import RESUME
from provision.rollout.status.advice import led, unled
from provision.rollout.status.situations import GIVE_UP, SITUATIONS

EDITED = Problem(code="hand-edited", message="it was edited", hint="grapnel apply --force")
OTHER = Problem(code="driver", message="it is not there", hint="declare another one")
RUN = ("apply", "-i", "inventory.yaml")


@pytest.mark.parametrize(
    ("command", "nodes", "problems", "words"),
    [
        pytest.param(RUN, ["n1", "n2"], [EDITED, EDITED], (*RUN, "n1", "n2", "--force"), id="edited alone"),
        pytest.param((*RUN, "n2,n1"), ["n1"], [EDITED], (*RUN, "n2,n1", "--force"), id="named already"),
        pytest.param(RUN, [f"n{each}" for each in range(400)], [EDITED], (*RUN, "--force"), id="many nodes"),
        pytest.param((*RUN, "--force"), ["n1"], [EDITED], (*RUN, "--force"), id="forced already"),
        pytest.param(RUN, ["n1"], [EDITED, OTHER], RUN, id="something else is in the way, too"),
        pytest.param(RUN, ["n1"], [], RUN, id="nothing is in the way"),
        pytest.param(("remove", "n1"), ["n1"], [EDITED], ("remove", "n1"), id="a verb that forces nothing"),
    ],
)
def test_edited_files_are_overwritten_where_nothing_else_is_in_the_way(
    command: tuple[str, ...], nodes: list[str], problems: list[Problem], words: tuple[str, ...]
) -> None:
    assert command_for(command, nodes, problems) == words


HERE = Invocation(("-i", "inventory.yaml", "--context", "stage"), "gpu*")
FEW, MANY = ("n1", "n2"), [f"n{each}" for each in range(21)]


HERE_WORDS = "-i inventory.yaml --context stage"


@pytest.mark.parametrize(
    ("text", "nodes", "complete"),
    [
        pytest.param("`grapnel apply`", FEW, f"`grapnel apply {HERE_WORDS} n1 n2`", id="few"),
        pytest.param("`grapnel apply`", MANY, f"`grapnel apply {HERE_WORDS} 'gpu*'`", id="many"),
        pytest.param("`grapnel retry NODE`", FEW, f"`grapnel retry n1 n2 {HERE_WORDS}`", id="named"),
        pytest.param("`grapnel retry NODE`", MANY, f"`grapnel retry NODE {HERE_WORDS}`", id="too many to be named"),
        pytest.param("`grapnel retry NODE`", ["a;b"], f"`grapnel retry 'a;b' {HERE_WORDS}`", id="quoted"),
        pytest.param("`grapnel resume` ends it", (), f"`grapnel resume {HERE_WORDS}` ends it", id="for no node"),
        pytest.param("`kubectl uncordon NODE`, if", ["n1"], "`kubectl uncordon n1`, if", id="another program"),
        pytest.param("`grapnel-driver status`", ["n1"], "`grapnel-driver status`", id="on the node"),
        pytest.param("`grapnel version`", ["n1"], "`grapnel version`", id="a verb without these options"),
    ],
)
def test_commands_find_the_same_nodes(text: str, nodes: list[str], complete: str) -> None:
    assert HERE.complete(text, nodes) == complete


def test_a_path_that_reads_like_a_placeholder_is_kept() -> None:
    assert Invocation(("-i", "NODE.yaml")).complete("`grapnel retry NODE`", ["n1"]) == "`grapnel retry n1 -i NODE.yaml`"


def offered() -> set[str]:
    texts = [each.todo for situation in SITUATIONS for each in (situation, led(situation), unled(situation))]
    return {command for text in (*texts, GIVE_UP, RESUME) for command in HERE.commands(text, ["n1"])}


@pytest.mark.parametrize("command", sorted(offered()))
def test_every_command_that_is_offered_is_one(command: str) -> None:
    args = whole_parser().parse_args(shlex.split(command)[1:])

    assert args.inventory == ["inventory.yaml"]
    assert getattr(args, "limit", "") == "n1" or command.startswith("grapnel resume")


def test_commands_are_found_in_what_is_offered() -> None:
    assert {command.split()[1] for command in offered()} >= {"apply", "plan", "retry", "resume", "rollback", "abandon"}
