"""The module itself, as a process: what of its arguments can be seen afterwards."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SECRET = "hunter2hunter2"  # noqa: S105 - what must not be seen
ROOT = Path(__file__).parents[2]
MODULE = [sys.executable, "-m", "ansible_collections.grapnel.node.plugins.modules.configuration"]


def run(
    tmp_path: Path,
    *before: str,
    **arguments: Any,
) -> tuple[int, str, dict[str, Any]]:
    """Run the module, behind another command; returns exit status, everything it printed, and its result."""
    place = tmp_path / "arguments.json"
    task = {"_ansible_diff": True, "_ansible_verbosity": 4, "_ansible_no_log": False}
    place.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": {"unit": "", **task, **arguments}}))
    done = subprocess.run(
        [*before, *MODULE, str(place)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}/playbooks/collections"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr, json.loads(done.stdout)


def file(path: Path, **changes: object) -> dict[str, object]:
    return {"path": str(path), "content": f"password = {SECRET}\n", "mode": "0600", **changes}


@pytest.mark.slow
def test_a_secret_text_is_written_and_never_printed(tmp_path: Path) -> None:
    place = tmp_path / "config.toml"
    place.write_text(f"password = old-{SECRET}\n")

    status, printed, result = run(tmp_path, files=[file(place)])

    assert (status, result["changed"], result["paths"]) == (0, True, [str(place)])
    assert place.read_text() == f"password = {SECRET}\n"
    assert place.stat().st_mode & 0o777 == 0o600
    assert SECRET not in printed
    assert result["invocation"]["module_args"]["unit"] == ""


@pytest.mark.slow
def test_a_text_that_everybody_may_read_is_shown(tmp_path: Path) -> None:
    _, _, result = run(tmp_path, files=[file(tmp_path / "x", content="a = 1\n", mode="0644")])

    assert result["diff"][0]["after"] == "a = 1\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "words"),
    [
        pytest.param([{"mode": "0600"}], "missing required arguments: content, path", id="half a file"),
        pytest.param([{"withheld": True}], "left out of this plan", id="a plan to be shown"),
        pytest.param([{"mode": "u=rw"}], "mode 'u=rw' is not four octal digits", id="a mode in words"),
        pytest.param([{"path": "x"}], "'x' is not an absolute path", id="a relative path"),
        pytest.param([{"withheld": "perhaps"}], "perhaps", id="a word where a boolean should be"),
    ],
)
def test_arguments_that_are_wrong_change_nothing_and_are_not_printed(
    files: list[dict[str, object]], words: str, tmp_path: Path
) -> None:
    place = tmp_path / "config.toml"
    whole = {} if "missing" in words else file(tmp_path / "other")

    status, printed, result = run(tmp_path, files=[file(place), *({**whole, **each} for each in files)])

    assert status != 0
    assert words in result["msg"]
    assert SECRET not in printed
    assert not place.exists()


@pytest.mark.slow
def test_a_failure_in_the_middle_is_told_without_the_texts(tmp_path: Path) -> None:
    first, blocked = tmp_path / "first", tmp_path / "blocked"
    blocked.write_text("a file where a folder should be")

    status, printed, result = run(tmp_path, files=[file(first), file(blocked / "second")])

    assert status != 0
    assert result["msg"].endswith("all files are as they were")
    assert SECRET not in printed
    assert not first.exists()


@pytest.mark.functional
def test_the_system_log_hears_nothing_of_the_texts(tmp_path: Path) -> None:
    devices = tmp_path / "dev"
    devices.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.bind(str(devices / "log"))
        log.setblocking(False)
        own = ["unshare", "--mount", "sh", "-ec", 'mount --bind "$0" /dev && exec "$@"', str(devices)]
        subprocess.run([*own, sys.executable, "-c", "import syslog; syslog.syslog('heard')"], check=True, timeout=60)
        assert b"heard" in log.recv(65536)

        status, _, _ = run(tmp_path, *own, files=[file(tmp_path / "config.toml")])

        with pytest.raises(BlockingIOError):
            log.recv(65536)
    assert status == 0
