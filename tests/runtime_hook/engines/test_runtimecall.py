"""What the runtime's command line tells of a container whose bundle the state calls ``/``."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from runtime_hook.bundle import State
from runtime_hook.engines.runtimecall import check_root, read_runtime_call, with_bundle
from runtime_hook.errors import StateError
from tests.runtime_hook.containers import HOOK, REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STATE = State("c1", 7, "/", "rootfs")
CONMON = "/usr/bin/crun --systemd-cgroup --root=/run/crun create --bundle /run/b --pid-file /run/b/pidfile c1"


def as_runtime(folder: Path, words: list[str], child: list[str], stdin: str = "") -> subprocess.CompletedProcess[bytes]:
    """Run a program below a shell that has a runtime's command line: its verb is the script that the shell runs."""
    (folder / words[1]).write_text(f"{shlex.join(child)}\nexit $?\n")
    with_words = [sys.executable, "-c", f"import os; os.execv('/bin/bash', {words!r})"]
    return subprocess.run(with_words, cwd=folder, input=stdin.encode(), capture_output=True, check=False)


def test_conmon_calls_crun_with_the_bundle() -> None:
    assert with_bundle(STATE, tuple(CONMON.split())) == State("c1", 7, "/run/b", "rootfs")


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
        with_bundle(STATE, tuple(line.split()))


def test_a_configuration_about_another_root_is_refused() -> None:
    found = State("c1", 7, "/run/b", "/var/lib/merged")
    check_root(found, "/var/lib/merged")
    check_root(State("c1", 7, "/run/b", "rootfs"), "/run/b/rootfs")
    with pytest.raises(StateError, match="is about the root /run/b/rootfs"):
        check_root(found, "/run/b/rootfs")


def test_the_parents_command_line_is_read(tmp_path: Path) -> None:
    words = ["crun", "create", "--bundle", "/run/\u00f6 b", "", "c1"]
    ask = (
        "import json; from runtime_hook.engines.runtimecall import read_runtime_call as read; print(json.dumps(read()))"
    )
    done = as_runtime(
        tmp_path, words, [sys.executable, "-c", f"import sys; sys.path[:0] = {[str(REPOSITORY)]!r}; {ask}"]
    )
    assert json.loads(done.stdout) == words, done.stderr


def test_a_parent_that_is_gone_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getppid", lambda: 0)
    with pytest.raises(StateError, match="/proc/0/cmdline does not exist"):
        read_runtime_call()


def test_the_hosts_own_config_json_is_nobodys(configure: Callable[..., list[str]], tmp_path: Path) -> None:
    """With ``/`` as bundle the hook would have read what lies at ``/config.json``."""
    bundle = tmp_path / "b"
    bundle.mkdir()
    content = {"root": {"path": "rootfs"}, "process": {"env": []}, "linux": {}}
    (bundle / "config.json").write_text(json.dumps(content))
    state = json.dumps({"id": "c1", "pid": 1, "bundle": "/", "root": "rootfs"})
    hook = ["/usr/bin/python3", "-IS", str(HOOK), "prestart", *configure()]

    told = as_runtime(tmp_path, ["crun", "create", "--bundle", str(bundle), "c1"], hook, state)
    untold = as_runtime(tmp_path, ["crun", "create", "--bundle", str(bundle), "c2"], hook, state)

    assert (told.returncode, told.stderr) == (0, b"")
    assert untold.returncode == 1
    assert b"names no bundle but /" in untold.stderr
