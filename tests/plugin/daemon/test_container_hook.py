from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from plugin.base.log import Logger
from plugin.daemon.container_hook import HookNotifier, refresh_host_inventory
from plugin.devices.inventory import Inventory
from plugin.settings.node_config import NodeConfig

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path


def refresh(script: Path, timeout_s: float = 20) -> bool:
    return asyncio.run(refresh_host_inventory(script, timeout_s, Logger()))


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        pytest.param("exit 3", "exit code 3: ", id="a failure"),
        pytest.param("sleep 60 & exec sleep 60", "no end after 0.2 s", id="no end"),
        pytest.param("kill -9 $$", "exit code -9: ", id="killed"),
    ],
)
def test_a_failure_is_logged_with_the_command(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, body: str, problem: str
) -> None:
    script = tmp_path / "grapnel hook"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    assert not refresh(script, 0.2 if "sleep" in body else 20)
    fields = caplog.records[-1].__dict__["fields"]
    assert fields == {"command": f"'{script}' refresh", "problem": problem}


def test_a_hook_that_is_not_installed_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert not refresh(tmp_path / "grapnel-hook")
    assert caplog.records[-1].__dict__["fields"]["problem"] == "no such file or directory"


def test_the_hook_sees_nothing_of_the_daemons_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD_LIKE", "1")
    script = tmp_path / "grapnel-hook"
    script.write_text(f"#!/bin/sh\nenv > {tmp_path}/env\n")
    script.chmod(0o755)
    assert refresh(script)
    assert "LD_PRELOAD_LIKE" not in (tmp_path / "env").read_text()


def test_in_a_pod_the_hook_hears_what_nvml_says_and_is_not_run(tmp_path: Path) -> None:
    script = tmp_path / "grapnel-hook"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    script.chmod(0o755)
    config = NodeConfig(hook_path=script, admin_socket=tmp_path / "node.sock", in_pod=True)

    async def tell() -> None:
        tasks: list[Awaitable[None]] = []
        HookNotifier(config, Logger(), tasks.append).tell(config, Inventory(driver_version="550.163.01"))
        await asyncio.gather(*tasks)

    asyncio.run(tell())
    assert config.facts_path.exists()
    assert not (tmp_path / "ran").exists()
