"""Reads and writes the payload on this machine: one folder, described by its manifest (``docs/contracts/payload``)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from provision.base.decoding import decoder_of
from provision.base.errors import os_reason
from provision.base.regular_file import read_regular
from provision.planning.supply.payload.archive import write_file
from provision.planning.supply.payload.errors import PayloadError
from provision.planning.supply.payload.model import Artifact, Payload, PythonVersion, minor_of

if TYPE_CHECKING:
    from collections.abc import Mapping

MANIFEST = "manifest.json"
_MAX_MANIFEST_BYTES = 1024 * 1024


class ManifestFile(msgspec.Struct, frozen=True, kw_only=True):
    """One archive of the folder, by its name in it."""

    name: str
    digest: str
    size_bytes: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What is in the folder; ``unit`` is the text of the daemon's systemd unit, ``driver`` the driver's program.

    ``node`` is the daemon by the oldest Python that it runs with, once; a payload of before has it for each Python
    again. ``units`` are the units beside the daemon's, text by name.
    """

    schema: Literal["grapnel.dev/payload/v1alpha1"] = "grapnel.dev/payload/v1alpha1"
    hook: ManifestFile
    node: Annotated[dict[PythonVersion, ManifestFile], msgspec.Meta(min_length=1)]
    unit: str
    units: dict[str, str] = {}
    driver: ManifestFile

    @property
    def names(self) -> set[str]:
        """Names of all archives."""
        return {each.name for each in (self.hook, self.driver, *self.node.values())}


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return grapnel's folder in the XDG cache."""
    base = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME", "/root")) / ".cache")
    return Path(base) / "grapnel"


def payload_folder(environment: Mapping[str, str]) -> Path:
    """Return where the payload is unless somebody says otherwise."""
    return cache_folder(environment) / "payload"


def load_payload(folder: Path) -> Payload:
    """Return the payload of a folder; raises `PayloadError` with how to build it when it is not there, or not whole."""
    manifest = read_manifest(folder)
    if manifest is None:
        raise PayloadError(f"no payload in {folder}", hint=_how_to_build(folder))
    python = min(manifest.node, key=minor_of)
    return Payload(
        hook=_artifact(folder, manifest.hook),
        node=msgspec.structs.replace(_artifact(folder, manifest.node[python]), python=python),
        unit=manifest.unit,
        units=manifest.units,
        driver=_artifact(folder, manifest.driver),
    )


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a folder, None when there is none; raises `PayloadError` when it is broken."""
    path = folder / MANIFEST
    try:
        return decoder_of(Manifest).decode(read_regular(path, _MAX_MANIFEST_BYTES))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PayloadError(f"{path}: {os_reason(error)}", hint=_how_to_build(folder)) from error
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        reason = str(error)
        raise PayloadError(f"{path}: {reason[:1].lower()}{reason[1:]}", hint=_how_to_build(folder)) from error


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest in one step, after everything that it names."""
    write_file(folder / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")


def _artifact(folder: Path, file: ManifestFile) -> Artifact:
    path = folder / file.name
    size_bytes = path.stat().st_size if path.is_file() else -1
    if size_bytes != file.size_bytes:
        state = "is missing" if size_bytes < 0 else f"has {size_bytes} bytes, not {file.size_bytes}"
        raise PayloadError(f"{path} {state}", hint=_how_to_build(folder))
    return Artifact(path=str(path.absolute()), digest=file.digest)


def _how_to_build(folder: Path) -> str:
    return f"build it: python -m provision.planning.supply.payload build --output {folder}"
