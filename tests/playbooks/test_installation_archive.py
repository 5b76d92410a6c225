"""Which files of the controller the action `release` sends to a node: archives of a payload, and nothing else."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

import provision
from provision.apply.runner import AnsibleRunner, TaskDone, TaskOutcome
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
    manifest = {
        "schema": "grapnel.dev/payload/v1alpha1",
        "hook": hook,
        "driver": hook,
        "node": {"3.10": hook},
        "unit": "",
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return archive


def test_only_an_archive_of_a_payload_is_sent(tmp_path: Path) -> None:
    digest = hashlib.sha256(SECRET).hexdigest()
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    archive = make_payload(tmp_path / "payload", SECRET, digest)
    beside = archive.with_name("beside.tar")
    beside.write_bytes(SECRET)
    changed = make_payload(tmp_path / "changed", b"x" * len(SECRET), digest)
    asked = [(secret, digest), (beside, digest), (archive, "0" * 64), (changed, digest), (archive, digest)]

    of_none, *of_others, of_changed, sent = results(tmp_path, asked)

    assert "is not an archive of a payload" in of_none.message
    assert all("has no hook" in one.message for one in of_others)
    assert "build the payload again" in of_changed.message
    assert [one.outcome for one in (of_none, *of_others, of_changed)] == [TaskOutcome.FAILED] * 4
    assert sent.outcome is not TaskOutcome.FAILED, sent.message


def results(folder: Path, asked: list[tuple[Path, str]]) -> list[TaskDone]:
    """Ask for releases on this machine in check mode, one after the other."""
    tasks = "\n".join(
        f"- grapnel.node.installation: {{part: hook, digest: '{digest}', archive: '{archive}'}}\n  ignore_errors: true"
        for archive, digest in asked
    )
    stage = Stage(folder)
    return done(stage.run(stage.request(tasks, check=True), AnsibleRunner(COLLECTION)))
