"""Which files of the controller the action `release` sends to a node: archives of a payload, and nothing else."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

import provision
from provision.runner import AnsibleRunner, Outcome
from tests.provision.runner.stage import Stage, done

pytestmark = pytest.mark.functional

COLLECTION = Path(provision.__file__).parents[1] / "playbooks"
SECRET = b"of the controller alone"


def make_payload(folder: Path, content: bytes, digest: str) -> Path:
    """Write a folder whose manifest names one archive; return the archive."""
    folder.mkdir()
    archive = folder / "hook-1.tar"
    archive.write_bytes(content)
    hook = {"name": archive.name, "digest": digest, "size_bytes": len(content)}
    manifest = {"schema": "grapnel.dev/payload/v1alpha1", "hook": hook, "driver": hook, "node": {}, "unit": ""}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return archive


def release(folder: Path, archive: Path, digest: str) -> str:
    """Ask for the release on this machine in check mode; return why it was refused, empty if it was not."""
    task = f"- grapnel.node.installation: {{part: hook, digest: '{digest}', archive: '{archive}'}}"
    stage = Stage(folder)
    (ended,) = done(stage.run(stage.request(task, check=True), AnsibleRunner(COLLECTION)))
    return ended.message if ended.outcome is Outcome.FAILED else ""


def test_only_an_archive_of_a_payload_is_sent(tmp_path: Path) -> None:
    digest = hashlib.sha256(SECRET).hexdigest()
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    archive = make_payload(tmp_path / "payload", SECRET, digest)
    beside = archive.with_name("beside.tar")
    beside.write_bytes(SECRET)
    changed = make_payload(tmp_path / "changed", b"x" * len(SECRET), digest)

    assert "is not an archive of a payload" in release(tmp_path, secret, digest)
    assert "has no hook" in release(tmp_path, beside, digest)
    assert "has no hook" in release(tmp_path, archive, "0" * 64)
    assert "build the payload again" in release(tmp_path, changed, digest)
    assert release(tmp_path, archive, digest) == ""
