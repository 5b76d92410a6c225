"""Writes an image as an OCI archive of one layer, in pieces; the same input gives the same bytes.

https://github.com/opencontainers/image-spec/blob/v1.1.0/image-layout.md
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

_MEDIA: Final = "application/vnd.oci.image"
_EPOCH: Final = "1970-01-01T00:00:00Z"


@dataclass(frozen=True)
class Built:
    """An image: the digest of its manifest (``sha256:...``), its archive, the size of its layer in it."""

    digest: str
    archive: Path
    layer_bytes: int


def write_archive(
    root: Path, config: dict[str, Any], reference: str, archive: Path, *, level: int, architecture: str = "amd64"
) -> Built:
    """Write the image with the files of the tar ``root``; ``level`` is gzip's, 0 for a layer that is not compressed.

    ``architecture`` is Go's name for it, as images have it.
    """
    platform = {"architecture": architecture, "os": "linux"}
    with tempfile.TemporaryFile(dir=archive.parent) as layer:
        plain = _copy(root, layer, level)
        size = layer.tell()
        packed = _digest(layer)
        kind = "layer.v1.tar+gzip" if level else "layer.v1.tar"
        layers = [{"mediaType": f"{_MEDIA}.{kind}", "digest": f"sha256:{packed}", "size": size}]
        rootfs = {"type": "layers", "diff_ids": [f"sha256:{plain}"]}
        history = [{"created": _EPOCH, "created_by": "deploy/image/Containerfile"}]
        about = _json({**platform, "created": _EPOCH, "config": config, "rootfs": rootfs, "history": history})
        blobs = [about]
        media = f"{_MEDIA}.manifest.v1+json"
        manifest = {"schemaVersion": 2, "mediaType": media, "config": _blob("config.v1+json", about), "layers": layers}
        blobs.append(_json(manifest))
        names = {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference}
        entry = {**_blob("manifest.v1+json", blobs[-1]), "platform": platform, "annotations": names}
        index = {"schemaVersion": 2, "mediaType": f"{_MEDIA}.index.v1+json", "manifests": [entry]}
        partial = archive.with_name(f".{archive.name}.partial")
        with tarfile.open(partial, "w", format=tarfile.USTAR_FORMAT) as made:
            _add(made, "oci-layout", io.BytesIO(_json({"imageLayoutVersion": "1.0.0"})))
            _add(made, "index.json", io.BytesIO(_json(index)))
            for blob in blobs:
                _add(made, f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}", io.BytesIO(blob))
            _add(made, f"blobs/sha256/{packed}", layer)
    partial.replace(archive)
    return Built(str(entry["digest"]), archive, size)


def _copy(root: Path, layer: IO[bytes], level: int) -> str:
    """Copy the tar, compressed where that is asked for; return the digest of what was copied."""
    with root.open("rb") as source:
        plain = _digest(source)
        source.seek(0)
        if not level:
            shutil.copyfileobj(source, layer)
        else:
            with gzip.GzipFile(filename="", mode="wb", compresslevel=level, fileobj=layer, mtime=0) as packing:
                shutil.copyfileobj(source, packing)
    return plain


def _digest(file: IO[bytes]) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # a file of bytes


def _blob(kind: str, data: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(data).hexdigest()
    return {"mediaType": f"{_MEDIA}.{kind}", "digest": f"sha256:{digest}", "size": len(data)}


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _add(made: tarfile.TarFile, name: str, content: IO[bytes]) -> None:
    member = tarfile.TarInfo(name)
    member.mode = 0o644
    member.size = content.seek(0, io.SEEK_END)
    content.seek(0)
    made.addfile(member, content)
