"""A second run is told who changes a node and since when; what is dead, or from before a reboot, is in nobody's way."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.grapnel.node.plugins.action.run_lock import is_dead, owner_of
from ansible_collections.grapnel.node.plugins.module_utils.machine.run_lock import LOCK, RunLock, free, read, take

from provision.apply.lock import RUN_VARIABLE, Claim, lock_machines
from tests.playbooks.fakes import Machine
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
ADA = RunLock("a1:100:5", "ada@laptop", 1_790_000_000, 1800.0, "a1:101:6")
LOCK_TASK = "grapnel.node.run_lock"
LOCKED = ("collect.yml", "driver.yml", "reboot.yml", "release.yml", "remove.yml", "resume.yml", "stage.yml")
LOCKED_IN_THEIR_ROLE = ("apply.yml", "site.yml")  # which take it only when there is something to do
READING = ("built_module.yml", "driver_wait.yml", "facts.yml", "offered.yml", "verify.yml")
BEN = replace(ADA, owner="b2:200:7", holder="ben@desk", process="b2:201:8")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_second_run_is_told_who_has_it_and_since_when(machine: Machine) -> None:
    assert take(machine.host, ADA, 0.0) is None

    found = take(machine.host, BEN, 60.0)

    assert found == ADA
    assert found.describe(60.0, 1_790_000_060.0) == (
        "this node is being changed by ada@laptop since 2026-09-21 14:13:20 UTC: wait for that run. Should it be dead, "
        f"this ends at 14:43 UTC, or with: rm {LOCK}"
    )
    assert read(machine.host) == ADA


def test_whoever_has_it_keeps_it(machine: Machine) -> None:
    take(machine.host, ADA, 0.0)

    assert take(machine.host, replace(ADA, until=3600.0), 100.0) is None
    assert take(machine.host, BEN, 1801.0) is not None, "it was renewed"


def test_it_is_given_back_by_its_owner_alone(machine: Machine) -> None:
    take(machine.host, ADA, 0.0)

    assert not free(machine.host, BEN.owner)
    assert free(machine.host, ADA.owner)
    assert not free(machine.host, ADA.owner)
    assert take(machine.host, BEN, 1.0) is None


def test_the_playbooks_of_a_run_share_it_and_it_began_with_the_first(machine: Machine) -> None:
    take(machine.host, ADA, 0.0)
    second = replace(ADA, began=ADA.began + 60, until=1860.0, process="a1:102:9")

    assert take(machine.host, second, 60.0) is None
    assert read(machine.host) == replace(second, began=ADA.began)


def test_it_is_kept_for_the_next_playbook_of_the_run_but_not_for_long(machine: Machine) -> None:
    take(machine.host, ADA, 0.0)

    assert not free(machine.host, BEN.owner, 9000.0)
    assert free(machine.host, ADA.owner, 400.0)
    assert take(machine.host, BEN, 399.0) == replace(ADA, until=400.0)
    assert take(machine.host, BEN, 400.0) is None
    assert not free(machine.host, ADA.owner, 9000.0), "it is another one's by now"


@pytest.mark.parametrize(
    ("now", "dead"), [(1800.0, ""), (1.0, ADA.owner)], ids=["after its time", "from a run that is dead"]
)
def test_what_nobody_needs_any_more_is_taken_over(machine: Machine, now: float, dead: str) -> None:
    take(machine.host, ADA, 0.0)

    assert take(machine.host, BEN, now, dead) is None
    assert read(machine.host) == BEN


def test_a_death_that_is_somebody_elses_takes_nothing_over(machine: Machine) -> None:
    take(machine.host, ADA, 0.0)

    assert take(machine.host, BEN, 1.0, "c3:300:9") == ADA


@pytest.mark.parametrize(
    "text", ["", "[", "[]", '{"owner": 1}', '{"owner":"x","holder":"y","began":1e999,"until":0,"process":""}']
)
def test_a_lock_that_cannot_be_read_is_nobodys(machine: Machine, text: str) -> None:
    machine.write(LOCK, text)

    assert take(machine.host, BEN, 1.0) is None


def test_a_name_with_control_characters_is_spelled_out(machine: Machine) -> None:
    take(machine.host, replace(ADA, holder="ada\x1b[2J"), 0.0)

    found = take(machine.host, BEN, 1.0)
    assert found is not None
    assert found.holder == "ada\\x1b[2J"


def test_of_many_that_come_at_once_one_has_it(machine: Machine) -> None:
    for _ in range(20):
        start, winners = threading.Barrier(8), []

        def run(number: int, start: threading.Barrier, winners: list[int]) -> None:
            start.wait()
            if take(machine.host, replace(ADA, owner=f"{number}"), 0.0) is None:
                winners.append(number)

        threads = [threading.Thread(target=run, args=(number, start, winners)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(winners) == 1
        assert free(machine.host, str(winners[0]))


OUTLIVED = """
import multiprocessing, os, sys, time
from pathlib import Path
from ansible.errors import AnsibleActionFail
from ansible_collections.grapnel.node.plugins.action.run_lock import is_dead, owner_of, playbook_of_worker

