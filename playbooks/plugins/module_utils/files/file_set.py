"""Replaces a set of files that belong together, all or none, and tells how they differ from what is there.

New texts are written beside their places first; only when all of them are on the disk are they renamed, in the order
of the set, each over the old file, of which a second link is kept until the last one is in its place. So a reader sees
the old text or the new one, a failure on the way puts everything back without needing a byte of space, and a run that
is killed between two renames leaves whole files: the first ones new, the others old. The planner orders files so that
one only refers to earlier ones; the next run does the rest. What may read the files, and what has to restart for them,
belongs to `configuration`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from ansible_collections.grapnel.node.plugins.module_utils.files.leftovers import is_leftover
from ansible_collections.grapnel.node.plugins.module_utils.files.links import LinkError, follow_links

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

Rename = Callable[[Path, Path], Any]

_MODE = re.compile(r"0[0-7]{3}")
_OWN = (os.geteuid(), os.getegid())
_NOT_SHOWN = "the text is not shown: not everybody on the node may read this file\n"


class FileSetError(Exception):
    """Files cannot be described or exchanged; the message says what became of them.

    ``is_undone``: everything is as it was.
    """

    def __init__(self, message: str, *, is_undone: bool = True) -> None:
        super().__init__(message)
        self.is_undone = is_undone


@dataclass(frozen=True)
class FileText:
    """One file; without an ``owner`` it belongs to the user that the module runs as, root on a node.

    ``is_absent``: it is to be taken away.
    """

    path: str
    content: str
    mode: int
    owner: tuple[int, int] | None = None
    is_absent: bool = False

    @property
    def is_secret(self) -> bool:
        """Not everybody may read the file."""
        return not self.mode & stat.S_IROTH


@dataclass(frozen=True)
class FileDifference:
    """A file that is not as it should be; ``before`` is None when it is not there.

    ``place`` is the file that is replaced: what ``after.path`` links to, if it is a link.
    """

    before: FileText | None
    after: FileText
    place: str

    @property
    def is_secret(self) -> bool:
        """Not everybody may read the file, now or afterwards, so its text is not shown."""
        return self.after.is_secret or (self.before is not None and self.before.is_secret)


def parse_files(given: Iterable[Mapping[str, Any]], absent: Iterable[str] = ()) -> list[FileText]:
    """Return files as a module is given them, those to take away first; raises `FileSetError`."""
    wanted = [_parse_file({"path": path, "content": "", "mode": "0644"}, is_absent=True) for path in absent]
    wanted += [_parse_file(one) for one in given]
    if len({one.path for one in wanted}) < len(wanted):
        raise FileSetError("a path is given twice")
    return wanted


def with_preconditions_met(
    host: Host, files: Iterable[Mapping[str, Any]], preconditions: Mapping[str, Mapping[str, str]]
) -> list[Mapping[str, Any]]:
    """Return the files that may be written.

    ``preconditions``: by the path of a file, the SHA-256 of other files by their paths, "" for one that must not exist.
    """
    digests = {path: _digest(host, path) for expected in preconditions.values() for path in expected}
    return [
        file
        for file in files
        if all(digests[path] == digest for path, digest in preconditions.get(str(file["path"]), {}).items())
    ]


def _digest(host: Host, path: str) -> str:
    try:
        with host.open(path) as stream:
            return hashlib.sha256(stream.read()).hexdigest()
    except OSError:
        return ""


def _parse_file(given: Mapping[str, Any], *, is_absent: bool = False) -> FileText:
    path, mode = str(given["path"]), str(given["mode"])
    if not path.startswith("/") or not path.isprintable() or os.path.normpath(path) != path:
        raise FileSetError(f"{path!r} is not an absolute path in normal form")
    if not _MODE.fullmatch(mode):
        raise FileSetError(f"{path}: mode {mode!r} is not four octal digits such as '0644'")
    if given.get("withheld"):
        raise FileSetError(f"the text of {path} is left out of this plan, which is a copy for display")
    return FileText(path, str(given["content"]), int(mode, 8), is_absent=is_absent)


def find_changes(host: Host, wanted: list[FileText]) -> list[FileDifference]:
    """Return the files that differ in text, mode or owner; raises `FileSetError` for what is no plain file."""
    found = (
        FileDifference(_present(host, one.path, place), one, place) for one, place in zip(wanted, _places(host, wanted))
    )
    return [change for change in found if _differs(change)]


def _places(host: Host, wanted: list[FileText]) -> list[str]:
    try:
        places = [follow_links(host, one.path) for one in wanted]
    except LinkError as error:
        raise FileSetError(f"nothing was changed: {error}") from error
    if len(set(places)) < len(places):
        raise FileSetError("nothing was changed: two of the files are links to the same one")
    return places


def _present(host: Host, path: str, place: str) -> FileText | None:
    """Return the file at ``place``, where the links of ``path`` lead."""
    try:
        status = host.path(place).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(status.st_mode):
        leads = "" if place == path else f" leads to {place}, which"
        raise FileSetError(f"nothing was changed: {path}{leads} is not a plain file")
    text = host.path(place).read_bytes().decode("utf-8", "surrogateescape")
    return FileText(place, text, stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid))


def _differs(change: FileDifference) -> bool:
    before, after = change.before, change.after
    if before is None or after.is_absent:
        return (before is None) is not after.is_absent
    return (before.content, before.mode, before.owner) != (after.content, after.mode, _OWN)


def swap_in(host: Host, changes: list[FileDifference], rename: Rename = os.replace) -> None:
    """Put every file in its place, or none; raises `FileSetError`."""
    _exchange(host, [(change.place, None if change.after.is_absent else change.after) for change in changes], rename)


def swap_back(host: Host, changes: list[FileDifference], rename: Rename = os.replace) -> None:
    """Put back what was there before, in reverse order, all or none; raises `FileSetError`."""
    _exchange(host, [(change.place, change.before) for change in reversed(changes)], rename)


def _exchange(host: Host, wanted: list[tuple[str, FileText | None]], rename: Rename) -> None:
    """Replace files; None removes one."""
    steps = [_Step(host.path(path), text) for path, text in wanted]
    current = ""
    try:
        for step in steps:
            current = str(step.place)
            step.prepare()
        for step in steps:
            current = str(step.place)
            step.swap(rename)
    except OSError as error:
        left = [failure for step in reversed(steps) if (failure := step.undo())]
        outcome = f"could not be put back: {', '.join(left)}" if left else "all files are as they were"
        raise FileSetError(
            f"{current} could not be written: {error.strerror or error}; {outcome}", is_undone=not left
        ) from error
    for folder in {step.place.parent for step in steps}:
        _sync(folder)
    for step in steps:
        step.settle()


class _Step:
    """The exchange of one file: the new text beside its place, a second link to the old one, a rename."""

    def __init__(self, place: Path, text: FileText | None) -> None:
        self.place, self.text = place, text
        self._new = place.with_name(f".{place.name}.grapnel-new")
        self._old = place.with_name(f".{place.name}.grapnel-old")
        self._folders: list[Path] = []
        self._is_kept = self._is_done = False

    def prepare(self) -> None:
        """Write the new text and keep the old file; what a killed run has left of either is replaced."""
        self._make_folders()
        if self.text is not None:
            self._new.unlink(missing_ok=True)
            _write(self._new, self.text)
        self._old.unlink(missing_ok=True)
        if self.place.exists():
            os.link(self.place, self._old)
            self._is_kept = True

    def swap(self, rename: Rename) -> None:
        """Put the new file in its place."""
        if self.text is None:
            self.place.unlink(missing_ok=True)
        else:
            rename(self._new, self.place)
        self._is_done = True

    def undo(self) -> str | None:
        """Put the old file back and take away what was made; returns why that was not possible."""
        try:
            if self._is_done and self._is_kept:
                self._old.replace(self.place)
            elif self._is_done:
                self.place.unlink(missing_ok=True)
        except OSError as error:
            return f"{self.place} ({error.strerror or error})"
        self.settle()
        with contextlib.suppress(OSError):  # somebody has put something into it
            for folder in reversed(self._folders):
                folder.rmdir()
        return None

    def settle(self) -> None:
        """Take away what lies beside the file."""
        for beside in (self._new, self._old):
            with contextlib.suppress(OSError):
                beside.unlink()

    def _make_folders(self) -> None:
        missing = [folder for folder in self.place.parents if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(mode=0o755)
            self._folders.append(folder)


def _write(place: Path, wanted: FileText) -> None:
    """Write a new file that nobody else can read before it has its mode and owner."""
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(wanted.content.encode("utf-8", "surrogateescape"))
        os.fchown(stream.fileno(), *(wanted.owner or _OWN))
        os.fchmod(stream.fileno(), wanted.mode)
        stream.flush()
        os.fsync(stream.fileno())


def _sync(folder: Path) -> None:
    """Bring renames in a folder to the disk; where a file system cannot, they get there by themselves."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_leftovers(host: Host, folder: str) -> None:
    """Remove from a folder, and those below it, what a killed run has left beside the files."""
    for below, _, names in os.walk(host.path(folder)):
        for name in filter(is_leftover, names):
            with contextlib.suppress(OSError):
                Path(below, name).unlink()


def describe(changes: list[FileDifference]) -> list[dict[str, str]]:
    """Return the changes as Ansible shows them with ``--diff``; of a secret file only that it changes."""
    return [_describe(change) for change in changes]


def _describe(change: FileDifference) -> dict[str, str]:
    headers = {"before_header": change.after.path, "after_header": change.after.path}
    if change.is_secret:
        return {**headers, "prepared": f"{change.after.path}: {_NOT_SHOWN}"}
    before = "" if change.before is None else change.before.content
    return {**headers, "before": before, "after": change.after.content}
