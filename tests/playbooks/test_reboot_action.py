"""The action that reboots a node runs Ansible's own one, and passes on only what it is documented to return."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ansible.plugins.loader
import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.loader import action_loader
from ansible_collections.grapnel.node.plugins.action.reboot import ActionModule

PROGRAM = "/usr/bin/python3 -IS /usr/lib/grapnel/driver/grapnel-driver reboot"


@dataclass
class Task:
    args: dict[str, Any] = field(default_factory=dict)

    def copy(self) -> Task:
        return Task(dict(self.args))


@dataclass
class Reboot:
    """Stands for Ansible's loader of actions and for the action that it loads, which answers what a test says."""

    answer: dict[str, Any] | Exception
    name: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)

    def get(self, name: str, task: Task, **_: object) -> Reboot:
        self.name, self.arguments = name, task.args
        return self

    def run(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        assert task_vars == {}
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def ask(reboot: Reboot, **arguments: object) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(action_loader, "get", reboot.get)
        action = ActionModule(Task(arguments), None, None, None, None, ansible.plugins.loader)
        return dict(action.ask({}))


def test_the_nodes_own_program_reboots_it_and_the_time_limit_is_passed_on() -> None:
    reboot = Reboot({"changed": True, "rebooted": True, "elapsed": 31, "failed": False})

    answer = ask(reboot, timeout_s=60)

    assert answer == {"changed": True, "rebooted": True, "elapsed": 31, "failed": False}
    assert reboot.name == "ansible.builtin.reboot"
    assert reboot.arguments == {"reboot_command": PROGRAM, "reboot_timeout": 60}


def test_a_refusal_of_the_program_is_the_failure() -> None:
    words = "Reboot command failed. Error was: ', error: not rebooted: the GPUs are in service'"
    answer = ask(Reboot({"failed": True, "rebooted": False, "msg": words, "start": "2026-11-23", "elapsed": 0}))

    assert (answer["failed"], answer["msg"]) == (True, words)
    assert "start" not in answer


def test_nothing_else_of_an_answer_is_passed_on() -> None:
    answer = ask(Reboot({"rebooted": True, "ansible_facts": {"driver_change": {}}, "add_host": {}, "results": []}))

    assert answer == {"rebooted": True}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"rebooted": "yes"}, "the answer of ansible.builtin.reboot was refused: its rebooted is str, not bool"),
        (RecursionError(), r"ansible.builtin.reboot has failed \(RecursionError\)"),
    ],
    ids=["a text for a truth", "an exception of any kind"],
)
def test_what_a_node_answers_fails_that_node_alone(answer: Any, words: str) -> None:  # noqa: ANN401 - any answer
    with pytest.raises(AnsibleActionFail, match=words):
        ask(Reboot(answer))


def test_a_node_that_does_not_answer_is_unreachable_as_ever() -> None:
    with pytest.raises(AnsibleConnectionFailure):
        ask(Reboot(AnsibleConnectionFailure("no route to host")))
