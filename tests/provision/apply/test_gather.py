"""Facts, and the reasons for which there are none."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from provision.apply.gather import gather_facts
from provision.apply.model import Failure, Status
from provision.apply.runner import AnsibleRunner
from tests.provision.runner.stage import CLOSED, Stage

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.functional

# As the real one at a host key that has changed: it reads no input, says why, and ends. The first time the machine is
# so busy that its end is seen later than that of its input.
SSH = """#!/bin/sh
case "$*" in *127.0.0.1*) ;; *) exit 0 ;; esac
if mkdir {folder}/asked 2> /dev/null; then exec 0<&-; sleep 3; fi
echo "Host key verification failed." >&2
exit 255
"""


def test_the_reason_is_known_although_ssh_takes_its_time_to_end(tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH.format(folder=tmp_path))
    ssh.chmod(0o755)
    inventory = f"n1 {CLOSED} ansible_ssh_executable={ssh} ansible_python_interpreter=/usr/bin/python3\n"
    request = Stage(tmp_path).request("- ansible.builtin.ping:", inventory=inventory, nodes=("n1",))

    facts = gather_facts(AnsibleRunner(), request, lambda _event: None, threading.Event())

    failure = facts["n1"]
    assert isinstance(failure, Failure)
    assert failure.status is Status.UNREACHABLE
    assert failure.message.startswith("its host key is not known here")
    assert (tmp_path / "asked").is_dir()
