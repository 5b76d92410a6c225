"""Says how the files of a node change by its plan, as unified diffs. Pure.

What not everybody on the node may read is never shown, before or after; nor are passwords that stand in a file that
everybody may read.
"""

from __future__ import annotations

import difflib
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from provision.planning.driver_change import ChangedFile, DriverChange
from provision.planning.node_plan import FileContent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from provision.declaration.fleet.facts.node import FileState, NodeFacts
    from provision.planning.node_plan import NodePlan

MAX_LINES: Final = 5000  # of a file that is compared: difflib takes long for more
SHOWN: Final = 1000  # of a diff
MASK: Final = "(not shown)"
_KEY: Final = re.compile(
    r"(?i)^([ +-]\s*[\"']?[\w.-]*(?:passw|secret|token|credential|auth)[\w.-]*[\"']?\s*[:=]\s*)(?![\[{])\S.*$"
)
_USER: Final = re.compile(r"(?<=://)[^\s/@]+@")


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that is written or taken away. Modes are None where there is no file.

    ``diff`` is empty where the text stays as it is, or (``withheld``) is not to be shown. ``reason`` says why, or that
    there is more of it.
    """

    path: str
    mode_before: str | None
    mode: str | None
    diff: tuple[str, ...] = ()
    withheld: bool = False
    reason: str = ""


def file_changes(plan: NodePlan, facts: NodeFacts) -> tuple[FileChange, ...]:
    """Return the files that the plan's roles write or take away, in the order of their paths."""
    wanted: dict[str, FileContent | ChangedFile | None] = {}
    for role in msgspec.structs.asdict(plan.roles).values():
        if role is not None:
            wanted.update(_files_of(role))
    changes = (_change(path, file, facts.files) for path, file in sorted(wanted.items()))
    return tuple(change for change in changes if change is not None)


def _files_of(variables: msgspec.Struct) -> Iterator[tuple[str, FileContent | ChangedFile | None]]:
    """Yield what the variables of a role have to write, and None for what they take away, whatever role it is."""
    for name, value in msgspec.structs.asdict(variables).items():
        if isinstance(value, DriverChange):
            yield from ((file.path, file) for file in value.files)
        elif isinstance(value, tuple):
            for one in value:
                if isinstance(one, FileContent | ChangedFile):
                    yield one.path, one
                elif name.endswith("_absent") and isinstance(one, str):
                    yield one, None


def _change(
    path: str, file: FileContent | ChangedFile | None, known: Mapping[str, FileState | None]
) -> FileChange | None:
    before = known.get(path)
    mode_before = None if before is None else before.mode
    mode = None if file is None else file.mode
    if before is None and file is None:
        return None
    if _is_secret(mode_before) or _is_secret(mode):
        reason = "not everybody on the node may read it"
        return FileChange(path, mode_before, mode, withheld=True, reason=reason)
    if before is not None and before.content is None:
        reason = "what it has now is too large, or no text"
        return FileChange(path, mode_before, mode, withheld=True, reason=reason)
    old = "" if before is None else before.content or ""
    new = "" if file is None else file.content
    if old == new and mode_before is not None and mode is not None and int(mode_before, 8) == int(mode, 8):
        return None
    diff, reason = _diff(path, old, new, is_new=before is None, is_removed=file is None)
    return FileChange(path, mode_before, mode, diff, reason=reason)


def _is_secret(mode: str | None) -> bool:
    return mode is not None and not int(mode, 8) & stat.S_IROTH


def _diff(path: str, old: str, new: str, *, is_new: bool, is_removed: bool) -> tuple[tuple[str, ...], str]:
    before, after = old.splitlines(), new.splitlines()
    if max(len(before), len(after)) > MAX_LINES:
        return (), f"it has more than {MAX_LINES} lines"
    head = "/dev/null" if is_new else f"a{path}", "/dev/null" if is_removed else f"b{path}"
    lines = [_masked(line) for line in difflib.unified_diff(before, after, *head, lineterm="")]
    more = f"{len(lines) - SHOWN} more lines" if len(lines) > SHOWN else ""
    return tuple(lines[:SHOWN]), more


def _masked(line: str) -> str:
    """Return a line of a diff without what somebody could log in with."""
    return _USER.sub(f"{MASK}@", _KEY.sub(rf"\g<1>{MASK}", line))
