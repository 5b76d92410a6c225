"""Keeps packages at their versions with dnf's version locks (dnf-versionlock(8)).

The list belongs to everybody. Entries of grapnel stand between two comments, and all else stays as it is: whoever had
locked a package before finds that lock again. ``dnf versionlock`` does not serve here, as it adds no second lock of a
name, and drops every comment when it deletes one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.files.file_set import (
    FileSetError,
    FileText,
    find_changes,
    swap_in,
)
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.holds import (
    VERSIONLOCK,
    VERSIONLOCK_BEGIN,
    VERSIONLOCK_END,
    locked_name,
    own_locks,
)
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_CONFIGURATION = "/etc/dnf/plugins/versionlock.conf"
_PACKAGE = "python3-dnf-plugin-versionlock"
_DISABLED = re.compile(r"^\s*enabled\s*=\s*(?:0|false|no|off)\s*$", re.MULTILINE | re.IGNORECASE)
_MAX_BYTES = 1024 * 1024
_PLACE = re.compile(r"^\s*locklist\s*=\s*(\S+)\s*$", re.MULTILINE)


def entry(name: str, version: str) -> str:
    """Return what locks a package at ``[epoch:]version-release``, as dnf itself writes it."""
    epoch, _, rest = version.rpartition(":")
    return f"{name}-{epoch or 0}:{rest}.*"


def lock(host: Host, versions: Mapping[str, str]) -> None:
    """Lock packages at exactly these versions; raises `PackageError`."""
    _require_plugin(host)
    text = _read(host)
    kept = [line for line in own_locks(text) if locked_name(line) not in versions]
    _write(host, text, [*kept, *(entry(name, version) for name, version in sorted(versions.items()))])


def unlock(host: Host, names: Collection[str]) -> None:
    """Take the locks of packages away: those of grapnel, else those of one version that somebody else has added."""
    text = _read(host)
    own = own_locks(text)
    others = {*names} - {locked_name(line) for line in own}
    rest = [line for line in text.splitlines(keepends=True) if locked_name(line) not in others]
    _write(host, "".join(rest), [line for line in own if locked_name(line) not in names])


def locked_names(host: Host, names: Collection[str]) -> set[str]:
    """Return the names with an entry of their own, whatever its version."""
    return {*names} & {name for line in _read(host).splitlines() if (name := locked_name(line))}


def _require_plugin(host: Host) -> None:
    text = host.read_text(_CONFIGURATION)
    if text is None:
        raise PackageError(f"dnf cannot hold versions without its plugin: install {_PACKAGE}")
    place = _PLACE.search(text)
    if _DISABLED.search(text) or (place is not None and place.group(1) != VERSIONLOCK):
        raise PackageError(f"{_CONFIGURATION} disables the version lock, or names another list than {VERSIONLOCK}")


def _read(host: Host) -> str:
    """Return the list as it is, blank lines at its beginning too: dnf writes one."""
    try:
        with host.open(VERSIONLOCK) as stream:
            text = stream.read(_MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    return text if not text or text.endswith("\n") else f"{text}\n"


def _write(host: Host, text: str, own: Sequence[str]) -> None:
    """Write the list with other entries of ours at its end."""
    foreign, _, rest = text.partition(f"{VERSIONLOCK_BEGIN}\n")
    foreign += rest.partition(f"{VERSIONLOCK_END}\n")[2]
    block = "\n".join([VERSIONLOCK_BEGIN, *own, VERSIONLOCK_END, ""]) if own else ""
    try:
        changes = find_changes(host, [FileText(VERSIONLOCK, foreign + block, 0o644)])
        if changes:
            host.path(VERSIONLOCK).parent.mkdir(parents=True, exist_ok=True)
            swap_in(host, changes)
    except (FileSetError, OSError) as error:
        raise PackageError(f"{VERSIONLOCK} cannot be written: {error}") from error
