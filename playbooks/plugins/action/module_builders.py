"""Decides, on the controller, which hosts of the play build kernel modules for others, as `grapnel apply` does."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, ClassVar

from ansible_collections.grapnel.node.plugins.plugin_utils.controller import (
    ControllerAction,
    parsed_facts,
    plain,
    registered,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_PLACE = ("ansible_host", "ansible_ssh_host", "ansible_connection", "ansible_port", "ansible_ssh_port")


class ActionModule(ControllerAction):
    ARGUMENTS: ClassVar = {
        "stacks": {"type": "dict", "required": True},
        "facts": {"type": "str", "required": True},
        "planned": {"type": "str", "required": True},
        "before": {"type": "dict", "default": {}},
    }

    def answer(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Return the next round, for the hosts of this batch."""
        batch, all_hosts = set(task_vars["ansible_play_batch"]), task_vars["ansible_play_hosts"]
        planned = dict(registered(task_vars, all_hosts, arguments["planned"]))
        hosts = [host for host in arguments["stacks"] if host in batch and "plan" in planned.get(host, {})]
        drivers = {host: plain(planned[host]["plan"]["roles"].get("driver")) for host in hosts}
        if not any(driver and driver["driver_stage"] for driver in drivers.values()):
            return {
                "changed": False,
                "providers": {},
                "tried": [],
                "handover": {},
                "refused": {},
                "machines": {},
                "notes": [],
            }
        facts = dict(registered(task_vars, hosts, arguments["facts"]))
        expects_more = any(host not in planned for host in all_hosts)
        sources = task_vars.get("ansible_inventory_sources") or []
        places = {host: {name: task_vars["hostvars"][host].get(name) for name in _PLACE} for host in hosts}
        decided = _decide(arguments, facts, drivers, sources, places=places, expects_more=expects_more)
        return {"changed": False, **decided}


def _decide(
    arguments: Mapping[str, Any],
    facts: Mapping[str, dict[str, Any]],
    drivers: Mapping[str, Any],
    inventories: list[str],
    *,
    places: Mapping[str, Mapping[str, object]],
    expects_more: bool,
) -> dict[str, Any]:
    import msgspec

    from provision.apply.declarations import Declarations
    from provision.apply.model import Assessment
    from provision.apply.supply.rounds import Round, next_round
    from provision.apply.supply.supply import Supply
    from provision.cli.session.context import open_runfiles, open_shelf
    from provision.declaration.fleet.endpoint import network_endpoints, parse_endpoint
    from provision.declaration.spec.model import StackSpec
    from provision.planning.node_plan import DriverVariables, NodePlan, Roles

    stacks = {host: msgspec.convert(stack, StackSpec) for host, stack in arguments["stacks"].items()}
    shelf = open_shelf(inventories, os.environ)
    shelf.prune(time.time())
    answers = {}
    for host, found in parsed_facts(facts):
        driver = msgspec.convert(drivers[host], DriverVariables) if drivers[host] else None
        answers[host] = Assessment(found, NodePlan(node=host, roles=Roles(driver=driver)))
    endpoints = network_endpoints({host: parse_endpoint(host, variables) for host, variables in places.items()})
    supply = Supply(
        declarations=Declarations(stacks), shelf=shelf, runfiles=open_runfiles(os.environ), endpoints=endpoints
    )
    before = msgspec.convert(arguments["before"], Round)
    decided: dict[str, Any] = msgspec.to_builtins(next_round(supply, answers, before, expects_more=expects_more))
    return decided
