"""Plans as JSON, for scripts: each plan as the node-plan contract has it, in the inventory's order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from provision.apply.model import Failure

if TYPE_CHECKING:
    from provision.report.plans import Answers

SCHEMA = "grapnel.dev/plans/v1alpha1"


def plans_document(answers: Answers) -> str:
    """Return ``{"schema", "plans": [node plan], "failures": [{node, status, task, message, output}]}``.

    The same facts and declaration give the same bytes.
    """
    plans = [msgspec.to_builtins(one.plan) for one in answers.values() if not isinstance(one, Failure)]
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
    return json.dumps({"schema": SCHEMA, "plans": plans, "failures": failures}, indent=2, ensure_ascii=False)
