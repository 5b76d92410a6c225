"""Chooses the versions that declared branches stand for, on the controller, from the facts of all hosts of the play."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ansible_collections.grapnel.node.plugins.plugin_utils.controller import (
    ControllerAction,
    parsed_facts,
    plain,
    registered,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


class ActionModule(ControllerAction):
    ARGUMENTS: ClassVar = {
        "stacks": {"type": "dict", "required": True},
        "facts": {"type": "str", "required": True},
        "chosen": {"type": "str", "required": True},
    }

    def answer(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Return the versions and the problems, by host; what is wrong with a host's facts its own plan says."""
        hosts = task_vars["ansible_play_hosts_all"]
        facts, chosen = (dict(registered(task_vars, hosts, arguments[name])) for name in ("facts", "chosen"))
        return {"changed": False, **_choose(arguments["stacks"], facts, chosen)}


def _choose(
    stacks: dict[str, Any], facts: Mapping[str, dict[str, Any]], chosen: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
    import msgspec

    from provision.apply.declarations import Declarations
    from provision.declaration.spec.model import StackSpec
    from provision.planning.driver.wanted import follows_branch
    from provision.planning.planner.bundled import declared_bundle

    typed = {host: msgspec.convert(stack, StackSpec) for host, stack in stacks.items()}
    choosing = {
        host: stack
        for host, stack in typed.items()
        if follows_branch(stack.driver) and declared_bundle(stack.driver) is None  # those are refused when planned
    }
    declarations = Declarations(choosing)
    versions: dict[str, dict[str, str]] = {}
    for host, given in chosen.items():
        if host in declarations.stacks and host in given.get("versions", {}):
            versions[host] = plain(given["versions"][host])
            declarations.adopt(host, versions[host]["version"])
    waiting = [host for host in declarations.stacks if host not in versions and host in facts]
    declarations.choose_versions(dict(parsed_facts({host: facts[host] for host in waiting})))
    for host in waiting:
        if host in declarations.reasons:
            version = declarations.stacks[host].driver.version or ""
            versions[host] = {"version": version, "reason": declarations.reasons[host]}
    problems = {host: f"{each.message} ({each.hint})" for host, each in declarations.problems.items()}
    return {"versions": versions, "problems": problems}
