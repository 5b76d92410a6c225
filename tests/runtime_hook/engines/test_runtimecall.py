"""What the runtime's command line tells: the bundle, where the state calls it ``/``, and that it restores."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest

from runtime_hook.base.errors import StateError
from runtime_hook.inputs.runtimecall import find_bundle, is_restore, read_runtime_call
from tests.runtime_hook.containers import HOOK, REPOSITORY, as_runtime

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CONMON = "/usr/bin/crun --systemd-cgroup --root=/run/crun create --bundle /run/b --pid-file /run/b/pidfile c1"


def test_conmon_calls_crun_with_the_bundle() -> None:
    assert find_bundle(tuple(CONMON.split()), "c1") == "/run/b"


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("", id="nothing, as of a kernel thread"),
        pytest.param("conmon -b /run/b -c c1 -r /usr/bin/crun", id="an engine's monitor"),
        pytest.param("/sbin/init", id="whoever inherits orphans"),
        pytest.param("crun create --bundle /run/b c2", id="another container"),
        pytest.param("crun create --bundle b c1", id="a relative bundle"),
        pytest.param("crun create c1", id="the current folder"),
        pytest.param("crun restore --bundle /run/b c1", id="a restored container"),
        pytest.param("crun start c1", id="a verb without a bundle"),
        pytest.param("crun create --bundle /run/b --config other.json c1", id="another configuration"),
    ],
)
def test_a_call_that_does_not_tell_refuses(line: str) -> None:
    with pytest.raises(StateError, match="names no bundle but /"):
        find_bundle(tuple(line.split()), "c1")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("runc --root /r restore --image-path /i --bundle /b c1", True, id="a restore"),
        pytest.param("runc --of-2030 restore --bundle /b c1", True, id="behind a flag that nobody knows"),
        pytest.param(CONMON, False, id="a creation"),
        pytest.param("runc --root /run/restore create c1", False, id="a folder of that name"),
    ],
)
def test_a_restore_is_told_from_a_creation(line: str, expected: bool) -> None:  # noqa: FBT001 - a table's column
    assert is_restore(tuple(line.split())) is expected


def test_the_parents_command_line_is_read(tmp_path: Path) -> None:
    words = ["crun", "create", "--bundle", "/run/\u00f6 b", "", "c1"]
    ask = (
        "import json; from runtime_hook.inputs.runtimecall import read_runtime_call as read; print(json.dumps(read()))"
    )
    done = as_runtime(
        tmp_path, words, [sys.executable, "-c", f"import sys; sys.path[:0] = {[str(REPOSITORY)]!r}; {ask}"]
    )
    assert json.loads(done.stdout) == words, done.stderr


def test_a_parent_that_is_gone_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getppid", lambda: 0)
    with pytest.raises(StateError, match="/proc/0/cmdline does not exist"):
        read_runtime_call()


@pytest.mark.slow
def test_the_hosts_own_config_json_is_nobodys(configure: Callable[..., list[str]], tmp_path: Path) -> None:
    """With ``/`` as bundle the hook would have read what lies at ``/config.json``."""
    bundle = tmp_path / "b"
    bundle.mkdir()
    content = {"root": {"path": "rootfs"}, "process": {"env": []}, "linux": {}}
    (bundle / "config.json").write_text(json.dumps(content))
    state = json.dumps({"id": "c1", "pid": 1, "bundle": "/", "root": "rootfs"})
    other = state.replace("rootfs", "/var/lib/merged")
    hook = ["/usr/bin/python3", "-IS", str(HOOK), "prestart", *configure()]

    told = as_runtime(tmp_path, ["crun", "create", "--bundle", str(bundle), "c1"], hook, state)
    untold = as_runtime(tmp_path, ["crun", "create", "--bundle", str(bundle), "c2"], hook, state)
    about_another = as_runtime(tmp_path, ["crun", "create", "--bundle", str(bundle), "c1"], hook, other)

    assert (told.returncode, told.stderr) == (0, b"")
    assert untold.returncode == 1
    assert b"names no bundle but /" in untold.stderr
    assert about_another.returncode == 1
    assert b"is about the root" in about_another.stderr
