"""Rehearses a change of containerd's configuration: the engine reads it before anything is changed.

A copy of ``/etc/containerd`` with the new files is laid over the folder in a mount namespace of its own, so containerd
finds the main file, its imports and every drop-in at their true paths, and its messages name those.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.engines import CONTAINERD_CONFIG, containerd_dump

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.file_set import Change
    from ansible_collections.grapnel.node.plugins.module_utils.host import Host

_FOLDER = str(PurePosixPath(CONTAINERD_CONFIG).parent)
_TIMEOUT_S = 30.0
_IN_NAMESPACE = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'


def rehearse_containerd(host: Host, changes: list[Change]) -> str | None:
    """Return containerd's complaint about its configuration as it would be, None when it is content.

    A node without containerd, or without its folder, has nothing that could be rehearsed.
    """
    binary = host.find_command("containerd")
    concerned = [change for change in changes if change.after.path.startswith(f"{_FOLDER}/")]
    if binary is None or not concerned or not host.path(_FOLDER).is_dir():
        return None
    with tempfile.TemporaryDirectory(prefix="grapnel-rehearsal-") as scratch:
        stage = Path(scratch) / "containerd"
        _build_stage(host, stage, concerned)
        command = ["unshare", "--mount", "sh", "-ec", _IN_NAMESPACE, "sh", str(stage), _FOLDER]
        done = host.run([*command, *containerd_dump(binary)], _TIMEOUT_S)
    return done.complaint if done.return_code else None


def _build_stage(host: Host, stage: Path, changes: list[Change]) -> None:
    shutil.copytree(host.path(_FOLDER), stage, symlinks=True)
    for change in changes:
        place = stage / PurePosixPath(change.after.path).relative_to(_FOLDER)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)  # a link would lead out of the stage
        place.write_bytes(change.after.content.encode("utf-8", "surrogateescape"))