def work(said):
    assert playbook_of_worker() == owner_of(os.getppid())
    parent = os.getppid()
    said.with_name("ready").touch()
    while os.getppid() == parent:
        time.sleep(0.01)
    try:
        words = playbook_of_worker()
    except AnsibleActionFail as error:
        words = error.message
    said.with_name("new").write_text(words)
    said.with_name("new").rename(said)

said = Path(sys.argv[1])
multiprocessing.get_context("fork").Process(target=work, args=(said,)).start()
while not said.with_name("ready").exists():
    time.sleep(0.01)
os.kill(os.getpid(), 9)
"""


def test_a_worker_takes_no_lock_for_a_playbook_that_was_killed(tmp_path: Path) -> None:
    """Its parent is init then, which does not end: the lock would keep the next run off for an hour."""
    said = tmp_path / "said"
    environment = os.environ | {"PYTHONPATH": f"{ROOT}/playbooks/collections"}
    subprocess.run([sys.executable, "-c", OUTLIVED, str(said)], env=environment, check=False, timeout=60)

    wait_until(said.exists)

    assert said.read_text() == "the run that this task belongs to was killed"


def test_a_process_of_this_machine_is_dead_once_it_has_ended() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        owner = owner_of(process.pid)
        assert not is_dead(owner)
        process.kill()
    assert is_dead(owner)
    assert is_dead(owner_of(os.getpid()).rpartition(":")[0] + ":1"), "another process has its number"


def test_a_command_of_grapnel_is_a_run_as_the_lock_names_one(tmp_path: Path) -> None:
    with lock_machines(Claim("ours", {"n1": ["h1:22"]}), {"XDG_STATE_HOME": str(tmp_path)}) as environment:
        assert environment[RUN_VARIABLE] == owner_of(os.getpid()).partition(":")[2]


@pytest.mark.parametrize("owner", ["", "grapnel controller", "0123456789abcdef:1:1", "x:y:z"])
def test_nothing_is_known_of_processes_of_other_machines(owner: str) -> None:
    assert not is_dead(owner)


PLAY = """\
- hosts: all
  gather_facts: false
  tasks:
    - grapnel.node.run_lock:
        state: taken
    - ansible.builtin.command: {command}
