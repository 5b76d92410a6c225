"""Scores that form a tree: GPUs below switches, below host bridges, below NUMA nodes. Pure.

In a tree every two GPUs of two branches have the same score, so that branches of the same shape are alike. A search
that knows it looks at one of them instead of at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Hierarchy:
    """A branch: two GPUs that are not both in the same sub-branch score `score`. `gpus` hang on it directly."""

    score: int
    gpus: tuple[int, ...]
    branches: tuple[Hierarchy, ...] = ()


def find_hierarchy(scores: Sequence[Sequence[int]]) -> Hierarchy | None:
    """Return the tree of a symmetric table of scores, None where they form none."""
    return _branch(list(range(len(scores))), scores) if scores else None


def _branch(members: list[int], scores: Sequence[Sequence[int]]) -> Hierarchy | None:
    lowest = min((scores[a][b] for a in members for b in members if a < b), default=0)
    parts = _parts(members, scores, lowest)
    if len(parts) == 1 and len(members) > 1:
        return None
    branches = []
    for part in parts:
        if len(part) > 1:
            branch = _branch(part, scores)
            if branch is None:
                return None
            branches.append(branch)
    return Hierarchy(lowest, tuple(part[0] for part in parts if len(part) == 1), tuple(branches))


def _parts(members: list[int], scores: Sequence[Sequence[int]], lowest: int) -> list[list[int]]:
    """Divide into sets between which there is nothing better than the lowest score."""
    left, parts = members, []
    while left:
        part, edge = {left[0]}, [left[0]]
        while edge:
            row = scores[edge.pop()]
            reached = [one for one in left if one not in part and row[one] > lowest]
            part.update(reached)
            edge.extend(reached)
        parts.append([one for one in left if one in part])
        left = [one for one in left if one not in part]
    return parts


def renumbered(hierarchy: Hierarchy, numbers: Mapping[int, int]) -> Hierarchy | None:
    """Return the tree of some of its GPUs under other numbers, without branches that have none of them."""
    gpus = tuple(numbers[gpu] for gpu in hierarchy.gpus if gpu in numbers)
    branches = (renumbered(branch, numbers) for branch in hierarchy.branches)
    left = tuple(branch for branch in branches if branch is not None)
    return Hierarchy(hierarchy.score, gpus, left) if gpus or left else None
