"""Facts, and the reasons for which there are none."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from provision.apply.gather import gather_facts
from provision.apply.model import Failure, Status
from provision.apply.runner import AnsibleRunner
from tests.provision.runner.stage import CLOSED, Stage

pytestmark = pytest.mark.functional

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
