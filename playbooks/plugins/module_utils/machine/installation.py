"""Installs grapnel's own parts below ``/usr/lib/grapnel``, and tells which versions are installed.

A version is unpacked into a folder of its own in ``releases``, gets its file ``RELEASE`` last, and takes over when the
part's link is renamed to it. A kill anywhere leaves the old version working; the next run removes what was left over.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.machine.commands import link_command
from ansible_collections.grapnel.node.plugins.module_utils.machine.identity import PYTHONS, SYSTEM_PYTHON
from ansible_collections.grapnel.node.plugins.module_utils.machine.selinux import SelinuxError, restore_labels
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import unit_states

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_HOME = "/usr/lib/grapnel"
_RELEASES = f"{_HOME}/releases"
_INVENTORY = "/run/grapnel/inventory.json"
_PARTS = ("driver", "hook", "node")
_HOOK = "grapnel-hook"
_STARTED_WITH = re.compile(rf"#!({re.escape(SYSTEM_PYTHON)}(?:\.[0-9]{{1,3}})?) ")  # the first line of a launcher
_DIGEST_LENGTH = 12
_UNITS = "/etc/systemd/system"
_UNIT = re.compile(r"grapnel-[a-z-]+\.(?:service|path)")
_UNPACK_TIMEOUT_S = 120.0
_SYSTEMCTL_TIMEOUT_S = 120.0
_COMPILE_TIMEOUT_S = 300.0


class InstallationError(Exception):
    """A part cannot be installed; the message says why."""


def read_installations(host: Host) -> dict[str, Any]:
    """Return the facts ``installed``: the digest of each part, and what starts it where that is not the usual one."""
    digests = {part: installed_digest(host, part) for part in _PARTS}
    return {part: _installed(host, part, digest) if digest else None for part, digest in digests.items()}


def _installed(host: Host, part: str, digest: str) -> dict[str, str]:
    python = installed_python(host, part)
    return {"digest": digest, **({"python": python} if python != SYSTEM_PYTHON else {})}


def installed_python(host: Host, part: str) -> str:
    """Return the interpreter that the launcher of an installed part names."""
    named = _STARTED_WITH.match(host.read_text(f"{_HOME}/{part}/grapnel-{part}") or "")
    return named[1] if named else SYSTEM_PYTHON


def installed_digest(host: Host, part: str) -> str | None:
    """Return the digest of the version that a part's link leads to, None when there is none."""
    return host.read_text(f"{_HOME}/{part}/RELEASE")


def read_inventory(host: Host) -> dict[str, Any] | None:
    """Return the facts ``inventory``: what the node's own driver inventory was made from."""
    text = host.read_text(_INVENTORY)
    try:
        inventory = json.loads(text) if text else None
    except ValueError:
        return None
    return {"driver_version": inventory.get("driver_version")} if isinstance(inventory, dict) else None


@contextlib.contextmanager
def unpacked_content(content: str, digest: str) -> Iterator[str]:
    """Write an archive that came as base64 of zlib into a file for a while; raises `InstallationError`."""
    try:
        archive = zlib.decompress(base64.b64decode(content, validate=True))
    except (ValueError, zlib.error):
        archive = b""
    if hashlib.sha256(archive).hexdigest() != digest:
        raise InstallationError("what was sent is not the archive with this digest: run it again")
    with _placed(tempfile.gettempdir()), tempfile.NamedTemporaryFile(prefix="grapnel-", suffix=".tar") as file:
        file.write(archive)
        file.flush()
        yield file.name


