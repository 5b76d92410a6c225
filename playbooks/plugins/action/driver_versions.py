"""Chooses the versions that declared branches stand for, on the controller, from the facts of all hosts of the play."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from ansible.plugins.action import ActionBase

from ansible_collections.grapnel.node.plugins.plugin_utils.controller import require_grapnel

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ARGUMENTS = {
    "stacks": {"type": "dict", "required": True},
    "facts": {"type": "str", "required": True},
    "chosen": {"type": "str", "required": True},
}


class ActionModule(ActionBase):  # type: ignore[misc] # Ansible ships no types
    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the versions and the problems, by host; what is wrong with a host's facts its own plan says."""
        task_vars = task_vars or {}
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(_ARGUMENTS)
        require_grapnel()
        hosts = [str(host) for host in task_vars["ansible_play_hosts_all"]]
        registered = {
            kind: dict(_registered(task_vars["hostvars"], hosts, arguments[kind])) for kind in ("facts", "chosen")
        }
        return {**result, "changed": False, **_choose(_plain(arguments["stacks"]), **registered)}


def _registered(hostvars: Mapping[str, Any], hosts: Iterable[str], name: str) -> Iterable[tuple[str, dict[str, Any]]]:
    for host in hosts:
        value = hostvars[host].get(name)
        if value:
            yield host, value


def _plain(value: Any) -> Any:  # noqa: ANN401 - any JSON; Ansible's strings carry their origin, which no parser expects
    return json.loads(json.dumps(value))


def _choose(
    stacks: dict[str, Any], facts: Mapping[str, dict[str, Any]], chosen: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
    import msgspec  # noqa: PLC0415 - found only after `require_grapnel`

    from provision.apply.declarations import Declarations  # noqa: PLC0415 - see above
    from provision.driver.wanted import follows_branch  # noqa: PLC0415 - see above
    from provision.spec.model import StackSpec  # noqa: PLC0415 - see above

    typed = {host: msgspec.convert(stack, StackSpec) for host, stack in stacks.items()}
    declarations = Declarations({host: stack for host, stack in typed.items() if follows_branch(stack.driver)})
    versions: dict[str, dict[str, str]] = {}
    for host, registered in chosen.items():
        if host in declarations.stacks and host in registered.get("versions", {}):
            versions[host] = _plain(registered["versions"][host])
            declarations.adopt(host, versions[host]["version"])
    waiting = [host for host in declarations.stacks if host not in versions and host in facts]
    declarations.choose_versions(dict(_parsed(facts, waiting)))
    for host in waiting:
        if host in declarations.reasons:
            version = declarations.stacks[host].driver.version or ""
            versions[host] = {"version": version, "reason": declarations.reasons[host]}
    problems = {host: f"{each.message} ({each.hint})" for host, each in declarations.problems.items()}
    return {"versions": versions, "problems": problems}


def _parsed(facts: Mapping[str, dict[str, Any]], hosts: Iterable[str]) -> Iterable[tuple[str, Any]]:
    from provision.errors import GrapnelError  # noqa: PLC0415 - see above
    from provision.fleet.facts import parse_facts  # noqa: PLC0415 - see above

    for host in hosts:
        with contextlib.suppress(GrapnelError):  # the host's own plan says it
            yield host, parse_facts(json.dumps(facts[host].get("facts")), node=host)
