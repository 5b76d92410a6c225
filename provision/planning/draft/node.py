"""Drafts the declaration of one node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.planning.draft.choose import OFF
from provision.planning.draft.driver import describe_driver
from provision.planning.draft.model import NodeDraft, Plan, stack_of, values_of
from provision.planning.draft.plugin import describe_plugin
from provision.planning.draft.runtime import describe_runtime

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts


def draft_node(facts: NodeFacts, plan: Plan) -> NodeDraft:
    """Return what can be said about a node as it is, and what apply would still do under it."""
    driver, runtime = describe_driver(facts, plan), describe_runtime(facts, plan)
    plugin = describe_plugin(facts, plan, (*driver.said, *runtime.said))
    sections = (driver, runtime, plugin)
    said = tuple(each for section in sections for each in section.said)
    stack = stack_of({**OFF, **values_of(said)})
    return NodeDraft(
        said=said,
        stack=stack,
        plan=plan(facts, stack),
        unsaid=tuple(each for section in sections for each in section.unsaid),
        offers=tuple(each for section in sections for each in section.offers),
    )
