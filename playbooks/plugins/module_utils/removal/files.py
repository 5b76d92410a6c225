"""Decides what becomes of the files that grapnel changed: which are given back, and what cannot be."""

from __future__ import annotations

import stat
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.record.durable import write_durably
from ansible_collections.grapnel.node.plugins.module_utils.engines.table import ENGINES
from ansible_collections.grapnel.node.plugins.module_utils.files.file_set import FileDifference, FileText, find_changes
from ansible_collections.grapnel.node.plugins.module_utils.removal.originals import is_text_of
from ansible_collections.grapnel.node.plugins.module_utils.removal.texts import SHARED, take_out

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.removal.originals import Original
    from ansible_collections.grapnel.node.plugins.module_utils.removal.parts import Reader

SAVED = ".saved"
# Where an engine reads whatever is in a folder, a text that is kept there would stay in force.
_KEPT_ELSEWHERE = {each.drop_ins: each.folder for each in ENGINES.values() if each.reads_any_name}


@dataclass(frozen=True)
class FileReturn:
    """What becomes of one file; without a ``change`` it is as it was. ``saved``: its present text is kept beside."""

    path: str
    reader: Reader
    change: FileDifference | None
    action: str = ""
    reason: str = ""
    note: str = ""
    saved: bool = False


def plan_return(host: Host, path: str, original: Original) -> FileReturn:
    """Decide about one file, from what it is now; raises `FileSetError` for what is no plain file."""
    present, place = _find(host, path)
    before, written = original.before, original.written
    if present == before or (present is None and before is not None):
        gone = f"{path} was deleted since grapnel changed it, and stays deleted" if present is not before else ""
        return FileReturn(path, original.reader, None, note=gone if present is None and before is not None else "")
    if is_text_of(present, written):
        return _as_before(path, original, present, place)
    taken = take_out(path, before, written, present)
    if not taken.is_whole:
        note = f"{path} stays as it is: the same lines were edited since, so grapnel's cannot be told from the others"
        return FileReturn(path, original.reader, None, note=note)
    if taken.text is None:
        saved = path not in SHARED
        note = f"{path} was edited since grapnel wrote it; its text is kept as {_saved(path)}" if saved else ""
        return _return(path, original, present, None, place, reason="grapnel's own", note=note, saved=saved)
    reason = "grapnel's lines are taken out, and what was edited since stays"
    return _return(path, original, present, taken.text, place, reason=reason)


def _find(host: Host, path: str) -> tuple[FileText | None, str]:
    """Return a file as it is, and where its links lead."""
    (change,) = find_changes(host, [FileText(path, "\0", 0o7777)])  # a text that no file has: always a change
    before = change.before
    return (None if before is None else replace(before, path=path)), change.place


def _as_before(path: str, original: Original, present: FileText | None, place: str) -> FileReturn:
    before, written = original.before, original.written
    note = (
        f"{path} is given back with what may be grapnel's: the same lines were edited"
        if original.is_mixed and before
        else ""
    )
    if before is None:
        return _return(path, original, present, None, place, reason="grapnel's own", note=note)
    if present is not None and written is not None and present.mode != written.mode:
        before = replace(before, mode=present.mode)
    return _return(path, original, present, before, place, reason="as it was before grapnel", note=note)


def _return(  # noqa: PLR0913 - what is known of a file
    path: str,
    original: Original,
    present: FileText | None,
    wanted: FileText | None,
    place: str,
    *,
    reason: str,
    note: str = "",
    saved: bool = False,
) -> FileReturn:
    if wanted == present:
        return FileReturn(path, original.reader, None, note=note)
    after = FileText(path, "", 0o644, is_absent=True) if wanted is None else replace(wanted, path=path)
    action = "remove" if wanted is None else "restore"
    return FileReturn(path, original.reader, FileDifference(present, after, place), action, reason, note, saved)


def _saved(path: str) -> str:
    """Return where the text of a file is kept that goes."""
    folder, _, name = path.rpartition("/")
    return f"{_KEPT_ELSEWHERE.get(folder, folder)}/{name}{SAVED}"


def save_beside(host: Host, given: FileReturn) -> None:
    """Keep the text of a file that goes, for the person who edited it and for nobody else; raises OSError."""
    if given.saved and given.change is not None and given.change.before is not None:
        before = given.change.before
        text = before.content.encode("utf-8", "surrogateescape")
        write_durably(host.path(_saved(given.path)), text, before.mode & stat.S_IRWXU)
