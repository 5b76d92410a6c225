"""Packs OCI image layouts as tar (image-spec v1): one layer, and the name where engines look for it."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from typing import Any

_MEDIA = "application/vnd.oci.image"
_PLATFORM = {"architecture": "amd64", "os": "linux"}


def image_archive(name: str, layer: bytes, config: dict[str, Any]) -> bytes:
    """Return the archive of an image with a full name (`docker.io/local/pause:1`) and OCI's `config` object."""
    blobs: dict[str, bytes] = {}

    def blob(kind: str, data: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": f"{_MEDIA}.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    packed = blob("layer.v1.tar", layer)
    rootfs = {"type": "layers", "diff_ids": [packed["digest"]]}
    image = blob("config.v1+json", _json({**_PLATFORM, "config": config, "rootfs": rootfs}))
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_MEDIA}.manifest.v1+json",
        "config": image,
        "layers": [packed],
    }
    names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
    entry = {**blob("manifest.v1+json", _json(manifest)), "platform": _PLATFORM, "annotations": names}
    index = {"schemaVersion": 2, "mediaType": f"{_MEDIA}.index.v1+json", "manifests": [entry]}
    files = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": _json(index)}
    return _tar(files | {f"blobs/sha256/{digest}": data for digest, data in sorted(blobs.items())})


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()
