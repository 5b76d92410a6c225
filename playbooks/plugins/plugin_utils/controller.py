"""Actions that run on the controller alone, with the `provision` package in the Python that runs Ansible."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_HINT = "install grapnel into the Python that runs ansible-playbook: {python}"


class ControllerAction(ActionBase):  # type: ignore[misc] # Ansible ships no types
    """Answers from its arguments and from what was registered for hosts; ``ARGUMENTS`` is an argument spec."""

    TRANSFERS_FILES = False
    _requires_connection = False
    ARGUMENTS: ClassVar[dict[str, Any]] = {}

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer; `provision` can be imported while it is made."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(self.ARGUMENTS)
        require_grapnel()
        return {**result, **self.answer(plain(arguments), task_vars or {})}

    @abstractmethod
    def answer(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the task, from plain arguments."""


def registered(task_vars: Mapping[str, Any], hosts: Iterable[str], name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the hosts for which a variable was registered, with its value."""
    for host in hosts:
        value = task_vars["hostvars"][host].get(name)
        if value:
            yield str(host), value


def parsed_facts(given: Mapping[str, dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the hosts with their facts, from what `facts` has returned for each; one with bad facts is left out."""
    from provision.base.errors import GrapnelError  # noqa: PLC0415 - found only after `require_grapnel`
    from provision.declaration.fleet.facts.node import parse_facts  # noqa: PLC0415 - see above

    for host, answer in given.items():
        with contextlib.suppress(GrapnelError):  # the host's own plan says it
            yield host, parse_facts(json.dumps(answer.get("facts")), node=host)


def plain(value: Any) -> Any:
    """Return a value of Python's own types."""
    return json.loads(json.dumps(value))


def require_grapnel() -> None:
    """Make `provision` importable; raises AnsibleActionFail with a hint when it is missing.

    In a checkout the package lies beside the collection and need not be installed.
    """
    checkout = Path(__file__).resolve().parents[3]
    if importlib.util.find_spec("provision") is None and (checkout / "provision" / "planning").is_dir():
        sys.path.append(str(checkout))
    missing = next((name for name in ("provision", "msgspec") if importlib.util.find_spec(name) is None), None)
    if missing:
        raise AnsibleActionFail(f"python package {missing} is missing; " + _HINT.format(python=sys.executable))


def failure(error: Exception) -> dict[str, Any]:
    """Return an error of `provision` as the result of an action, with its hint."""
    hint = getattr(error, "hint", "")
    return {"failed": True, "msg": f"{error}{f' ({hint})' if hint else ''}"}