"""


@pytest.fixture
def lock() -> Iterator[Path]:
    """Give the real place of the lock: this machine is the node."""
    path = Path(LOCK)
    path.unlink(missing_ok=True)
    yield path
    path.unlink(missing_ok=True)


def play(folder: Path, command: str, run: str = "") -> subprocess.Popen[str]:
    playbook = folder / f"{command.split(maxsplit=1)[0]}.yml"
    playbook.write_text(PLAY.format(command=command))
    return start(playbook, "n1,", run=run)


def start(playbook: Path, inventory: str, *extra: str, run: str = "") -> subprocess.Popen[str]:
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    interpreter = f"ansible_python_interpreter={sys.executable}"
    argv = [program, str(playbook), "-i", inventory, "-c", "local", "-e", interpreter]
    places = {"ANSIBLE_COLLECTIONS_PATH": str(ROOT / "playbooks/collections"), "ANSIBLE_NOCOLOR": "1"}
    of_run = {RUN_VARIABLE: run} if run else {}
    return subprocess.Popen([*argv, *extra], env={**os.environ, **places, **of_run}, stdout=subprocess.PIPE, text=True)


@pytest.mark.functional
@pytest.mark.skipif(os.geteuid() != 0, reason="the lock of a node is root's")
def test_a_second_ansible_playbook_waits_for_the_first_and_follows_one_that_was_killed(
    tmp_path: Path, lock: Path
) -> None:
    reached = tmp_path / "reached"
    os.mkfifo(reached)
    with play(tmp_path, f"dd if=/dev/zero of={reached} bs=1M count=1000") as first:
        try:
            with reached.open("rb"):  # the first is in its second task as long as nobody reads on
                holder = json.loads(lock.read_text())["holder"]
                with play(tmp_path, "uname") as second:
                    told = " ".join((second.communicate(timeout=120)[0]).split())
                assert second.returncode != 0
                assert f"this node is being changed by {holder} since " in told
                first.kill()
                first.wait(timeout=60)
            with play(tmp_path, "uname") as third:
                out = third.communicate(timeout=120)[0]
            assert third.returncode == 0, out
        finally:
            first.kill()


@pytest.mark.functional
@pytest.mark.skipif(os.geteuid() != 0, reason="the lock of a node is root's")
def test_the_playbooks_of_a_command_are_one_run_and_nobody_comes_between_them(tmp_path: Path, lock: Path) -> None:
    assert not lock.exists()

    def ends(run: str = "") -> bool:
        with play(tmp_path, "uname", run) as playing:
            playing.communicate(timeout=300)
        return playing.returncode == 0

    with subprocess.Popen(["sleep", "600"]) as command:
        run = owner_of(command.pid).partition(":")[2]
        try:
            assert ends(run)
            assert ends(run), "it is the same command"
            assert not ends(), "the playbook is over, but not the command"
        finally:
            command.kill()
    assert ends(), "the command was killed"


def tasks_of(playbook: str) -> list[dict[str, Any]]:
    (only,) = yaml.safe_load((ROOT / "playbooks" / playbook).read_text())
    tasks: list[dict[str, Any]] = [task for task in only["tasks"] if "ansible.builtin.assert" not in task]
    return tasks


@pytest.mark.parametrize("playbook", LOCKED)
def test_what_changes_a_node_takes_the_lock_first_and_gives_it_back_whatever_happens(playbook: str) -> None:
    first, work, *others = tasks_of(playbook)

    assert first[LOCK_TASK]["state"] == "taken"
    assert [task[LOCK_TASK]["state"] for task in work["always"]] == ["free"]
    assert {"block", "always"} <= work.keys()
    assert [name for task in others for name in task if name.startswith("grapnel.")] in ([], ["grapnel.node.facts"])


def test_every_playbook_takes_the_lock_or_changes_nothing_on_a_node() -> None:
    found = {path.name for path in (ROOT / "playbooks").glob("*.yml")} - {"galaxy.yml"}

    assert found == {*LOCKED, *LOCKED_IN_THEIR_ROLE, *READING}


def test_the_lock_is_taken_again_after_every_reboot() -> None:
    found = 0
    for path in sorted((ROOT / "playbooks/roles").glob("*/tasks/*.yml")):
        tasks = yaml.safe_load(path.read_text()) or []
        for task, following in itertools.pairwise(tasks):
            if "grapnel.node.reboot" in task:
                found += 1
                assert following[LOCK_TASK]["state"] == "taken", path
        assert "grapnel.node.reboot" not in tasks[-1]
    assert found == 3
    assert [LOCK_TASK in task for task in tasks_of("reboot.yml")[1]["block"]] == [False, True]


@pytest.mark.functional
@pytest.mark.skipif(os.geteuid() != 0, reason="the lock of a node is root's")
def test_no_playbook_changes_a_node_that_another_operator_is_changing(lock: Path) -> None:
    lock.parent.mkdir(exist_ok=True)
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    text = json.dumps(asdict(replace(ADA, began=int(time.time()), until=now + 3600)))
    lock.write_text(text)
    plan = {"schema": "grapnel.dev/plan/v1alpha1", "node": "n1", "items": [{}], "problems": [], "roles": {}}
    given = json.dumps({"grapnel_plan": plan, "grapnel_driver_verb": "remove"})
    names = (*LOCKED, "apply.yml")
    playing = [start(ROOT / "playbooks" / name, "n1,", "-e", given) for name in names]
    said = {name: one.communicate(timeout=500)[0] for name, one in zip(names, playing, strict=True)}

    for name, out in said.items():
        assert "this node is being changed by ada@laptop since " in " ".join(out.split()), (name, out)
        assert "changed=0" in out.partition("PLAY RECAP")[2], (name, out)
    assert [one.returncode != 0 for one in playing] == [True] * len(names)
    assert lock.read_text() == text, "it is still ada's"
