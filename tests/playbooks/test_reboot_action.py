"""The action that reboots a node runs Ansible's own one, and passes on only what it is documented to return."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import ansible.plugins.loader
import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.loader import action_loader
from ansible_collections.grapnel.node.plugins.action.reboot import ActionModule

PROGRAM = "/usr/lib/grapnel/driver/grapnel-driver reboot"


BOOT = "4f2a1c0e-6f0b-4b6e-9d0a-1f6f6c1b2a3d"


@dataclass
class Task:
    args: dict[str, Any] = field(default_factory=dict)
    check_mode: bool = False

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
def test_what_a_node_answers_fails_that_node_alone(answer: Any, words: str) -> None:
    with pytest.raises(AnsibleActionFail, match=words):
        ask(Reboot(answer))


def test_a_node_that_does_not_answer_is_unreachable_as_ever() -> None:
    with pytest.raises(AnsibleConnectionFailure):
        ask(Reboot(AnsibleConnectionFailure("no route to host")))


@dataclass
class Node:
    """Answers the module that looks at a node: whether it is in another boot than ``BOOT``, or why it stays in it."""

    looks: list[dict[str, Any]]
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def execute(self, module: str, arguments: dict[str, Any], _task_vars: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((module, arguments))
        return self.looks.pop(0)


def ask_once(reboot: Reboot, *looks: dict[str, Any], check_mode: bool = False, boot: str = BOOT) -> dict[str, Any]:
    node = Node([*looks])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(action_loader, "get", reboot.get)
        task = Task({"boot_id": boot, "timeout_s": 60}, check_mode)
        action = ActionModule(task, None, None, None, None, ansible.plugins.loader)
        patch.setattr(action, "execute", node.execute)
        answer = dict(action.ask({}))
    assert node.asked == [("grapnel.node.reboot", {"boot_id": BOOT})] * len(node.asked)
    return answer


THERE, GONE = {"rebooted": False, "changed": False}, {"rebooted": True, "changed": False, "state": "running"}


def test_a_node_in_that_boot_is_rebooted_and_looked_at_again() -> None:
    reboot = Reboot({"changed": True, "rebooted": True, "elapsed": 31})

    answer = ask_once(reboot, THERE, GONE)

    assert answer == {"changed": True, "rebooted": True, "elapsed": 31, "state": "running"}
    words = shlex.split(reboot.arguments["reboot_command"])
    assert (words[:2], words[-1]) == (["/bin/sh", "-c"], BOOT)


def test_the_boot_that_is_to_end_is_looked_at_by_what_ends_it(tmp_path: Path) -> None:
    """Without Python: RHEL 8 has no /usr/bin/python3."""
    reboot = Reboot({"changed": True, "rebooted": True})
    ask_once(reboot, THERE, GONE)
    words = shlex.split(reboot.arguments["reboot_command"])
    systemctl = tmp_path / "systemctl"
    systemctl.write_text('#!/bin/sh\necho "$0 $@"\n')
    systemctl.chmod(0o755)
    running = Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    # With the folder of the stand-in alone, no other systemctl can be found.
    run = partial(subprocess.run, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    other, same = run(words), run([*words[:-1], running])

    assert (other.returncode, other.stdout, other.stderr) == (1, "", "it was rebooted just now\n")
    assert (same.returncode, same.stdout) == (0, f"{systemctl} --no-block reboot\n")


@pytest.mark.parametrize(
    ("looks", "check_mode", "expected"),
    [
        pytest.param([GONE], False, GONE, id="it has left that boot"),
        pytest.param([{"failed": True, "msg": "in use"}], False, {"failed": True, "msg": "in use"}, id="it is in use"),
        pytest.param([THERE], True, THERE, id="check mode"),
    ],
)
def test_a_node_is_not_rebooted(looks: list[dict[str, Any]], check_mode: bool, expected: dict[str, Any]) -> None:  # noqa: FBT001 - a column
    reboot = Reboot(AssertionError("it was rebooted"))

    assert ask_once(reboot, *looks, check_mode=check_mode) == expected


def test_a_reboot_that_did_nothing_is_a_failure() -> None:
    answer = ask_once(Reboot({"changed": True, "rebooted": True}), THERE, THERE)

    assert (answer["failed"], answer["msg"]) == (True, "the node is still in the boot that was to end")


@pytest.mark.parametrize("boot", ["{{ lookup('pipe', 'id') }}", "a b", "'; id", "A", "0" * 65])
def test_what_is_not_the_name_of_a_boot_reaches_no_shell(boot: str) -> None:
    with pytest.raises(AnsibleActionFail, match="boot_id is not the name of a boot"):
        ask_once(Reboot(AssertionError("it was rebooted")), boot=boot)


@pytest.mark.parametrize(("boot", "is_rebooted"), [("this", True), ("another", False)])
def test_the_command_reboots_a_node_in_that_boot_alone(boot: str, tmp_path: Path, *, is_rebooted: bool) -> None:
    """The command is run as it is, with a systemctl that only tells."""
    this = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    reboot = Reboot({"changed": True, "rebooted": True})
    ask_once(reboot, THERE, GONE)
    words = [
        this if word == BOOT and boot == "this" else word for word in shlex.split(reboot.arguments["reboot_command"])
    ]
    systemctl = tmp_path / "systemctl"
    systemctl.write_text("#!/bin/sh\necho told: $*\n")
    systemctl.chmod(0o755)

    done = subprocess.run(words, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)

    assert done.stdout == ("told: --no-block reboot\n" if is_rebooted else "")
    assert (done.returncode == 0) == is_rebooted
