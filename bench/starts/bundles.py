"""OCI bundles of the containers that are started: with nothing, with our hook, with NVIDIA's edits and hooks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bench.starts.driver import ALLOCATED, GPUS, nodes
from bench.starts.nvidia import apply_edits

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_NAMESPACES = ("pid", "mount", "ipc", "uts", "network")
_CAPABILITIES = ["CAP_CHOWN", "CAP_MKNOD", "CAP_SETUID"]
_HOOK_ENVIRONMENT = ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]


def plain(root: Path) -> dict[str, Any]:
    """Return the configuration of a container that ends at once."""
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": ["/bin/busybox", "true"],
            "env": ["PATH=/bin:/usr/bin"],
            "cwd": "/",
            "noNewPrivileges": True,
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), _CAPABILITIES),
        },
        "root": {"path": str(root), "readonly": False},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
        ],
        "linux": {
            "namespaces": [{"type": kind} for kind in _NAMESPACES],
            "devices": [],
            "resources": {"devices": [{"allow": False, "access": "rwm"}]},
        },
    }


def with_hook(config: dict[str, Any], hook: Path, arguments: Sequence[str]) -> None:
    """Add our hook."""
    entry = {"path": str(hook), "args": ["grapnel-hook", "prestart", *arguments], "env": _HOOK_ENVIRONMENT}
    config["hooks"] = {"prestart": [entry]}


def with_gpus(config: dict[str, Any], gpus: int) -> None:
    """Add what the device plugin places: the nodes of so many GPUs, and the control nodes."""
    names = {*ALLOCATED, *(f"nvidia{minor}" for minor in range(gpus))}
    for name, (major, minor) in nodes(GPUS):
        if name in names:
            numbers = {"type": "c", "major": major, "minor": minor}
            config["linux"]["devices"].append(
                {"path": f"/dev/{name}", "fileMode": 0o666, "uid": 0, "gid": 0, **numbers}
            )
            config["linux"]["resources"]["devices"].append({"allow": True, "access": "rw", **numbers})


def with_edits(config: dict[str, Any], edits: Sequence[dict[str, Any]], *, with_hooks: bool = True) -> None:
    """Add NVIDIA's edits."""
    apply_edits(config, edits, with_hooks=with_hooks)


def with_every_capability(config: dict[str, Any]) -> None:
    """Ask for all that the driver has, as NVIDIA's edits give it."""
    config["process"]["env"].append("NVIDIA_DRIVER_CAPABILITIES=all")


def watched(config: dict[str, Any], wrapper: Path, log: Path) -> None:
    """Put a wrapper around every hook: it starts what stands in the first argument."""
    for hooks in config.get("hooks", {}).values():
        for hook in hooks:
            hook["args"] = [hook["path"], *hook["args"][1:]]
            hook["env"] = [*hook.get("env", []), f"PEAK_LOG={log}"]
            hook["path"] = str(wrapper)


def write(folder: Path, config: dict[str, Any]) -> None:
    """Write a bundle."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
