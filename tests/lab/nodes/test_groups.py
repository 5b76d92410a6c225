"""What is left of a node whose start was killed: a supervisor in no group yet, or one that joins as the group goes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from lab.nodes.boot import SUPERVISOR, kill_supervisors
from lab.nodes.cgroup import ControlGroup, hierarchies

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.nodes  # cgroups of the machine

PAUSE = "import signal; print(flush=True); signal.pause()"
END_S = 20


@contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that does nothing, with these arguments."""
    with subprocess.Popen([sys.executable, "-c", PAUSE, *arguments], stdout=subprocess.PIPE) as made:
        assert made.stdout is not None
        made.stdout.readline()
        try:
            yield made
        finally:
            made.kill()


def test_a_supervisor_that_is_in_no_group_yet_is_found_by_its_arguments(tmp_path: Path) -> None:
    config = str(tmp_path / "site/nodes/n1/supervisor.json")
    other = str(tmp_path / "site-b/nodes/n1/supervisor.json")
    with process(str(SUPERVISOR), config) as ours, process(str(SUPERVISOR), other) as theirs, process(config) as none:
        kill_supervisors(tmp_path / "site")
        assert ours.wait(END_S) == -signal.SIGKILL
        assert (theirs.poll(), none.poll()) == (None, None)


def test_a_group_goes_although_a_process_came_into_it_and_made_one_below() -> None:
    group = ControlGroup(f"gn-test-{os.getpid()}")
    folders = group.create()
    try:
        with process() as late:
            for folder in folders:
                (folder / "below").mkdir()
                (folder / "cgroup.procs").write_text(str(late.pid))
            group.remove()
            assert late.wait(END_S) == -signal.SIGKILL
    finally:
        group.remove()
    assert not [path for hierarchy in hierarchies() for path in hierarchy.glob(group.name)]
