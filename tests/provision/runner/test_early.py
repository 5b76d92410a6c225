"""One start of Ansible for the inventory and the run after it, with the real Ansible."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from provision.apply.runner import AnsibleRunner, EarlyAnsible, RunStatus, TaskStarted
from provision.declaration.fleet.ansible import export_inventory
from provision.declaration.fleet.errors import InventoryError
from provision.declaration.fleet.inventory import parse_inventory
from tests.provision.runner.stage import LOCAL, done, finished
from tests.provision.runner.test_ansible import processes_with

if TYPE_CHECKING:
    from provision.apply.runner import RunRequest
    from tests.provision.runner.stage import Stage

pytestmark = pytest.mark.slow
KEEP = frozenset({"msg"})
SHOW = "- ansible.builtin.debug: {msg: \"{{ lookup('env', 'GRAPNEL_RUN') }} {{ lookup('env', 'GRAPNEL_APPLY') }}\"}"


def read(early: EarlyAnsible, request: RunRequest) -> str:
    return export_inventory(
        request.inventory, limit="", directory=Path.cwd(), environ=os.environ, run=early.read_inventory
    ).text


def test_who_reads_the_inventory_runs_the_first_playbook_that_only_reads(stage: Stage) -> None:
    request = stage.request(SHOW, keep=KEEP, only_reads=True, environment={"GRAPNEL_APPLY": "a-lock"})
    early = EarlyAnsible()
    text = read(early, request)
    assert parse_inventory(text) == parse_inventory(
        export_inventory(request.inventory, limit="", directory=Path.cwd(), environ=os.environ).text
    )
    assert early._waiting is not None
    marker = early._waiting.marker
    runner = AnsibleRunner(early=early)
    first, second = stage.run(request, runner), stage.run(request, runner)
    (shown,), (again,) = done(first), done(second)
    assert (finished(first).status, finished(second).status) == (RunStatus.SUCCESSFUL, RunStatus.SUCCESSFUL)
    assert shown.values["msg"].decode() == f'"{marker} a-lock"'
    assert marker not in again.values["msg"].decode()


def test_how_the_playbook_ends_and_what_it_says_is_told_as_by_any_other_run(stage: Stage) -> None:
    request = stage.request("- ansible.builtin.fail: {msg: no}", only_reads=True)
    early, kept = EarlyAnsible(), stage.folder / "kept"
    read(early, request)
    end = finished(stage.run(request, AnsibleRunner(keep=kept, early=early)))
    assert (end.status, end.message) == (RunStatus.FAILED, "ansible-playbook ended with status 2")
    assert "PLAY [all]" in (kept / "play-nodes" / "output").read_text()


def test_a_broken_inventory_is_an_error_and_leaves_no_process(stage: Stage) -> None:
    request = stage.request(SHOW, inventory="[broken\n")
    early = EarlyAnsible()
    with pytest.raises(InventoryError) as caught:
        read(early, request)
    assert caught.value.message.startswith(f"inventory {request.inventory[0]}: ")
    assert early._waiting is None
    assert processes_with(request.inventory[0]) == []


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"only_reads": False}, id="a run that changes machines"),
        pytest.param({"environment": {"ANSIBLE_FORKS": "7"}}, id="another setting of Ansible"),
    ],
)
def test_a_run_that_needs_a_process_of_its_own_starts_one(stage: Stage, changed: dict[str, object]) -> None:
    request = stage.request(SHOW, **{"keep": KEEP, "only_reads": True, **changed})
    early = EarlyAnsible()
    read(early, request)
    assert early._waiting is not None
    marker = early._waiting.marker
    (shown,) = done(stage.run(request, AnsibleRunner(early=early)))
    assert marker not in shown.values["msg"].decode()


def test_cancel_ends_every_process_of_it(stage: Stage) -> None:
    request = stage.request("- name: wait\n  ansible.builtin.command: sleep 98765.7", only_reads=True)
    early, cancel, events = EarlyAnsible(), threading.Event(), []
    read(early, request)
    for event in AnsibleRunner(early=early).run(request, cancel):
        events.append(event)
        if isinstance(event, TaskStarted):
            while not processes_with("sleep 98765.7"):
                time.sleep(0.1)
            cancel.set()
    assert finished(events).status is RunStatus.CANCELED
    assert processes_with("sleep 98765.7") == processes_with(request.inventory[0]) == []


def test_its_time_limit_ends_the_run(stage: Stage) -> None:
    request = stage.request("- ansible.builtin.command: sleep 98765.8", timeout_s=5, only_reads=True)
    early = EarlyAnsible()
    read(early, request)
    assert finished(stage.run(request, AnsibleRunner(early=early))).status is RunStatus.TIMED_OUT
    assert processes_with("sleep 98765.8") == processes_with(request.inventory[0]) == []


def test_one_that_dies_before_its_run_fails_the_run_and_does_not_hang_it(stage: Stage) -> None:
    request = stage.request(SHOW, only_reads=True)
    early = EarlyAnsible()
    read(early, request)
    process = early.take({})
    assert process is not None
    process._process.kill()
    with process.become(["ansible-playbook"], {}, stage.folder / "output", stage.folder / "end") as command:
        assert subprocess.run(command, timeout=60, check=False).returncode == 128 + signal.SIGKILL


ASKS = """
import sys, os, threading
from pathlib import Path
from provision.declaration.fleet.ansible import export_inventory
from provision.apply.runner import AnsibleRunner, EarlyAnsible, RunRequest
early = EarlyAnsible()
inventory = (sys.argv[1],)
export_inventory(inventory, limit="", directory=Path.cwd(), environ=os.environ, run=early.read_inventory)
print("read", flush=True)
if len(sys.argv) == 2:
    threading.Event().wait()
request = RunRequest(playbook=Path(sys.argv[2]), inventory=inventory, only_reads=True)
list(AnsibleRunner(early=early).run(request, threading.Event()))
"""


@pytest.mark.parametrize("runs", [False, True], ids=["before its run", "in its run"])
def test_it_ends_with_whoever_asked_for_it(stage: Stage, *, runs: bool) -> None:
    request = stage.request("- ansible.builtin.pause: {minutes: 30}", inventory=f"n1 {LOCAL}\n")
    more = [str(request.playbook)] if runs else []
    asks = subprocess.Popen(
        [sys.executable, "-P", "-c", ASKS, request.inventory[0], *more], stdout=subprocess.PIPE, text=True
    )
    assert asks.stdout is not None
    assert asks.stdout.readline() == "read\n"
    while runs and not processes_with("status"):  # ansible-runner's shell waits for the run
        time.sleep(0.1)
    asks.kill()
    asks.wait()
    asks.stdout.close()
    deadline = time.monotonic() + 60
    while (left := processes_with(request.inventory[0])) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
