"""`grapnel-node holders`, with a process tree in a folder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from plugin.cli.holders import show_holders

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "proc").mkdir()
    path = tmp_path / "node.json"
    path.write_text(json.dumps({"sysRoot": str(tmp_path / "sys")}))
    return path


def hold(proc: Path, pid: int, *devices: str) -> None:
    (proc / f"{pid}/fd").mkdir(parents=True)
    for number, device in enumerate(devices):
        (proc / f"{pid}/fd/{number}").symlink_to(device)
    (proc / f"{pid}/maps").write_text("")
    (proc / f"{pid}/comm").write_text("python3\n")
    (proc / f"{pid}/cgroup").write_text("0::/system.slice/job.service\n")


def test_holders_are_shown_with_what_to_do_and_nothing_is_changed(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hold(tmp_path / "proc", 4711, "/dev/nvidia0", "/dev/nvidiactl")
    assert show_holders(config, as_json=False, proc=tmp_path / "proc") == 0
    assert capsys.readouterr().out.splitlines() == [
        "     4711  python3           job.service  /dev/nvidia0 /dev/nvidiactl",
        "           systemctl stop -- job.service",
    ]
    assert show_holders(config, as_json=True, proc=tmp_path / "proc") == 0
    told = json.loads(capsys.readouterr().out)
    assert [(each["pid"], each["unit"], each["advice"]) for each in told["holders"]] == [
        (4711, "job.service", "systemctl stop -- job.service")
    ]
    assert told["problems"] == []


def test_a_node_whose_gpus_nobody_holds_says_so(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show_holders(config, as_json=False, proc=tmp_path / "proc") == 0
    assert capsys.readouterr().out == "nobody holds a GPU\n"
