from __future__ import annotations

import pytest

from plugin.driver.topology.hierarchy import Hierarchy, find_hierarchy, renumbered


def test_pairs_below_switches_of_two_nodes_are_a_tree() -> None:
    scores = [
        [0 if a == b else 50 if a // 2 == b // 2 else 10 if a // 4 != b // 4 else 20 for b in range(6)]
        for a in range(6)
    ]
    node = Hierarchy(20, (), (Hierarchy(50, (0, 1)), Hierarchy(50, (2, 3))))
    assert find_hierarchy(scores) == Hierarchy(10, (), (node, Hierarchy(50, (4, 5))))


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        pytest.param([], None, id="no GPU"),
        pytest.param([[0]], Hierarchy(0, (0,)), id="one GPU"),
        pytest.param([[0, 0], [0, 0]], Hierarchy(0, (0, 1)), id="nothing is known of two"),
        pytest.param([[0, 9, 1], [9, 0, 9], [1, 9, 0]], None, id="a chain is no tree"),
    ],
)
def test_small_tables(scores: list[list[int]], expected: Hierarchy | None) -> None:
    assert find_hierarchy(scores) == expected


def test_a_part_of_a_tree_has_numbers_of_its_own() -> None:
    tree = Hierarchy(10, (4,), (Hierarchy(50, (0, 1)), Hierarchy(50, (2, 3))))
    assert renumbered(tree, {1: 0, 4: 1}) == Hierarchy(10, (1,), (Hierarchy(50, (0,)),))
    assert renumbered(tree, {}) is None
