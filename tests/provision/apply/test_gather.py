"""Facts, and the reasons for which there are none."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from provision.apply.gather import REACH, gather_facts
from provision.apply.model import Failure, Status
from provision.apply.runner import UNREAD, AnsibleRunner, RunFinished, RunRequest, RunStatus, TaskDone, TaskOutcome
from tests.provision.runner.stage import CLOSED, Stage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.apply.runner import Event

COLLECTION = Path(__file__).parents[3] / "playbooks"
# As the real one at a host key that has changed: it reads no input, says why, and ends. The machine is so busy that its
# end is seen later than that of its input.
SSH = """#!/bin/sh
case "$*" in *127.0.0.1*) ;; *) exit 0 ;; esac
mkdir -p {folder}/asked
exec 0<&-
sleep 1
echo "Host key verification failed." >&2
exit 255
"""


class Jobs:
    """A Job on each node, as the controller has them: n2 says what has it asked again, and then that it broke."""

    def __init__(self, end: RunStatus) -> None:
        self.end, self.asked = end, list[tuple[str, tuple[str, ...]]]()

    def run(self, request: RunRequest, _cancel: threading.Event) -> Iterator[Event]:
        self.asked.append((request.playbook.name, request.nodes))
        if len(request.nodes) == 1:
            yield RunFinished(self.end, message="no such playbook")
            return
        yield TaskDone("n1", "look", TaskOutcome.FAILED, message="no room")
        yield TaskDone("n2", "look", TaskOutcome.UNREACHABLE, message=UNREAD)
        yield RunFinished(RunStatus.FAILED)


@pytest.mark.parametrize("end", [RunStatus.ERROR, RunStatus.NO_NODES])
def test_a_node_that_breaks_what_it_is_asked_for_a_second_time_takes_nothing_of_the_others(end: RunStatus) -> None:
    """One node of a controller would have ended the rounds of all."""
    runner = Jobs(end)
    request = RunRequest(playbook=COLLECTION / "facts.yml", inventory=(), nodes=("n1", "n2"))

    facts = gather_facts(runner, request, lambda _event: None, threading.Event())

    assert facts == {
        "n1": Failure(Status.FAILED, "no room", "look"),
        "n2": Failure(Status.UNREACHABLE, UNREAD),
    }
    assert runner.asked == [("facts.yml", ("n1", "n2")), (REACH, ("n2",))]


@pytest.mark.functional
def test_the_reason_is_known_although_ssh_takes_its_time_to_end(tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH.format(folder=tmp_path))
    ssh.chmod(0o755)
    inventory = f"n1 {CLOSED} ansible_ssh_executable={ssh} ansible_python_interpreter=/usr/bin/python3\n"
    request = Stage(tmp_path).request("- ansible.builtin.ping:", inventory=inventory, nodes=("n1",))
    request = replace(request, playbook=COLLECTION / "facts.yml")

    facts = gather_facts(AnsibleRunner(), request, lambda _event: None, threading.Event())

    failure = facts["n1"]
    assert isinstance(failure, Failure)
    assert failure.status is Status.UNREACHABLE
    assert failure.message.startswith("its host key is not known here")
    assert (tmp_path / "asked").is_dir()
