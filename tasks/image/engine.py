"""Has podman build an image by the Containerfile, with a storage of its own that is removed, and save it as an OCI archive."""

from __future__ import annotations

import json
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.machine.command import run

TIMEOUT_S: Final = 600.0


@dataclass(frozen=True)
class Built:
    """An image: its digest (``sha256:...`` of its manifest), its archive, and how large its layers are in it."""

    digest: str
    archive: Path
    packed_bytes: int


def build(containerfile: Path, context: Path, archive: Path, reference: str) -> Built:
    """Build, and replace ``archive`` by the result. Raises CommandError where podman fails."""
    with tempfile.TemporaryDirectory(prefix="grapnel-podman-") as folder:
        storage = ["--root", f"{folder}/root", "--runroot", f"{folder}/run", "--storage-driver", "vfs"]
        partial = archive.with_name(f".{archive.name}.partial")
        partial.unlink(missing_ok=True)
        # --timestamp: of files, of the image and of its history, so that the same input gives the same digest.
        made = ["build", "--quiet", "--timestamp", "0", "--format", "oci", "--tag", reference, "--file", str(containerfile)]
        run(["podman", *storage, *made, str(context)], timeout_s=TIMEOUT_S)
        run(["podman", *storage, "save", "--quiet", "--format", "oci-archive", "--output", str(partial), reference], timeout_s=TIMEOUT_S)
        shutil.move(partial, archive)
    return inspect(archive)


def inspect(archive: Path) -> Built:
    """Read what an OCI archive with one image holds."""
    with tarfile.open(archive) as packed:

        def read(name: str) -> dict[str, object]:
            found = packed.extractfile(name)
            assert found is not None  # noqa: S101 - an OCI archive has it
            value: dict[str, object] = json.load(found)
            return value

        index = read("index.json")
        digest = str(index["manifests"][0]["digest"])  # type: ignore[index]  # of the OCI image layout
        manifest = read(f"blobs/sha256/{digest.removeprefix('sha256:')}")
        return Built(digest, archive, sum(layer["size"] for layer in manifest["layers"]))  # type: ignore[attr-defined]  # of the OCI image layout
