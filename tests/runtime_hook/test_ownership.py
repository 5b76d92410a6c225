"""Which files count as root's of the host, seen from a user namespace."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runtime_hook.base.ownership import are_roots_alone, belongs_to_hosts_root, is_root_unmapped
from tests.runtime_hook.containers import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator

USER = 41234
READ = """
import sys
sys.path.insert(0, sys.argv[1])
from runtime_hook.base.errors import ConfigError
from runtime_hook.base.reading import read_trusted
try:
    read_trusted(sys.argv[2], 1 << 20, ConfigError)
    print("trusted")
except ConfigError as reason:
    print(reason.what)
"""


@pytest.mark.parametrize(
    ("uid_map", "unmapped"),
    [
        pytest.param("         0       1234          1\n", True, id="one user"),
        pytest.param("0 1000 1\n1 100000 65536\n", True, id="a user and subordinate ids"),
        pytest.param("0 0 4294967295\n", False, id="the host"),
        pytest.param("0 1000 1\n5 0 1\n", False, id="root of the host has an id inside"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_root_outside_has_an_id_or_none(uid_map: str, unmapped: bool) -> None:  # noqa: FBT001 - a table's column
    assert is_root_unmapped(uid_map) == unmapped


def test_folders_count_when_nobody_else_may_write_there(tmp_path: Path) -> None:
    assert are_roots_alone("/usr", 0)
    assert not are_roots_alone("/usr", 65534)
    assert not are_roots_alone(str(tmp_path), 0), "/tmp is on the way"


def test_on_the_host_nothing_but_the_owner_counts() -> None:
    assert not belongs_to_hosts_root("/usr/bin", 65534)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Make a folder that every user reaches, with the hook in it: a checkout may be where only root does."""
    path = Path(tempfile.mkdtemp(prefix="grapnel-test-"))
    path.chmod(0o755)
    shutil.copytree(REPOSITORY / "runtime_hook", path / "runtime_hook", ignore=shutil.ignore_patterns("__pycache__"))
    for one in path.rglob("*"):
        one.chmod(0o755 if one.is_dir() else 0o644)
    yield path
    shutil.rmtree(path)


def read_in_namespace(folder: Path, path: Path) -> str:
    user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "unshare", "--map-root-user"]
    argv = [*user, "/usr/bin/python3", "-ISc", READ, str(folder), str(path)]
    return subprocess.run(argv, capture_output=True, text=True, check=True, cwd="/").stdout.strip()


@pytest.mark.functional
def test_a_file_of_the_hosts_root_is_trusted_in_a_namespace_without_it(folder: Path) -> None:
    assert read_in_namespace(folder, Path("/etc/passwd")) == "trusted"


@pytest.mark.functional
@pytest.mark.parametrize(
    ("owner", "mode"),
    [
        pytest.param(USER + 1, 0o644, id="of another user"),
        pytest.param(0, 0o644, id="of root, in a place where another user could have put one"),
        pytest.param(USER, 0o666, id="the user's own, writable by all"),
    ],
)
def test_a_file_that_another_could_have_put_there_is_not(folder: Path, owner: int, mode: int) -> None:
    path = folder / "hook.json"
    path.write_text("{}")
    path.chmod(mode)
    os.chown(path, owner, owner)
    assert read_in_namespace(folder, path) != "trusted"
