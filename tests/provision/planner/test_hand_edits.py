"""A file of ours that somebody edited: the node is left alone, or what was edited is kept before it is overwritten."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from provision.declaration.fleet.facts.node import Engine, NodeFacts
from provision.planning.engines import crio
from provision.planning.engines.containerd.imports import DROP_IN_PATH
from provision.planning.planner.runtime.hand_edits import overwrite_edits
from provision.planning.render.hook_config import HOOK_CONFIG_PATH
from tests.provision.samples import (
    RUNNING,
    configured,
    edit_file,
    edit_file_state,
    make_facts,
    make_stack,
    plan,
    replace,
    simulate_apply,
    steps,
    text_of,
)

FORCED = overwrite_edits(make_stack())


def edited(
    old: str = 'runtime_type = "io.containerd.runc.v2"\nbase', new: str = 'runtime_type = "x"\nbase'
) -> NodeFacts:
    """Return a configured node on which somebody changed a line of our drop-in."""
    facts = configured()
    text = text_of(facts, DROP_IN_PATH)
    assert old in text
    return edit_file(facts, DROP_IN_PATH, text.replace(old, new))


def kept_in(items: list[tuple[str, str]]) -> str:
    (place,) = [target for _, target in items if ".edited-" in target]
    return place


DIFFERENCES = {
    "another value": (edited(), "runtimes.nvidia.runtime_type is changed"),
    "a setting more": (
        edited("base_runtime_spec", "snapshotter = 'x'\nbase_runtime_spec"),
        "nvidia.snapshotter is added",
    ),
    "a setting less": (edited('bin_dir = "/usr/lib/cni"\n', ""), "cni.bin_dir is missing"),
    "no TOML any more": (edited("version = 2", "version = "), "it differs from line 3 on"),
}


@pytest.mark.parametrize(("facts", "difference"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_a_drop_in_that_somebody_edited_is_refused_with_what_differs(facts: NodeFacts, difference: str) -> None:
    result = plan(facts)

    (problem,) = result.problems
    assert problem.code == "hand-edited"
    assert problem.message.startswith(f"{DROP_IN_PATH} on {facts.node.hostname} was edited after grapnel wrote it: ")
    assert problem.message.endswith(difference)
    assert "--force" in problem.hint
    assert result.roles.runtime is None


def test_what_else_would_be_done_is_shown_beside_the_problem() -> None:
    """An edited file hid a file of a wrong mode, which was seen by force alone."""
    facts = edit_file_state(edited(), HOOK_CONFIG_PATH, mode="0600")

    result = plan(facts)

    assert [problem.code for problem in result.problems] == ["hand-edited"]
    assert steps(result.items) == [("write", HOOK_CONFIG_PATH)]
    assert result.roles.runtime is None


def test_a_value_that_somebody_wrote_is_not_told() -> None:
    (problem,) = plan(edited(new='runtime_type = "hunter2hunter2"\nbase')).problems

    assert "hunter2" not in problem.message + problem.hint


def test_a_comment_alone_is_no_edit() -> None:
    facts = configured()

    result = plan(edit_file(facts, DROP_IN_PATH, f"{text_of(facts, DROP_IN_PATH)}# why\n"))

    assert steps(result.items) == [("write", DROP_IN_PATH)]


def test_by_force_the_edited_file_is_kept_and_written_again() -> None:
    facts = edit_file_state(edited(), DROP_IN_PATH, mode="0600")
    before = text_of(facts, DROP_IN_PATH)

    result = plan(facts, FORCED)
    after = simulate_apply(facts, result)

    place = kept_in(steps(result.items))
    assert steps(result.items) == [("keep", place), ("write", DROP_IN_PATH), ("restart", "containerd.service")]
    assert PurePosixPath(place).parent == PurePosixPath("/etc/containerd")  # an import may be all of conf.d
    assert not place.endswith(".toml")
    assert (text_of(after, place), after.files[place].mode) == (before, "0600")
    assert plan(after, FORCED).is_empty
    assert plan(after).is_empty


def test_a_run_that_was_killed_after_it_kept_the_edited_file_goes_on() -> None:
    facts = edited()
    place = kept_in(steps(plan(facts, FORCED).items))
    halfway = edit_file(facts, place, text_of(facts, DROP_IN_PATH))

    after = simulate_apply(halfway, plan(halfway, FORCED))

    assert plan(after).is_empty
    assert text_of(after, place) == text_of(facts, DROP_IN_PATH)


def test_what_somebody_else_wrote_at_our_place_is_kept_without_being_asked_for() -> None:
    toolkit = 'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]\nruntime_type = "x"\n'

    result = plan(edit_file(configured(), DROP_IN_PATH, toolkit))

    place = kept_in(steps(result.items))
    assert steps(result.items) == [("keep", place), ("write", DROP_IN_PATH), ("restart", "containerd.service")]
    assert result.roles.runtime is not None
    assert result.roles.runtime.runtime_files[0].content == toolkit


def test_the_file_of_a_former_release_is_brought_up_to_date_without_a_restart() -> None:
    facts = configured()
    _, _, body = text_of(facts, DROP_IN_PATH).split("\n", 2)
    former = f"# managed by grapnel: the next apply puts back what is changed here\n{body}"

    assert steps(plan(edit_file(facts, DROP_IN_PATH, former)).items) == [("write", DROP_IN_PATH)]


def test_an_edited_file_of_cri_o_is_kept_outside_of_the_folder_of_which_it_reads_every_file() -> None:
    stack = make_stack(driver={"enabled": False}, runtime={"engine": "crio"})
    engine = Engine(binary="/usr/bin/crio", version="1.36.3")
    facts = replace(make_facts(engines={"crio": engine}), services={"crio.service": RUNNING})
    facts = simulate_apply(facts, plan(facts, stack))
    text = text_of(facts, crio.DROP_IN_PATH).replace("hooks.d", "hooks.e")

    result = plan(edit_file(facts, crio.DROP_IN_PATH, text), overwrite_edits(stack))

    assert PurePosixPath(kept_in(steps(result.items))).parent == PurePosixPath("/etc/crio")
    assert [problem.code for problem in plan(edit_file(facts, crio.DROP_IN_PATH, text), stack).problems] == [
        "hand-edited"
    ]
