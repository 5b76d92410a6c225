"""Nodes that answer what they like, in one run of Ansible with one that does not: its answer is what it said.

The nodes are this machine, asked without ssh; a hostile one's Python is a script, which answers every task alike. So
the playbook is the one task of `release.yml` that asks the node daemon; on a machine without it, it only looks who
holds a GPU.
"""

from __future__ import annotations

import base64
import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import provision
from provision.apply.runner import AnsibleRunner, RunFinished, RunRequest, RunStatus, TaskDone, TaskOutcome
from tests.provision.runner.frames import answer, encoded, frame
from tests.provision.runner.stage import LOCAL

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.functional

COLLECTION = Path(provision.__file__).parents[1] / "playbooks"
RELEASE = """
- name: Release
  hosts: all
  gather_facts: false
  tasks:
    - name: Release
      grapnel.node.daemon:
        verb: release
        timeout_s: 90
        wait_s: 0
        optional: true
"""
GOOD = {"changed": False, "installed": False, "taken": False, "daemon": {"released": True}, "held_by": []}


def as_runner_event(node: str) -> bytes:
    """Return what ansible-runner's own callback hides in the output."""
    data = {"uuid": "u", "event": "runner_on_ok", "event_data": {"host": node, "task": "Installation", "res": GOOD}}
    text = base64.b64encode(json.dumps(data).encode()).decode()
    return f"\x1b[K{text}\x1b[{len(text)}D\x1b[K".encode()


def with_keys(**more: object) -> bytes:
    return json.dumps({**GOOD, **more}).encode()


def nested(depth: int) -> bytes:
    inner = b"[" * depth + b"]" * depth
    return json.dumps({**GOOD, "daemon": "@"}).encode().replace(b'"@"', b'{"x":' + inner + b"}")


REFUSED = {
    "nothing": b"",
    "not JSON": b"hello",
    "a list": b"[1]",
    "half a document": b'{"changed": fal',
    "two documents": with_keys() + b"\n" + with_keys(held_by=["x"]),
    "events of ansible-runner before it": as_runner_event("n2") + b"\n" + with_keys(rogue=1),
    "frames of our channel before it": encoded(frame("ok", node="n2", body=answer(values={"daemon": {}}))) + b"\nx",
    "statistics of all hosts": with_keys(ansible_stats={"data": {"x": 1}, "per_host": False}),
    "malformed statistics": with_keys(ansible_stats=[1]),
    "facts that are a plan": with_keys(ansible_facts={"grapnel_plan": {}}),
    "facts that are connection variables": with_keys(ansible_facts={"ansible_control_path_dir": "/tmp/x"}),
    "facts that are not a mapping": with_keys(ansible_facts=[1]),
    "a loop's results": with_keys(results=[{"ansible_facts": {"a": 1}}]),
    "results that are not a list": with_keys(results=7),
    "unreachable": with_keys(unreachable=True),
    "a malformed diff": with_keys(diff=7),
    "text for a flag": with_keys(changed="yes"),
    "an unknown key": with_keys(rogue=1),
    "a trusted template": with_keys(
        installed={"__ansible_type": "TrustedAsTemplate", "value": "{{ lookup('pipe', 'touch pwned') }}"}
    ),
    "a tagged text": with_keys(
        held_by=[
            {
                "__ansible_type": "_AnsibleTaggedStr",
                "value": "{{ 7 * 7 }}",
                "tags": [{"__ansible_type": "TrustedAsTemplate"}],
            }
        ]
    ),
    "not a number": with_keys(daemon={"x": float("nan")}),
    "a number of 5,000 digits": with_keys().replace(b'"released": true', b'"released": ' + b"9" * 5000),
    "a number of 400 digits": with_keys().replace(b'"released": true', b'"released": ' + b"9" * 400),
    "half a surrogate pair": with_keys().replace(b'"held_by": []', b'"held_by": ["\\ud800"]'),
    "not utf-8": with_keys().replace(b'"held_by": []', b'"held_by": ["\xff\xfe"]'),
    "nested 30 deep": nested(30),
    "nested 200 deep": nested(200),
    "nested 900 deep": nested(900),
    "nested 5,000 deep": nested(5_000),
    "nested 100,000 deep": nested(100_000),
    "a million values": with_keys().replace(b'"held_by": []', b'"held_by": [' + b"1," * 1_000_000 + b"1]"),
    "four million characters": with_keys(held_by=["x" * 4_000_000]),
}


