"""Puts nodes together whose plans read the same, and chooses what is spelled out of a fleet in which they do not.

A problem names the node that has it, by the name that the node gives itself: nodes whose problems differ in that alone
have the same one. Pure, and linear in the number of nodes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from provision.apply.model import Assessment, Failure
    from provision.planning.node_plan import NodePlan, Problem

MOST_ROWS: Final = 500  # half a second of layout, and more than anybody reads
_WORD: Final = re.compile(r"\w(?:[\w.-]*\w)?")
_ANY_NODE: Final = "the node"
_ADDRESS: Final = re.compile(
    r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|[\da-f:]*::[\da-f:]*[\da-f]|(?:[\da-f]+:){7}[\da-f]+)(?![\w:])"
)


@dataclass
class AlikeNodes:
    """Nodes with the same plan: as it was made for the first of them, or in words that fit all of them."""

    plan: NodePlan
    refusal: str
    nodes: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """How many rows it takes to spell the plan out."""
        plan = self.plan
        return 1 + sum(map(len, (plan.items, plan.problems, plan.warnings, plan.derived)))


def kinds_of(answers: Mapping[str, Assessment], refusals: Mapping[str, str]) -> list[AlikeNodes]:
    """Return the distinct plans with their nodes, in the order of the first of each.

    ``refusals`` are why nodes are not touched although their plans have no problems.
    """
    found: dict[object, AlikeNodes] = {}
    for node, answer in answers.items():
        own, refusal = answer.plan, refusals.get(node, "")
        names = {node, answer.facts.node.hostname}
        common, told = _for_any_node(own, names), without_names(refusal, names)
        kind = found.setdefault((_shown(common), told), AlikeNodes(own, refusal))
        if _shown(kind.plan) != _shown(own) or kind.refusal != refusal:
            kind.plan, kind.refusal = common, told
        kind.nodes.append(node)
    return list(found.values())


def spelled_out(kinds: Sequence[AlikeNodes]) -> tuple[list[AlikeNodes], list[AlikeNodes]]:
    """Return the kinds that are shown in full, at least one, and those for which there are too many rows.

    Both in their order; where not all of them can be shown, those with problems come before the others.
    """
    first = sorted(range(len(kinds)), key=lambda place: not kinds[place].plan.problems)
    ends = accumulate(kinds[place].rows for place in first)
    shown = {place for count, (place, end) in enumerate(zip(first, ends, strict=True)) if not count or end <= MOST_ROWS}
    return (
        [kind for place, kind in enumerate(kinds) if place in shown],
        [kind for place, kind in enumerate(kinds) if place not in shown],
    )


def _shown(plan: NodePlan) -> tuple[object, ...]:
    return plan.items, plan.problems, plan.warnings, plan.derived


def _for_any_node(plan: NodePlan, names: set[str]) -> NodePlan:
    if not plan.problems and not plan.warnings:
        return plan
    problems, warnings = _generalized(plan.problems, names), _generalized(plan.warnings, names)
    return msgspec.structs.replace(plan, problems=problems, warnings=warnings)


def _generalized(problems: Iterable[Problem], names: set[str]) -> tuple[Problem, ...]:
    return tuple(
        msgspec.structs.replace(each, message=without_names(each.message, names), hint=without_names(each.hint, names))
        for each in problems
    )


def failed_alike(failures: Iterable[tuple[str, Failure]]) -> Iterable[tuple[Failure, list[str]]]:
    """Return the distinct failures with their nodes, in the order of the first of each."""
    alike: dict[tuple[object, ...], list[tuple[str, Failure]]] = {}
    for node, failure in failures:
        key = (failure.status, failure.task, without_name(failure.message, node))
        alike.setdefault(key, []).append((node, failure))
    return [(in_common(those), [node for node, _ in those]) for those in alike.values()]


def in_common(alike: Sequence[tuple[str, Failure]]) -> Failure:
    """Return what failed alike on nodes: as it was told of them, or in words that fit all of them."""
    node, first = alike[0]
    is_same = all(failure.message == first.message for _, failure in alike)
    return first if is_same else replace(first, message=without_name(first.message, node))


def without_name(text: str, node: str) -> str:
    """Return what is said of a node in words that fit others of which the same is true: no name, and no address."""
    return _ADDRESS.sub("ADDRESS", _WORD.sub(lambda word: _ANY_NODE if _is_called(word[0], node) else word[0], text))


def _is_called(word: str, node: str) -> bool:
    """Tell whether a word names a node, such as by the name that its address has in DNS."""
    return word == node or word.startswith(f"{node}.")


def without_names(text: str, names: set[str]) -> str:
    """Return a text in which nodes that are called so are ``the node``."""
    if not any(name in text for name in names):
        return text
    return _WORD.sub(lambda word: _ANY_NODE if word[0] in names else word[0], text)
