"""The condition of the Node that says whether it is as declared. Pure. Reasons: `docs/contracts/node-state`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.drift.result import Verdict
from plugin.publication.node_object.conditions import AS_DECLARED, bounded
from plugin.publication.node_object.model import FALSE, TRUE, UNKNOWN, Condition

if TYPE_CHECKING:
    from plugin.drift.model import Difference
    from plugin.drift.result import Result


def drift_condition(result: Result) -> Condition:
    """Return the condition: which differences there are, and what mends them."""
    if result.verdict is Verdict.NOT_COMPARED:
        return Condition(AS_DECLARED, UNKNOWN, "NotCompared", bounded(result.reason))
    if result.verdict is Verdict.AS_DECLARED:
        return Condition(AS_DECLARED, TRUE, "AsDeclared", "nothing differs from what grapnel apply brought about")
    count = len(result.differences)
    noun = "difference" if count == 1 else "differences"
    mends = "; ".join(dict.fromkeys(f"`{each.mend}`" for each in result.differences))
    return Condition(
        AS_DECLARED,
        FALSE,
        "Drifted",
        bounded(f"{count} {noun}, to be mended by {mends}: {_listed(result.differences)}"),
    )


def _listed(differences: tuple[Difference, ...]) -> str:
    return "; ".join(f"{each.kind.value} {each.name} is {each.found}, declared {each.declared}" for each in differences)
