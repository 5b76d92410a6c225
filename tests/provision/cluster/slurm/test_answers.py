"""What scontrol and squeue print, as Slurm of Debian 12 and of Debian 13 printed it."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.cluster.schedulers.slurm.answers import (
    MAX_NODES,
    SlurmNode,
    expand_hostlist,
    is_busy,
    is_drained,
    is_ours,
    is_unheard_of,
    parse_jobs,
    parse_nodes,
    parse_reservations,
    why_held,
    why_not_ready,
)
from provision.rollout.model import Job

ANSWERS = Path(__file__).with_name("answers")
VERSIONS = ("22.05", "24.11")


def answer(version: str, what: str) -> str:
    return (ANSWERS / f"{version}-{what}.txt").read_text()


def node(*states: str, reason: str = "") -> SlurmNode:
    return SlurmNode(name="n1", address="", hostname="", states=frozenset(states), reason=reason)


@pytest.mark.parametrize(("version", "started"), [("22.05", "2026-11-23T10:11:34"), ("24.11", "2026-11-23T10:11:51")])
def test_nodes_are_read(version: str, started: str) -> None:
    nodes = parse_nodes(answer(version, "nodes"))

    assert list(nodes) == ["gpu01", "gpu02", "gpu03", "gpu04"]
    assert nodes["gpu01"] == SlurmNode(
        name="gpu01",
        address="192.0.2.1",
        hostname="n1",
        states=frozenset({"MIXED", "DRAIN"}),
        reason="grapnel:driver-550.163.01",
        reason_user="root",
        started=started,
    )
    assert nodes["gpu02"].states == {"MIXED"}
    assert not nodes["gpu02"].reason
    assert nodes["gpu04"].states == {"IDLE", "MAINTENANCE", "RESERVED", "NOT_RESPONDING"}


@pytest.mark.parametrize("word", ["None", "Unknown"])
def test_a_node_that_has_never_registered_has_no_start(word: str) -> None:
    found = parse_nodes(answer("24.11", "nodes").replace("StartTime=2026", f"StartTime={word} was=2026"))

    assert {node.started for node in found.values()} == {""}


@pytest.mark.parametrize("version", VERSIONS)
def test_what_somebody_writes_into_a_reason_is_no_state(version: str) -> None:
    """The reason of the sample goes on with a line that looks like one."""
    found = parse_nodes(answer(version, "nodes"))["gpu03"]

    assert found.states == {"IDLE", "DRAIN", "MAINTENANCE", "RESERVED"}
    assert found.reason == "bad fan"


@pytest.mark.parametrize("version", VERSIONS)
def test_jobs_are_read(version: str) -> None:
    jobs = parse_jobs(answer(version, "jobs"))

    assert {node: [(job.id, job.user) for job in each] for node, each in jobs.items()} == {
        "gpu01": [("job 1", "alice")],
        "gpu02": [("job 2", "alice")],
    }
    assert str(jobs["gpu01"][0]).startswith("job 1 of alice (59:")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_maintenance_is_read(version: str) -> None:
    (found,) = parse_reservations(answer(version, "reservations"))

    assert found.name == "fans"
    assert found.nodes == {"gpu03", "gpu04"}
    assert found.until.startswith("2026-11-23T")


def test_a_reservation_for_users_or_for_later_is_no_maintenance() -> None:
    line = answer("24.11", "reservations").strip()

    assert not list(parse_reservations(line.replace("Flags=MAINT,", "Flags=")))
    assert not list(parse_reservations(line.replace("State=ACTIVE", "State=INACTIVE")))
    assert not list(parse_reservations("No reservations in the system\n"))


def test_a_job_on_several_nodes_is_on_each() -> None:
    jobs = parse_jobs("12_3,COMPLETING,UNLIMITED,bob,gpu[1-2,4]\n")

    assert jobs == dict.fromkeys(["gpu1", "gpu2", "gpu4"], (Job(id="job 12_3, completing", user="bob"),))


@pytest.mark.parametrize(
    "line",
    [
        "",
        "12",
        "12,RUNNING,1:00,bob",
        "\x1b[2J,RUNNING,1:00,bob,gpu1",
        "slurm_load_jobs error: try again, later, a, b, c",
    ],
)
def test_a_line_that_is_no_job_is_left_out(line: str) -> None:
    assert not parse_jobs(line)


def test_a_user_with_other_characters_is_not_shown() -> None:
    assert parse_jobs("1,RUNNING,1:00,bo\x1bb,n1") == {"n1": (Job(id="job 1", left="1:00"),)}


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("gpu01", ["gpu01"]),
        ("gpu[01-03]", ["gpu01", "gpu02", "gpu03"]),
        ("gpu[9-11,20],login", ["gpu9", "gpu10", "gpu11", "gpu20", "login"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("a[1-2]-ib", ["a1-ib", "a2-ib"]),
        ("n[x]", ["nx"]),
        ("", []),
        ("n[1-", ["n", "1-"]),
    ],
)
def test_lists_of_nodes_are_expanded(text: str, nodes: list[str]) -> None:
    assert list(expand_hostlist(text)) == nodes


def test_a_list_without_end_is_cut() -> None:
    assert sum(1 for _ in expand_hostlist("n[0-999999999]")) == MAX_NODES


def test_states_mean_what_slurm_means() -> None:
    assert is_drained(node("IDLE", "DRAIN"))
    assert is_ours(node("IDLE", "DRAIN", reason="grapnel:driver-550.163.01"))
    assert not is_ours(node("IDLE", reason="grapnel:driver-550.163.01")), "newer versions keep it after a resume"
    assert not is_ours(node("IDLE", "DRAIN", reason="bad fan"))
    for busy in ("ALLOCATED", "MIXED", "COMPLETING"):
        assert is_busy(node(busy, "DRAIN"))
    assert not is_busy(node("IDLE", "DRAIN"))
    assert is_unheard_of(node("UNKNOWN", "DRAIN"))
    assert why_held(node("MIXED", "REBOOT_REQUESTED"))


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        pytest.param(node("IDLE"), "", id="idle"),
        pytest.param(node("IDLE", "DRAIN", reason="bad fan"), "", id="drained by somebody"),
        pytest.param(node("MIXED", "PLANNED"), "", id="planned for a job"),
        pytest.param(node("IDLE", "NOT_RESPONDING"), "slurmd does not answer", id="slurmd away"),
        pytest.param(node("DOWN", reason="Not responding"), "Slurm says DOWN (Not responding)", id="down"),
        pytest.param(node("DOWN", "DRAIN", reason="bad fan"), "Slurm says DOWN (bad fan)", id="down and drained"),
        pytest.param(node("DOWN", "DRAIN", reason="grapnel:driver-550.163.01"), "", id="rebooted on the way"),
        pytest.param(
            node("IDLE", "DRAIN", "INVALID_REG", reason="grapnel:x"),
            "slurmd has registered with less than slurm.conf says",
            id="too few GPUs",
        ),
        pytest.param(node("UNKNOWN"), "slurmd has not registered yet", id="not heard of"),
    ],
)
def test_whether_a_node_could_work_is_told_in_words(seen: SlurmNode, words: str) -> None:
    assert why_not_ready(seen) == words


def test_older_versions_put_signs_behind_states() -> None:
    found = parse_nodes("NodeName=n1 Arch=x\n   NodeAddr=a NodeHostName=b Version=1\n   State=IDLE*+DRAIN Threads=1\n")

    assert found["n1"].states == {"IDLE", "DRAIN", "NOT_RESPONDING"}
