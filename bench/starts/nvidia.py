"""NVIDIA's own tools beside ours: built by Go from its module proxy, fed with the same driver tree.

Nothing of theirs is kept here but the name and the version of the module; what is built lies in the cache.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.golang.toolchain import environment
from lab.machine.folders import cache_dir

if TYPE_CHECKING:
    from collections.abc import Sequence

MODULE, VERSION = "github.com/NVIDIA/nvidia-container-toolkit", "v1.20.1"
PROGRAMS = ("nvidia-ctk", "nvidia-cdi-hook")
# The NVML that they load at run time is not there when they are linked.
_LINKING = "-s -w '-extldflags=-Wl,--export-dynamic -Wl,--unresolved-symbols=ignore-in-object-files -Wl,-z,lazy'"


def tools() -> Path | None:
    """Return the folder with the programs, built now if the cache has none (a minute); None where Go is not present."""
    folder = cache_dir() / "bench" / f"nvidia-{VERSION}"
    if folder.is_dir():
        return folder
    if shutil.which("go") is None:
        return None
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".nvidia-", dir=folder.parent) as scratch:
        made = Path(scratch) / "made"
        packages = [f"{MODULE}/cmd/{program}@{VERSION}" for program in PROGRAMS]
        variables = {**environment(), "GOBIN": str(made), "CGO_ENABLED": "1"}
        subprocess.run(["go", "install", "-ldflags", _LINKING, *packages], check=True, env={**os.environ, **variables})
        made.rename(folder)
    return folder


def generate(folder: Path, driver_root: Path) -> dict[str, Any]:
    """Return the CDI specification that they make of a driver tree."""
    argv = [str(folder / "nvidia-ctk"), "cdi", "generate", "--format", "json", "--driver-root", str(driver_root)]
    argv += ["--nvidia-cdi-hook-path", str(folder / "nvidia-cdi-hook")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"nvidia-ctk failed: {done.stderr}")
    specification: dict[str, Any] = json.loads(done.stdout)
    return specification


def edits_of(specification: dict[str, Any], devices: Sequence[str]) -> list[dict[str, Any]]:
    """Return the container edits of some devices and those that every container gets."""
    by_name = {device["name"]: device for device in specification["devices"]}
    return [by_name[name]["containerEdits"] for name in devices] + [specification["containerEdits"]]


def apply_edits(config: dict[str, Any], edits: Sequence[dict[str, Any]], *, with_hooks: bool) -> None:
    """Carry edits into an OCI configuration, as an engine does (CDI specification, "OCI Edits")."""
    for edit in edits:
        config["process"]["env"] += edit.get("env", [])
        config["mounts"] += [_mount(entry) for entry in edit.get("mounts", [])]
        for entry in edit.get("deviceNodes", []):
            _add_device(config["linux"], entry)
        for entry in edit.get("hooks", []) if with_hooks else ():
            hook = {key: entry[key] for key in ("path", "args", "env") if key in entry}
            config.setdefault("hooks", {}).setdefault(entry["hookName"], []).append(hook)


def _mount(entry: dict[str, Any]) -> dict[str, Any]:
    options = entry.get("options", [])
    return {"destination": entry["containerPath"], "type": "bind", "source": entry["hostPath"], "options": options}


def _add_device(linux: dict[str, Any], entry: dict[str, Any]) -> None:
    path, status = entry["path"], Path(entry.get("hostPath", entry["path"])).stat()
    numbers = {"type": "c", "major": os.major(status.st_rdev), "minor": os.minor(status.st_rdev)}
    if path not in {device["path"] for device in linux["devices"]}:
        linux["devices"].append({"path": path, "fileMode": 0o666, "uid": 0, "gid": 0, **numbers})
        linux["resources"]["devices"].append({"allow": True, "access": "rwm", **numbers})
