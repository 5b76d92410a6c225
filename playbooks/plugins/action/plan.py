"""Plans one node on the controller: facts and effective declaration in, node plan out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, ClassVar

from ansible_collections.grapnel.node.plugins.plugin_utils.checked import refuse_planted_facts
from ansible_collections.grapnel.node.plugins.plugin_utils.controller import ControllerAction, failure

_DRIVER = "driver"
_BY_VERB = "use `grapnel apply` for these nodes, which stages their drivers from the bundle"


class ActionModule(ControllerAction):
    ARGUMENTS: ClassVar = {
        "facts": {"type": "dict", "required": True},
        "stack": {"type": "dict", "required": True},
        "version": {"type": "dict", "default": {}},
        "version_problem": {"type": "str", "default": ""},
        "payload": {"type": "str", "default": ""},
        "stack_file": {"type": "str", "default": ""},
        "roles": {
            "type": "list",
            "elements": "str",
            "choices": ["driver", "runtime", "tuning", "kubelet", "node_daemon"],
            "default": [],
        },
        "force": {"type": "bool", "default": False},
    }

    def answer(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Return the plan; fail with every problem."""
        refuse_planted_facts(task_vars)
        if arguments["version_problem"] and _DRIVER in (arguments["roles"] or [_DRIVER]):
            return {"failed": True, "msg": arguments["version_problem"]}
        return _plan_within_limits(str(task_vars["inventory_hostname"]), arguments)


def _plan_within_limits(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the plan or a failure: what is wrong with the facts of one node ends no other node's plan."""
    from provision.apply.planner_process.errors import LimitError
    from provision.apply.planner_process.limits import limit_this_process
    from provision.base.bug import describe_bug

    doing = f"planning {name}"
    try:
        with limit_this_process(doing):  # Ansible's worker for this task and this node
            return _plan(name, arguments)
    except LimitError as error:
        return failure(error)
    except Exception as error:  # noqa: BLE001 - a bug about this node
        return {"failed": True, "msg": describe_bug(error, doing)}


def _plan(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    import msgspec

    from provision.base.errors import GrapnelError, UsageError
    from provision.declaration.fleet.facts.node import parse_facts
    from provision.declaration.spec.model import StackSpec
    from provision.planning.node_plan import Role
    from provision.planning.planner.bundled import declared_bundle
    from provision.planning.planner.mig import expected_mig
    from provision.planning.planner.plan import plan_node
    from provision.planning.planner.runtime.hand_edits import overwrite_edits
    from provision.planning.supply.payload.place import payload_folder
    from provision.planning.supply.payload.store import load_payload

    try:
        roles = tuple(map(Role, arguments["roles"])) or tuple(Role)
        asked = Path(arguments["payload"]) if arguments["payload"] else None
        payload = load_payload(payload_folder(asked, os.environ, Path(arguments["stack_file"])))
        facts = parse_facts(json.dumps(arguments["facts"]), node=name)
        stack, reason = arguments["stack"], ""
        if arguments["version"]:
            stack["driver"]["version"], reason = arguments["version"]["version"], arguments["version"]["reason"]
        typed = msgspec.convert(stack, StackSpec)
        typed = overwrite_edits(typed) if arguments["force"] else typed
        if declared_bundle(typed.driver) is not None:
            return failure(UsageError("driver.source is bundle, which playbooks do not hand to nodes", hint=_BY_VERB))
        plan = plan_node(facts, typed, payload, name=name, version_reason=reason, roles=roles)
    except GrapnelError as error:
        return failure(error)
    if plan.problems:
        hints = [f"{each.message} ({each.hint})" if each.hint else each.message for each in plan.problems]
        return {"failed": True, "msg": "; ".join(hints)}
    values = json.loads(msgspec.json.encode(plan))  # lists, as anybody's playbook expects them, and no tuples
    # To be registered, and not a fact, which a node could set. Files in it may hold
    # passwords, so that it is not printed with -v.
    expected = expected_mig(facts, typed)
    return {"changed": False, "plan": values, "expected_mig": expected, "_ansible_verbose_override": True}
