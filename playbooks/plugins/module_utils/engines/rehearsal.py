"""Rehearses a change of an engine's configuration: the engine reads it before anything is changed.

A copy of the engine's folder (such as ``/etc/containerd``) with the new files is laid over the folder in a mount
namespace of its own, so the engine finds the main file and every drop-in at their true paths, and its messages name
those. containerd is asked twice, without our drop-in and with it: what it would run with may differ in our handler
alone.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.engines.containerd_dumps import (
    find_parser,
    foreign_differences,
)
from ansible_collections.grapnel.node.plugins.module_utils.engines.found import complaint_of, find_engine, secret_texts
from ansible_collections.grapnel.node.plugins.module_utils.engines.table import CONTAINERD, ENGINES

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.files.file_set import FileDifference
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished, Host

_ADOPTED_DROP_IN = f"{CONTAINERD.drop_ins}/99-nvidia-adopted.toml"
_TIMEOUT_S = 30.0
# The script is constant; stage, folder and command are its arguments and never parsed by the shell.
_IN_NAMESPACE = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'


def rehearse_engine(host: Host, name: str, changes: list[FileDifference]) -> str | None:
    """Return what is wrong with an engine's configuration as it would be, None when nothing is.

    A node without the engine, or without its folder, has nothing that could be rehearsed.
    """
    engine = ENGINES.get(name)
    if engine is None or not engine.question:
        return None
    folder, binary = engine.folder, find_engine(host, engine)
    concerned = [change for change in changes if change.after.path.startswith(f"{folder}/")]
    if binary is None or not concerned or not host.path(folder).is_dir():
        return None
    question = [binary, *engine.question]
    with tempfile.TemporaryDirectory(prefix="grapnel-rehearsal-") as scratch:
        stage = _Stage(host, folder, Path(scratch) / name)
        before = _ask_before(host, question, stage, concerned) if engine is CONTAINERD else None
        for change in concerned:
            if change.after.is_absent:
                stage.remove(change.after.path)
            else:
                stage.write(change.after.path, change.after.content, change.after.mode)
        after = stage.ask(question)
        complaint = complaint_of(engine, after, secret_texts(stage.place))
        difference = (
            None
            if before is None or complaint is not None
            else foreign_differences(before.stdout, after.stdout, find_parser(host, Path(scratch)))
        )
    if complaint is not None:
        return f"{name} does not accept its configuration, nothing was changed: {complaint}"
    return difference and f"{name} would not run as before, nothing was changed: {difference}"


def _ask_before(host: Host, question: list[str], stage: _Stage, changes: list[FileDifference]) -> Finished | None:
    """Return what containerd would run with if our drop-in were empty; None when it does not run with that at all.

    A main file that is not there, or says what Docker's package brings, says nothing of the site's. A drop-in of
    another product that is moved away from the place of ours is in force as it is.
    """
    if all(change.after.path != _ADOPTED_DROP_IN for change in changes):
        for path in CONTAINERD.marked:
            stage.write(path, "", 0o600)
    text = host.read_text(CONTAINERD.main)
    if text is None or _is_dockers_default(text):
        stage.write(CONTAINERD.main, "", 0o600)
    found = stage.ask(question)
    return None if found.return_code else found


def _is_dockers_default(text: str) -> bool:
    """Tell whether a main file has the one line of Docker's package, which a plan takes out, and no other."""
    lines = (line.partition("#")[0] for line in text.splitlines())
    said = ["".join(line.split()).replace("'", '"') for line in lines if line.strip()]
    return said == ['disabled_plugins=["cri"]']


class _Stage:
    """A copy of an engine's folder that commands see in the folder's place."""

    def __init__(self, host: Host, folder: str, place: Path) -> None:
        self.place = place
        self._host, self._folder = host, folder
        shutil.copytree(host.path(folder), place, symlinks=True)

    def remove(self, path: str) -> None:
        """Remove a file from the copy, which has folders of its own on the way afterwards."""
        self.write(path, "", 0o600)
        (self.place / PurePosixPath(path).relative_to(self._folder)).unlink(missing_ok=True)

    def write(self, path: str, content: str, mode: int) -> None:
        """Write a file into the copy; links never lead out of it."""
        place = self.place
        *folders, name = PurePosixPath(path).relative_to(self._folder).parts
        for folder in folders:
            place = place / folder
            if place.is_symlink():
                _replace_by_copy(place, self._host.path(str(PurePosixPath(self._folder, *folders))))
            place.mkdir(exist_ok=True)
        (place / name).unlink(missing_ok=True)
        (place / name).touch(mode=0o600)
        (place / name).write_bytes(content.encode("utf-8", "surrogateescape"))
        (place / name).chmod(mode)

    def ask(self, command: list[str]) -> Finished:
        """Run a command that sees the copy."""
        namespace = ["unshare", "--mount", "sh", "-ec", _IN_NAMESPACE, "sh", str(self.place), self._folder]
        return self._host.run([*namespace, *command], _TIMEOUT_S)


def _replace_by_copy(link: Path, folder: Path) -> None:
    """Put a copy of what a link leads to in the link's place."""
    link.unlink()
    if folder.is_dir():
        shutil.copytree(folder, link, symlinks=True)
