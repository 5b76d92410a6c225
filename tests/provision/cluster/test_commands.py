"""The programs of a site, as real scripts that keep their queue in files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from provision.cluster.errors import SchedulerError
from provision.cluster.local.cluster import LocalCluster
from provision.cluster.schedulers.cluster import ScheduledCluster
from provision.cluster.schedulers.commands import CommandScheduler
from provision.cluster.schedulers.program import Program
from provision.declaration.spec.model import Commands
from provision.rollout.errors import UnreachableError
from provision.rollout.model import NodeView, Phase
from tests.provision.rollout.fakes import record

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

QUEUE = """\
#!/bin/sh
cd "$(dirname "$0")" || exit 2
echo "$*" >> log
case $1 in
close) [ -e closed-fails ] && { echo "no queue" >&2; exit "$(cat closed-fails)"; }; touch "closed-$2" ;;
is-empty) [ -e "work-$2" ] || exit 0; cat "work-$2"; exit "$(cat code 2>/dev/null || echo 1)" ;;
open) rm -f "closed-$2" ;;
esac
"""


class Site:
    """A site whose queue is a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.script = folder / "queue"
        self.script.write_text(QUEUE)
        self.script.chmod(0o755)

    def connect(self) -> ScheduledCluster:
        queue = str(self.script)
        commands = Commands(
            drain=(queue, "close", "{node}"), is_drained=(queue, "is-empty", "{node}"), resume=(queue, "open", "{node}")
        )
        program = Program(timeout_s=20.0, limit_bytes=10_000, environ=os.environ)
        return ScheduledCluster(LocalCluster(self.folder / "state.json"), CommandScheduler(program, commands))

    def put(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def is_closed(self, node: str) -> bool:
        return (self.folder / f"closed-{node}").exists()

    def log(self) -> list[str]:
        log = self.folder / "log"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def look(cluster: ScheduledCluster, node: str = "n1") -> NodeView:
    found = cluster.observe([node])[node]
    assert isinstance(found, NodeView)
    return found


def test_a_node_is_drained_waited_for_and_resumed(site: Site) -> None:
    cluster = site.connect()
    site.put("work-n1", "job 7 of ada\n\n  job 8 of bob \n")
    assert not look(cluster).work, "nobody is asked about nodes that keep their work"
    assert not site.log()

    cluster.write("n1", record(Phase.CORDON), cordoned=True)
    assert site.is_closed("n1")
    assert [str(job) for job in look(cluster).work] == ["job 7 of ada", "job 8 of bob"]
    (site.folder / "work-n1").unlink()
    assert not look(cluster).work
    cluster.write("n1", record(Phase.DONE), cordoned=False)
    assert not site.is_closed("n1")
    assert not look(cluster).is_cordoned


def test_a_drain_is_done_again_by_the_next_process_which_cannot_know(site: Site) -> None:
    """The state file knows of a drain before it is done: a killed process may not have done it."""
    first = site.connect()
    look(first)
    first.write("n1", record(Phase.CORDON), cordoned=True)
    (site.folder / "closed-n1").unlink()

    second = site.connect()
    look(second)
    second.write("n1", record(Phase.DRAIN), cordoned=True)
    second.write("n1", record(Phase.RELEASE), cordoned=True)

    assert site.is_closed("n1")
    assert [line for line in site.log() if line.startswith("close")] == ["close n1"] * 2


def test_a_drain_that_fails_stops_the_rollout_and_names_the_program(site: Site) -> None:
    cluster = site.connect()
    look(cluster)
    site.put("closed-fails", "3")

    with pytest.raises(SchedulerError, match=r"drain of n1 \(.*/queue\): exit code 3: no queue") as caught:
        cluster.write("n1", record(Phase.CORDON), cordoned=True)
    assert caught.value.hint == "run it by hand; it is scheduler.commands.drain of the declaration"


def test_a_drain_that_says_try_again_is_tried_again(site: Site) -> None:
    cluster = site.connect()
    look(cluster)
    site.put("closed-fails", "75")
    with pytest.raises(UnreachableError):
        cluster.write("n1", record(Phase.CORDON), cordoned=True)
    (site.folder / "closed-fails").unlink()

    look(cluster)
    cluster.write("n1", record(Phase.DRAIN), cordoned=True)

    assert site.is_closed("n1")


def test_a_question_that_fails_counts_as_work_that_is_left(site: Site) -> None:
    cluster = site.connect()
    look(cluster)
    cluster.write("n1", record(Phase.CORDON), cordoned=True)
    site.put("work-n1", "job 7")
    site.put("code", "9")

    (work,) = look(cluster).work

    assert str(work).startswith("unknown work: isDrained (")
    assert str(work).endswith("): exit code 9")


def test_work_without_words_is_work(site: Site) -> None:
    cluster = site.connect()
    look(cluster)
    cluster.write("n1", record(Phase.CORDON), cordoned=True)
    site.put("work-n1", "\n")

    assert [str(job) for job in look(cluster).work] == ["its work"]


def test_many_lines_and_long_ones_are_cut(site: Site) -> None:
    cluster = site.connect()
    look(cluster)
    cluster.write("n1", record(Phase.CORDON), cordoned=True)
    site.put("work-n1", "\n".join([f"job \x1b[2J{'x' * 200}"] * 30))

    work = look(cluster).work

    assert len(work) == 20
    assert all(len(str(job)) <= 120 and "\x1b" not in str(job) for job in work)
