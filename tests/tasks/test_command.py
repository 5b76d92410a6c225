"""``python3 -m tasks``: what people type is what there is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.demo.__main__ import COMPILE, IMAGES, VERSION
from lab.modules import ARCHIVES
from provision.planning.supply.payload.build import PYTHON
from tasks.__main__ import VERBS, main
from tasks.environment import REQUIREMENTS
from tasks.session import Session
from tasks.suites import (
    DEMO_IMAGES,
    OLDEST_OF_NODES,
    UNIT_FOLDERS,
    check_stages,
    cluster_stages,
    demo_stages,
    files_with,
    lab_stages,
    long_stages,
    quick_stage,
    tree_stage,
    unit_stages,
)
from tasks.suites import test_stages as all_stages
from tests.conftest import require_named_marks

if TYPE_CHECKING:
    from tasks.stage import Stage

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()


def test_make_calls_every_verb_and_no_other() -> None:
    assert set(re.findall(r"^\t@.*\$\(TASK\) (\w+)", MAKEFILE, re.MULTILINE)) == set(VERBS)


def test_the_daemon_is_typed_for_the_python_that_its_archive_is_built_for() -> None:
    assert OLDEST_OF_NODES == PYTHON


def test_every_target_has_its_line_in_help() -> None:
    (phony,) = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)

    assert set(re.findall(r"^([a-z0-9-]+):.*##", MAKEFILE, re.MULTILINE)) == set(phony.split())


@pytest.mark.parametrize("argv", [[], ["nonsense"], ["check", "test"]])
def test_a_wrong_call_is_told_the_verbs(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert "environment|quick|check" in capsys.readouterr().err


def test_no_two_stages_of_a_run_share_a_log() -> None:
    session = Session()
    titles = [stage.title for stage in (*lab_stages(session), *all_stages(session))]

    assert len(set(titles)) == len(titles)


def words(stages: list[Stage]) -> set[str]:
    return {" ".join(stage.argv[stage.argv.index("-m") + 1 :]) for stage in stages}


def test_the_demo_and_a_cluster_build_what_they_use_and_nothing_else() -> None:
    session = Session()
    own = {"lab.nvml", "provision.planning.supply.payload build --output dist/payload"}
    trixie, bookworm = ({f"lab tree {suite}", f"lab bundle {suite}"} for suite in ("trixie", "bookworm"))

    demo = words([tree_stage("trixie"), *demo_stages(session)])
    cluster = words(cluster_stages(session))

    assert demo == own | trixie | {"lab layer trixie", "lab.images pause gpu-shell greedy"}
    assert cluster == own | trixie | bookworm | {"lab golang kubernetes", "lab golang containerd", "lab.images"}
    assert cluster < words(lab_stages(session))


def test_the_demo_compiles_one_kernel_module_which_make_test_builds_too() -> None:
    (wanted,) = [each for each in ARCHIVES if (each.suite, each.version) == COMPILE[-2:]]

    assert wanted.version == VERSION
    assert "lab.modules trixie" in words(lab_stages(Session()))


def test_the_images_that_are_built_for_the_demo_are_those_that_it_loads() -> None:
    assert DEMO_IMAGES == IMAGES


def test_a_tree_and_its_packages_are_made_before_there_are_libraries() -> None:
    argv = ["-S", *tree_stage("trixie").argv[1:-1], "--help"]

    assert "trixie" in subprocess.run([sys.executable, *argv], stdout=subprocess.PIPE, text=True, check=True).stdout


def test_everything_that_is_checked_is_part_of_the_tests() -> None:
    session = Session()
    everything = all_stages(session)

    assert [stage for stage in check_stages(session) if stage not in everything] == []


def test_what_takes_long_is_left_out_of_each_kind_of_test_and_has_a_stage_of_its_own() -> None:
    session = Session()

    tests, longer = (
        {stage.argv[stage.argv.index("-m", 3) + 1] for stage in stages if "pytest" in stage.argv}
        for stages in (all_stages(session), long_stages(session))
    )

    assert sorted(tests) == sorted(f"{marks.removesuffix(' and long')} and not long" for marks in longer)


def kept_types() -> list[str]:
    """Return where mypy keeps what it found, for each stage."""
    stages = [stage for stage in check_stages(Session()) if "--cache-dir" in stage.argv]
    return [stage.argv[stage.argv.index("--cache-dir") + 1] for stage in stages]


def test_what_mypy_found_is_kept_for_the_next_clone_in_the_same_folder_with_the_same_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    here = kept_types()
    assert here == kept_types()
    assert len(set(here)) == 3
    assert all(Path(each).is_relative_to(tmp_path / "cache") for each in here)

    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("requirements").mkdir()
    shutil.copy(ROOT / REQUIREMENTS, REQUIREMENTS)
    elsewhere = kept_types()
    REQUIREMENTS.write_text("mypy==1.0.0\n")
    assert len({*here, *elsewhere, *kept_types()}) == 9


def test_each_unit_test_is_in_one_part_of_them() -> None:
    first, second, others = unit_stages(Session())

    assert [stage.argv[-1] for stage in (first, second)] == [f"tests/{folder}" for folder in UNIT_FOLDERS]
    assert others.argv[-2:] == tuple(f"--ignore={stage.argv[-1]}" for stage in (first, second))
    assert all((ROOT / "tests" / folder).is_dir() for folder in UNIT_FOLDERS)
    assert len({stage.argv[: stage.argv.index("-m", 3) + 2] for stage in (first, second, others)}) == 1


STARTED_WITHOUT_SIGCHLD = """
import signal, sys
from tasks.__main__ import VERBS, main
from tasks.stage import Stage

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
fails = Stage("fails", ("sh", "-c", "exit 3"))
VERBS["shown"], VERBS["in a table"] = (lambda each: each.show(fails)), (lambda each: each.prepare([fails]))
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("verb", ["shown", "in a table"])
def test_what_fails_has_failed_where_whoever_started_us_ignores_sigchld(verb: str, tmp_path: Path) -> None:
    """Python takes the status of a child that nobody can ask for as 0."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-c", STARTED_WITHOUT_SIGCHLD, verb]

    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (1, "")
    assert "stopped: fails failed" in done.stdout or "stopped: failed: fails" in done.stdout


def test_quick_leaves_out_what_needs_a_machine_and_what_is_slow() -> None:
    argv = quick_stage(Session()).argv

    assert "not functional and not nodes and not e2e and not slow and not long" in argv


@pytest.mark.parametrize(
    ("mark", "file"), [("functional", "tests/bench/test_benches_run.py"), ("e2e", "tests/e2e/test_apply.py")]
)
def test_tests_with_a_mark_are_found_by_what_their_file_says(mark: str, file: str) -> None:
    found = files_with(mark)

    assert file in found
    assert "tests/tasks/test_stage.py" not in found


@dataclass(frozen=True)
class Marked:
    """A test of a file that has a mark, wherever that comes from."""

    path: Path
    mark: str

    def get_closest_marker(self, name: str) -> object:
        return self if name == self.mark else None


def test_a_mark_that_a_file_does_not_name_is_refused(tmp_path: Path) -> None:
    named, unnamed = tmp_path / "test_named.py", tmp_path / "test_unnamed.py"
    named.write_text("pytestmark = pytest.mark.nodes")
    unnamed.write_text("pytestmark = BOOTS")

    require_named_marks([Marked(named, "nodes"), Marked(unnamed, "slow")])
    with pytest.raises(pytest.UsageError, match=r"test_unnamed\.py: nodes$"):
        require_named_marks([Marked(named, "nodes"), Marked(unnamed, "nodes")])
