"""`apply.yml` with a plan that was given by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.functional

ROOT = Path(__file__).parents[2]


def test_a_plan_that_was_made_to_be_shown_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    place = tmp_path / "config.toml"
    files = [{"path": str(place), "content": "", "mode": "0600", "withheld": True}]
    variables = {
        "runtime_engine": "podman",
        "runtime_packages": [],
        "runtime_files": files,
        "runtime_hook_archive": "",
        "runtime_hook_digest": "",
        "runtime_hook_python": "/usr/bin/python3",
        "runtime_service": "",
        "runtime_restart": False,
        "runtime_reload": False,
    }
    plan = {"schema": "grapnel.dev/plan/v1alpha1", "node": "n1", "items": [], "roles": {"runtime": variables}}
    given = tmp_path / "plan.json"
    given.write_text(json.dumps({"grapnel_plan": {**plan, "problems": []}}))

    playbook = [str(Path(sys.executable).with_name("ansible-playbook")), str(ROOT / "playbooks/apply.yml")]
    extra = ["-e", f"@{given}", "-e", f"ansible_python_interpreter={sys.executable}"]
    done = subprocess.run(
        [*playbook, "-i", "n1,", "-c", "local", *extra],
        cwd=tmp_path,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode != 0
    assert f"is for display: it lacks the text of {place}" in " ".join(done.stdout.split())
    assert "use grapnel apply or site.yml" in " ".join(done.stdout.split())
    assert not place.exists()
