"""Every search against one that looks at everything."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plugin.devices.allocation.preference.branches import divide_by_branches
from plugin.devices.allocation.preference.division import CutOff, Division, Effort, Question, worth
from plugin.devices.allocation.preference.masks import divide_by_masks
from plugin.devices.allocation.preference.rough import divide_roughly
from plugin.devices.allocation.preference.search import Limits, divide
from plugin.driver.topology.hierarchy import find_hierarchy
from tests.plugin.allocation.preference.exhaustive import exhaustive_worth

Table = list[list[int]]


def table(count: int, values: list[int]) -> Table:
    """Return a symmetric table from the values of its upper half."""
    taken = iter(values)
    scores = [[0] * count for _ in range(count)]
    for a in range(count):
        for b in range(a + 1, count):
            scores[a][b] = scores[b][a] = next(taken)
    return scores


@st.composite
def scores_of_any_kind(draw: st.DrawFn, most: int = 8) -> Table:
    count = draw(st.integers(1, most))
    points = st.sampled_from([0, 10, 20, 50, 110, 150, 210, 610, 1850])
    return table(count, draw(st.lists(points, min_size=count * count, max_size=count * count)))


@st.composite
def scores_of_trees(draw: st.DrawFn, most: int = 9) -> Table:
    """Each GPU is a path of turns from the root: the longer two paths are the same, the nearer the two."""
    paths = draw(st.lists(st.tuples(*[st.integers(0, 2)] * 3), min_size=1, max_size=most))
    levels = sorted(draw(st.lists(st.integers(0, 60), min_size=4, max_size=4)))

    def score(one: tuple[int, ...], other: tuple[int, ...]) -> int:
        same = next((depth for depth in range(3) if one[depth] != other[depth]), 3)
        return levels[same]

    return [[0 if a == b else score(one, other) for b, other in enumerate(paths)] for a, one in enumerate(paths)]


@st.composite
def questions(draw: st.DrawFn, tables: st.SearchStrategy[Table]) -> Question:
    scores = draw(tables)
    size = draw(st.integers(1, len(scores)))
    required = draw(st.sets(st.integers(0, len(scores) - 1), max_size=size))
    return Question(scores, size, tuple(sorted(required)))


def is_division(question: Question, division: Division) -> bool:
    members = [one for group in division.groups for one in group]
    return (
        sorted([*members, *division.rest]) == list(range(question.count))
        and all(len(group) == question.size for group in division.groups)
        and len(division.rest) == question.remainder
        and set(question.required) <= set(division.groups[0])
    )


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(questions(scores_of_any_kind()))
def test_up_to_eight_gpus_the_answer_is_that_of_an_exhaustive_search(question: Question) -> None:
    found = divide(question, find_hierarchy(question.scores), Limits())
    assert found.cut_off == ""
    assert is_division(question, found.division)
    assert worth(question.scores, found.division) == exhaustive_worth(question)


# The group with the required GPU is worse than the one after it: no bound for the others can be taken from it.
@pytest.mark.slow
@example(Question([[0, 1, 2, 0], [1, 0, 1, 0], [2, 1, 0, 0], [0, 0, 0, 0]], 2, (1,)))
@settings(max_examples=150, deadline=None)
@given(questions(scores_of_trees()))
def test_a_tree_is_divided_as_by_an_exhaustive_search(question: Question) -> None:
    hierarchy = find_hierarchy(question.scores)
    assert hierarchy is not None
    division = divide_by_branches(question, hierarchy, Effort(100_000))
    assert is_division(question, division)
    assert worth(question.scores, division) == exhaustive_worth(question)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(questions(scores_of_trees(most=13)))
def test_larger_trees_are_divided_alike_by_both_exact_searches(question: Question) -> None:
    hierarchy = find_hierarchy(question.scores)
    assert hierarchy is not None
    by_branches = divide_by_branches(question, hierarchy, Effort(1_000_000))
    by_masks = divide_by_masks(question, Effort(1_000_000))
    assert worth(question.scores, by_branches) == worth(question.scores, by_masks)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(questions(scores_of_any_kind(most=20)), st.integers(0, 3000))
def test_a_search_that_is_cut_off_still_answers_and_says_so(question: Question, steps: int) -> None:
    found = divide(question, None, Limits(exact_steps=steps, rough_steps=steps))
    assert is_division(question, found.division)
    assert found.steps <= 2 * steps


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(questions(scores_of_any_kind(most=16)))
def test_a_bounded_answer_is_no_worse_than_neighbours_in_order(question: Question) -> None:
    others = [one for one in range(question.count) if one not in question.required]
    first = question.size - len(question.required)
    in_order = [[*question.required, *others[:first]]]
    in_order += [others[start : start + question.size] for start in range(first, len(others), question.size)]
    whole = tuple(tuple(group) for group in in_order if len(group) == question.size)
    rest = tuple(one for group in in_order if len(group) < question.size for one in group)
    rough = divide_roughly(question, Effort(8000))
    assert worth(question.scores, rough) >= worth(question.scores, Division(whole, rest))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(questions(scores_of_any_kind(most=12)))
def test_a_bounded_answer_never_beats_an_exact_one(question: Question) -> None:
    exact = divide_by_masks(question, Effort(1_000_000))
    assert worth(question.scores, divide_roughly(question, Effort(8000))) <= worth(question.scores, exact)


TWELVE = Question([[0 if a == b else (a * b) % 7 for b in range(12)] for a in range(12)], 3)


def test_a_deadline_that_has_passed_ends_a_search() -> None:
    found = divide(TWELVE, None, Limits(is_late=lambda: True))
    assert found.cut_off == "the time is up"
    assert is_division(TWELVE, found.division)


@pytest.mark.parametrize("steps", [0, 60, 400])
def test_steps_are_never_exceeded(steps: int) -> None:
    effort = Effort(steps)
    with pytest.raises(CutOff, match=f"more than {steps} steps"):
        divide_by_masks(TWELVE, effort)
    assert steps - 55 < effort.used <= steps  # 55 groups of three have one given GPU of twelve


def test_sixteen_gpus_in_a_tree_are_exact_for_every_size() -> None:
    scores = [[0 if a == b else 60 - 10 * (a ^ b).bit_length() for b in range(16)] for a in range(16)]
    for size in range(2, 16):
        assert divide(Question(scores, size), find_hierarchy(scores), Limits()).cut_off == "", size
