"""Builds the payload: an archive for the hook, one for the driver's program, and one for the daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.base.errors import os_reason
from provision.planning.supply.payload.archive import write_archive
from provision.planning.supply.payload.errors import PayloadError
from provision.planning.supply.payload.store import Manifest, ManifestFile, read_manifest, write_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from provision.planning.supply.payload.archive import Entry
    from provision.planning.supply.payload.libraries import Libraries
    from provision.planning.supply.payload.sources import Sources

PYTHON = "3.10"  # the oldest that the daemon's libraries run with: h2 and hpack say so


def build_payload(folder: Path, sources: Sources, libraries: Libraries) -> Manifest:
    """Build into a folder and return what is in it; archives that the build before made are kept, older ones go."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        manifest = Manifest(
            hook=_build(folder, "hook", sources.hook_entries()),
            node={PYTHON: _build(folder, "node", sources.node_entries(libraries.site(PYTHON)))},
            unit=sources.unit.read_text(encoding="utf-8"),
            units={path.name: path.read_text(encoding="utf-8") for path in sources.node_units},
            driver=_build(folder, "driver", sources.driver_entries()),
        )
        before = _names_before(folder)
        write_manifest(folder, manifest)
        _remove_others(folder, manifest.names | before)
    except OSError as error:
        reason = os_reason(error)
        raise PayloadError(f"{error.filename or folder}: {reason}", hint="see --output") from error
    return manifest


def _build(folder: Path, stem: str, entries: Iterable[Entry]) -> ManifestFile:
    path, digest = write_archive(folder, stem, entries)
    return ManifestFile(name=path.name, digest=digest, size_bytes=path.stat().st_size)


def _names_before(folder: Path) -> set[str]:
    """Return the archives of the last build: an apply that began before this one may still read them."""
    try:
        manifest = read_manifest(folder)
    except PayloadError:
        return set()
    return manifest.names if manifest is not None else set()


def _remove_others(folder: Path, keep: set[str]) -> None:
    for pattern in ("driver-*.tar", "hook-*.tar", "node-*.tar"):
        for path in folder.glob(pattern):
            if path.name not in keep:
                path.unlink(missing_ok=True)
