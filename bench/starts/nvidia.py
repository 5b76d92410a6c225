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

TOOLKIT = ("github.com/NVIDIA/nvidia-container-toolkit", "v1.20.1", ("nvidia-ctk", "nvidia-cdi-hook"))
DEVICE_PLUGIN = ("github.com/NVIDIA/k8s-device-plugin", "v0.19.3", ("nvidia-device-plugin",))
# The NVML that they load at run time is not there when they are linked.
_LINKING = "-s -w '-extldflags=-Wl,--export-dynamic -Wl,--unresolved-symbols=ignore-in-object-files -Wl,-z,lazy'"


def tools() -> Path | None:
    """Return the folder with the toolkit's programs; None where Go is not present."""
    return _built(f"nvidia-{TOOLKIT[1]}", *TOOLKIT)


def device_plugin() -> Path | None:
    """Return their device plugin; None where Go is not present."""
    folder = _built(f"nvidia-device-plugin-{DEVICE_PLUGIN[1]}", *DEVICE_PLUGIN)
    return None if folder is None else folder / DEVICE_PLUGIN[2][0]


def _built(name: str, module: str, version: str, programs: Sequence[str]) -> Path | None:
    """Return the folder with a module's programs, built now if the cache has none (a minute)."""
    folder = cache_dir() / "bench" / name
    if folder.is_dir():
        return folder
    if shutil.which("go") is None:
        return None
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".nvidia-", dir=folder.parent) as scratch:
        made, source = Path(scratch) / "made", Path(scratch) / "source"
        made.mkdir()
        _download(module, version, source)
        packages = [f"./cmd/{program}" for program in programs]
        arguments = ("-mod=mod", "-ldflags", _LINKING, "-o", str(made), *packages)
        _go("build", *arguments, folder=source)
        made.rename(folder)
    return folder


def _download(module: str, version: str, folder: Path) -> None:
    """Copy a module to a folder that can be written to: `go install` would ask the proxy for what it does not have."""
    found = json.loads(_go("mod", "download", "-json", f"{module}@{version}"))
    shutil.copytree(found["Dir"], folder, copy_function=shutil.copyfile)
    folder.chmod(0o755)


def _go(*arguments: str, folder: Path | None = None) -> str:
    variables = {**os.environ, **environment(), "CGO_ENABLED": "1"}
    done = subprocess.run(["go", *arguments], check=True, cwd=folder, env=variables, stdout=subprocess.PIPE, text=True)
    return done.stdout


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


def mounted(edits: Sequence[dict[str, Any]]) -> set[str]:
    """Return where edits mount something."""
    return {entry["containerPath"] for edit in edits for entry in edit.get("mounts", [])}


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
