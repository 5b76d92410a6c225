"""Renders plans as JSON, for scripts: each plan as the node-plan contract has it, in the inventory's order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from provision.apply.model import Failure
from provision.base.printable import printable_json
from provision.planning.node_plan import shown_plan
from provision.report.planned.diffs import diffs_document

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from provision.report.planned.plans import Answers

SCHEMA = "grapnel.dev/plans/v1alpha1"


def plans_document(
    answers: Answers,
    rollout: Mapping[str, object] | None = None,
    builds: Sequence[object] | None = None,
    *,
    with_files: bool = False,
) -> str:
    """Return ``{"schema", "plans": [node plan], "failures": [{node, status, task, message, output}]}``.

    Texts of files that not everybody on a node may read are withheld. The same facts, declaration and node state give
    the same bytes. ``rollout`` and ``builds`` are added under their names, and how files change under ``files``.
    """
    plans = [msgspec.to_builtins(shown_plan(one.plan)) for one in answers.values() if not isinstance(one, Failure)]
    failures = [
        {
            "node": node,
            "status": one.status.value,
            "task": one.task,
            "message": one.message,
            "output": list(one.tail),
        }
        for node, one in answers.items()
        if isinstance(one, Failure)
    ]
    document: dict[str, object] = {"schema": SCHEMA, "plans": plans, "failures": failures}
    if rollout is not None:
        document["rollout"] = rollout
    if builds is not None:
        document["builds"] = builds
    if with_files:
        document["files"] = diffs_document(answers)
    return printable_json(document)
