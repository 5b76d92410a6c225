"""Rehearses a change of an engine's configuration: the engine reads it before anything is changed.

A copy of the engine's folder (such as ``/etc/containerd``) with the new files is laid over the folder in a mount
namespace of its own, so the engine finds the main file and every drop-in at their true paths, and its messages name
those.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.engines import (
    CONFIG_FOLDERS,
    complaint_of,
    find_engine,
    parse_command,
)

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.file_set import Change
    from ansible_collections.grapnel.node.plugins.module_utils.host import Host

_TIMEOUT_S = 30.0
_IN_NAMESPACE = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'


def rehearse_engine(host: Host, engine: str, changes: list[Change]) -> str | None:
    """Return an engine's complaint about its configuration as it would be, None when it is content.

    A node without the engine, or without its folder, has nothing that could be rehearsed.
    """
    folder = CONFIG_FOLDERS.get(engine)
    if folder is None:
        return None
    binary = find_engine(host, engine)
    concerned = [change for change in changes if change.after.path.startswith(f"{folder}/")]
    if binary is None or not concerned or not host.path(folder).is_dir():
        return None
    with tempfile.TemporaryDirectory(prefix="grapnel-rehearsal-") as scratch:
        stage = Path(scratch) / engine
        _build_stage(host, folder, stage, concerned)
        command = ["unshare", "--mount", "sh", "-ec", _IN_NAMESPACE, "sh", str(stage), folder]
        done = host.run([*command, *parse_command(engine, binary)], _TIMEOUT_S)
    return complaint_of(engine, done)


def _build_stage(host: Host, folder: str, stage: Path, changes: list[Change]) -> None:
    shutil.copytree(host.path(folder), stage, symlinks=True)
    for change in changes:
        place = stage / PurePosixPath(change.after.path).relative_to(folder)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)  # a link would lead out of the stage
        place.write_bytes(change.after.content.encode("utf-8", "surrogateescape"))