@contextlib.contextmanager
def _placed(place: str) -> Iterator[None]:
    """Say where an error of the disk is that does not: a full disk is found by writing, which names no file."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or place
        raise


def install_part(host: Host, part: str, digest: str, archive: str, python: str = SYSTEM_PYTHON) -> None:
    """Unpack an archive for an interpreter and switch a part to it; raises `InstallationError`.

    For each interpreter there is a folder of its own: launchers name it, and what is compiled is for it alone.
    """
    name = f"{part}-{digest[:_DIGEST_LENGTH]}"
    if python != SYSTEM_PYTHON:
        if python not in PYTHONS:
            raise InstallationError(f"{python} is not one of the interpreters that grapnel's programs are started with")
        name = f"{name}-{python.rpartition('/')[2]}"
    with _placed(_RELEASES):
        if host.read_text(f"{_RELEASES}/{name}/RELEASE") != digest:
            _unpack(host, name, digest, archive, python)
        _label(host, f"{_RELEASES}/{name}")
        _make_current(host, part, name)
        link_command(host, part)
        _remove_old(host, part, name)


def _label(host: Host, folder: str) -> None:
    try:
        restore_labels(host, [folder])
    except SelinuxError as error:
        raise InstallationError(str(error)) from error


def install_units(host: Host, part: str, units: list[str]) -> bool:
    """Link units of an installed part, have them started at boot, and start them now; raises `InstallationError`.

    Not copied: the units belong to the installed version, and the next one brings its own, which systemd reads when it
    is reloaded for another reason. A reload resets device rules that systemd does not know, so it is not done for that.
    Returns whether anything was changed.
    """
    if strange := [unit for unit in units if not _UNIT.fullmatch(unit)]:
        raise InstallationError(f"{strange[0]!r} is not the name of a unit")
    linked = [unit for unit in units if _link_unit(host, part, unit)]
    enabled = [one for one in unit_states(host, units) if one.enabled == "enabled"]
    if linked and len(enabled) == len(units):  # else systemctl reloads when it enables
        _systemctl(host, "daemon-reload")
    _systemctl(host, "enable", "--now", *units)
    return bool(linked) or len(enabled) < len(units)


def _link_unit(host: Host, part: str, unit: str) -> bool:
    """Return whether a unit's link was made, or led elsewhere before."""
    link, target = host.path(f"{_UNITS}/{unit}"), f"{_HOME}/{part}/systemd/{unit}"
    if link.is_symlink() and str(link.readlink()) == target:
        return False
    beside = host.path(f"{_UNITS}/.{unit}.new")
    beside.unlink(missing_ok=True)
    beside.symlink_to(target)
    beside.replace(link)
    return True


def _systemctl(host: Host, *arguments: str) -> None:
    done = host.run(["systemctl", *arguments], _SYSTEMCTL_TIMEOUT_S)
    if done.return_code:
        raise InstallationError(f"systemctl {' '.join(arguments)} failed: {done.complaints}")


def _unpack(host: Host, name: str, digest: str, archive: str, python: str) -> None:
    releases = host.path(_RELEASES)
    releases.mkdir(parents=True, exist_ok=True, mode=0o755)
    beside = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=releases))
    beside.chmod(0o755)
    command = ["tar", "--extract", "--no-same-owner", "--file", archive, "--directory", str(beside)]
    done = host.run(command, _UNPACK_TIMEOUT_S)
    if done.return_code:
        raise InstallationError(f"{archive} cannot be unpacked: {done.complaint}")
    if python != SYSTEM_PYTHON:
        _start_with(python, beside)
    if not _pack(host, beside, python):
        _compile(host, beside, f"{_RELEASES}/{name}", python)
    (beside / "RELEASE").write_text(f"{digest}\n", encoding="utf-8")
    os.sync()  # the link must never lead to files that a power cut made empty
    _remove(releases / name)  # an older attempt, or a version that somebody damaged
    beside.rename(releases / name)


def _start_with(python: str, folder: Path) -> None:
    """Have launchers started with another interpreter than the one that they came with."""
    for path in folder.glob("grapnel-*"):
        text = path.read_text(encoding="utf-8")
        if _STARTED_WITH.match(text):
            path.write_text(_STARTED_WITH.sub(f"#!{python} ", text, count=1), encoding="utf-8")


def _compile(host: Host, folder: Path, place: str, python: str) -> None:
    """Compile now: the daemon's unit keeps /usr read-only, and a hook must not write into its own folder at a start.

    Without a look at the sources at each start, which no longer change. What does not compile is compiled when it is
    imported, if ever: libraries carry files for other versions of Python.
    """
    options = ["-q", "--invalidation-mode", "unchecked-hash", "-s", str(folder), "-p", place]
    host.run([python, "-m", "compileall", *options, str(folder)], _COMPILE_TIMEOUT_S)


def _pack(host: Host, folder: Path, python: str) -> bool:
    """Let a hook pack its modules for its interpreter, as it starts before every container; compiling is slower."""
    if not (folder / _HOOK).exists():
        return False
    return host.run([python, "-IS", str(folder / _HOOK), "pack"], _COMPILE_TIMEOUT_S).return_code == 0


def _make_current(host: Host, part: str, name: str) -> None:
    link = host.path(f"{_HOME}/{part}")
    beside = host.path(f"{_HOME}/.{part}.new")
    beside.unlink(missing_ok=True)
    beside.symlink_to(f"releases/{name}")
    beside.replace(link)


def _remove_old(host: Host, part: str, name: str) -> None:
    """Keep the current version and the one before it; remove older ones and unfinished attempts."""
    releases = host.path(_RELEASES)
    others = [path for path in releases.glob(f"{part}-*") if path.name != name]
    others.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in (*others[1:], *releases.glob(f".{part}-*")):
        _remove(path)


def _remove(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)
