"""How a CDI specification's edits get into a container's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.starts.bundles import plain, watched, with_gpus, with_hook
from bench.starts.nvidia import apply_edits, edits_of

SPECIFICATION: dict[str, Any] = {
    "devices": [
        {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/null"}]}},
        {"name": "1", "containerEdits": {"deviceNodes": [{"path": "/dev/gpu1", "hostPath": "/dev/zero"}]}},
    ],
    "containerEdits": {
        "env": ["A=b"],
        "mounts": [{"hostPath": "/h", "containerPath": "/c", "options": ["ro"]}],
        "deviceNodes": [{"path": "/dev/null"}],
        "hooks": [{"hookName": "createContainer", "path": "/hook", "args": ["hook", "do"], "env": ["X=y"]}],
    },
}


def test_edits_of_the_devices_and_of_all_are_applied() -> None:
    config = plain(Path("/root"))
    apply_edits(config, edits_of(SPECIFICATION, ["0", "1"]), with_hooks=True)

    assert config["process"]["env"][-1] == "A=b"
    assert config["mounts"][-1] == {"destination": "/c", "type": "bind", "source": "/h", "options": ["ro"]}
    numbers = {device["path"]: (device["major"], device["minor"]) for device in config["linux"]["devices"]}
    assert numbers == {"/dev/null": (1, 3), "/dev/gpu1": (1, 5)}, "each once, with the host's numbers"
    assert len(config["linux"]["resources"]["devices"]) == 3
    assert config["hooks"] == {"createContainer": [{"path": "/hook", "args": ["hook", "do"], "env": ["X=y"]}]}


def test_hooks_can_be_left_out() -> None:
    config = plain(Path("/root"))
    apply_edits(config, edits_of(SPECIFICATION, ["0"]), with_hooks=False)

    assert "hooks" not in config


def test_our_container_has_the_nodes_of_its_gpus_alone() -> None:
    config = plain(Path("/root"))
    with_gpus(config, 2)

    names = [device["path"] for device in config["linux"]["devices"]]
    assert names == ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia0", "/dev/nvidia1"]


def test_a_watched_hook_is_started_by_the_wrapper() -> None:
    config = plain(Path("/root"))
    with_hook(config, Path("/hook"), ["--config", "c"])
    watched(config, Path("/peak"), Path("/log"))

    (hook,) = config["hooks"]["prestart"]
    assert (hook["path"], hook["args"]) == ("/peak", ["/hook", "prestart", "--config", "c"])
    assert "PEAK_LOG=/log" in hook["env"]
