"""Folders of runs: private, found by their names, and removed when they are old, never while a run goes on."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from provision.report.runs.events import encode
from provision.report.runs.store import RunFolder, RunsError, Shelf, runs_folder
from tests.provision.runs.story import began, night

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 5, 4, 2, 40, tzinfo=UTC)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "runs" / "0f")


def begin(shelf: Shelf, hours_ago: float = 0, verb: str = "apply") -> RunFolder:
    with shelf.begin(verb, NOW - timedelta(hours=hours_ago)) as (folder, file):
        for event in night():
            file.write(encode(event))
    return folder


def test_a_run_is_for_its_user_alone(shelf: Shelf) -> None:
    folder = begin(shelf)

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (shelf.folder, folder.path, folder.events)}
    assert set(modes.values()) == {0o700, 0o600}
    assert modes["events.jsonl"] == 0o600


def test_a_run_is_found_by_its_name_the_beginning_of_it_or_as_the_last(shelf: Shelf) -> None:
    older, newer = begin(shelf, 5), begin(shelf, 1, "rollback")

    assert shelf.find(None) == newer
    assert shelf.find(older.name) == older
    assert shelf.find("20260503T21") == older
    assert list(shelf.find(None).read()) == night()
    assert older.began == NOW - timedelta(hours=5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("2026", "'2026' begins the names of 2 runs", id="of two"),
        pytest.param("../../etc", "'../../etc' is the name of no run", id="of none"),
    ],
)
def test_a_name_that_is_not_that_of_a_run(shelf: Shelf, name: str, message: str) -> None:
    begin(shelf, 5), begin(shelf, 1)

    with pytest.raises(RunsError, match=message):
        shelf.find(name)


def test_where_nothing_was_run_that_is_said(shelf: Shelf) -> None:
    with pytest.raises(RunsError, match="no run is recorded in ") as raised:
        shelf.find(None)
    assert "--inventory" in raised.value.hint


def test_a_run_goes_on_for_as_long_as_its_process_has_it(shelf: Shelf) -> None:
    with shelf.begin("apply", NOW) as (folder, _):
        assert folder.is_going_on()
    assert not folder.is_going_on()


def test_old_runs_go_by_count_and_age_and_never_one_that_goes_on(shelf: Shelf) -> None:
    with contextlib.ExitStack() as stack:
        endless, _ = stack.enter_context(shelf.begin("apply", NOW - timedelta(days=400)))
        ancient = begin(shelf, 24 * 100)
        kept = [begin(shelf, hours) for hours in (1, 2)]
        surplus = begin(shelf, 3)

        gone = shelf.clear(keep=2, days=90, now=NOW)

        assert sorted(gone) == sorted([ancient.name, surplus.name])
        assert shelf.runs() == [*kept, endless]


def test_a_run_that_was_killed_does_not_go_on(shelf: Shelf) -> None:
    script = (
        "import sys, time\nfrom datetime import datetime, UTC\nfrom pathlib import Path\n"
        "from provision.report.runs.store import Shelf\n"
        "with Shelf(Path(sys.argv[1])).begin('apply', datetime.now(UTC)) as (folder, file):\n"
        "    print(folder.name, flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, shelf.folder], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = shelf.find(process.stdout.readline().strip())
        assert folder.is_going_on()
        process.kill()
    assert not folder.is_going_on()


def test_runs_that_begin_at_once_leave_each_other_alone(shelf: Shelf) -> None:
    gate = threading.Barrier(8)

    def run(_number: int) -> str:
        gate.wait()
        with shelf.begin("apply", NOW) as (folder, file):
            shelf.clear(keep=1, days=1, now=NOW + timedelta(days=100))
            file.write(encode(began()))
            assert list(folder.read()) == [began()]
            gate.wait()
        return folder.name

    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(run, range(8)))
    assert sorted(names) == sorted(folder.name for folder in shelf.runs())


def test_a_run_that_is_being_made_is_not_seen(shelf: Shelf) -> None:
    (shelf.folder / ".20260504T024000Z-apply-3f2a").mkdir(parents=True)

    assert shelf.runs() == []
    assert shelf.clear(keep=1, days=1, now=NOW) == []


def test_a_run_whose_folder_is_half_gone_is_removed(shelf: Shelf) -> None:
    folder = begin(shelf, 24 * 100)
    folder.events.unlink()

    assert shelf.clear(keep=1, days=1, now=NOW) == [folder.name]
    assert not folder.path.exists()


def test_what_cannot_be_read_is_named(shelf: Shelf) -> None:
    folder = begin(shelf)
    folder.events.unlink()

    with pytest.raises(RunsError, match=f"run {folder.name} in .* cannot be read: no such file"):
        list(folder.read())


def test_a_line_that_was_cut_off_is_left_out(shelf: Shelf) -> None:
    with shelf.begin("apply", NOW) as (folder, file):
        file.write(encode(began()) + b'{"event":"ste')

    assert list(folder.read()) == [began()]


def test_the_state_folder_is_the_users(tmp_path: Path) -> None:
    assert runs_folder({"HOME": str(tmp_path)}, "0f") == tmp_path / ".local/state/grapnel/runs/0f"
    assert runs_folder({"XDG_STATE_HOME": str(tmp_path)}, "0f") == tmp_path / "grapnel/runs/0f"
    assert os.fspath(runs_folder({"HOME": "/h", "XDG_STATE_HOME": ""}, "x")) == "/h/.local/state/grapnel/runs/x"