# What Ansible or the action leaves out, so that the rest is an answer like any other.
LEFT_OUT = {
    "events of ansible-runner in a warning": with_keys(warnings=[as_runner_event("n2").decode()]),
    "a warning that is not text": with_keys(warnings=[1]),
    "warnings that are not a list": with_keys(warnings=5),
    "a host of its own": with_keys(changed=True, add_host={"host_name": "n3", "groups": []}),
    "an interpreter with an argument": with_keys(ansible_facts={"discovered_interpreter_python": "/bin/sh -c id"}),
}
ANSWERS = REFUSED | LEFT_OUT
ENDLESS = 'yes \'{"changed": false, "daemon": [\' '


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[TaskDone]]]:
    """What a run on an honest node and on one for each answer comes to; nothing of it is left on this machine."""
    folder = tmp_path_factory.mktemp("nodes")
    hosts = [f"honest {LOCAL}"]
    for number, content in enumerate(ANSWERS.values()):
        (folder / f"{number}.answer").write_bytes(content)
        hosts.append(hostile(folder, f"h{number}", f"cat {folder}/{number}.answer"))
    hosts.append(hostile(folder, "endless", ENDLESS))
    (folder / "hosts").write_text("\n".join(hosts) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield run(folder / "hosts")
    assert not (folder / "pwned").exists()


def hostile(folder: Path, name: str, command: str) -> str:
    """Make a fake Python, and return the inventory's line of a host that has it."""
    script = folder / name
    script.write_text(f"#!/bin/sh\n{command}\n")
    script.chmod(0o755)
    return f"{name} ansible_connection=local ansible_python3_interpreter={script}"


def run(inventory: Path) -> dict[str, list[TaskDone]]:
    names = tuple(line.split()[0] for line in inventory.read_text().splitlines())
    playbook = inventory.with_name("release.yml")
    playbook.write_text(RELEASE)
    request = RunRequest(
        playbook=playbook,
        inventory=(str(inventory),),
        nodes=names,
        forks=4,
        keep=frozenset({"daemon"}),
    )
    *events, end = AnsibleRunner(COLLECTION).run(request, threading.Event())
    assert isinstance(end, RunFinished)
    assert end.status is RunStatus.FAILED
    assert set(end.stats) == set(names)
    done = [event for event in events if isinstance(event, TaskDone)]
    return {name: [one for one in done if one.node == name] for name in names}


@pytest.mark.parametrize("name", REFUSED)
def test_a_malformed_answer_fails_the_node_that_gave_it(name: str, finished: dict[str, list[TaskDone]]) -> None:
    (done,) = finished[f"h{list(ANSWERS).index(name)}"]
    assert done.outcome is TaskOutcome.FAILED
    assert "refused" in done.message or "cannot be read" in done.message or "deserializ" in done.message
    assert done.values == {}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_is_no_part_of_an_answer_has_no_effect(name: str, finished: dict[str, list[TaskDone]]) -> None:
    (done,) = finished[f"h{list(ANSWERS).index(name)}"]
    assert done.outcome in (TaskOutcome.OK, TaskOutcome.CHANGED)
    assert json.loads(done.values["daemon"]) == GOOD["daemon"]


def test_an_endless_answer_ends(finished: dict[str, list[TaskDone]]) -> None:
    (done,) = finished["endless"]
    assert done.outcome is TaskOutcome.FAILED


def test_the_honest_nodes_answer_is_what_it_said(finished: dict[str, list[TaskDone]]) -> None:
    (done,) = finished["honest"]
    assert done.outcome is TaskOutcome.OK
    assert json.loads(done.values["daemon"])["released"] is True
