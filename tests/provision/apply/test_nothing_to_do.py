"""What an apply with nothing to do imports: half of its time was for what only a change needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from provision.planning.supply.payload.store import Manifest, ManifestFile, write_manifest
from tests.provision.apply.fakes import raw_facts

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = pytest.mark.slow

CHECKOUT: Final = Path(__file__).parents[3]
# Rooms and single files, with what is below them.
OURS: Final = [
    "apply.planner_process.worker",
    "controller",
    "planning.draft",
    "planning.drift",
    "planning.gpu_operator",
    "controller.jobs",
    "planning.planner.drivers.driver",
    "planning.planner.plan",
    "planning.products",
    "report.documents.plans",
    "report.simulation",
    "report.status",
    "report.run_page",
    "controller.stacks",
    "report.status_page",
]
OTHERS: Final = ["ansible", "jinja2", "kubernetes", "tomlkit", "urllib3"]
UNNEEDED: Final = (*(f"provision.{name}" for name in OURS), *OTHERS)


def below(name: str, rooms: Iterable[str]) -> bool:
    return any(name == room or name.startswith(f"{room}.") for room in rooms)


def apply_nothing(folder: Path) -> set[str]:
    """Apply to a node that is as declared; return the modules that were imported."""
    payload = folder / "payload"
    payload.mkdir()
    (payload / "archive").write_bytes(b"archive")
    archive = ManifestFile(name="archive", digest="0" * 12, size_bytes=7)
    write_manifest(payload, Manifest(hook=archive, node={"3.10": archive}, unit="[Service]\n", driver=archive))
    (folder / "facts.json").write_text(json.dumps(raw_facts("n1", [], [])))
    (folder / "hosts").write_text("n1 ansible_host=127.0.0.1\n")
    (folder / "grapnel.yaml").write_text(
        'apiVersion: grapnel.dev/v1alpha1\nkind: GpuStack\nspec: {driver: {version: "550.163.01"}}\n'
    )
    command = ["apply", "--yes", "-f", "grapnel.yaml", "-i", "hosts", "--payload", str(payload)]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tests.provision.apply.nothing_to_do", "facts.json", "modules", *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), "HOME": str(folder), "XDG_STATE_HOME": str(folder)},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "1 node: 1 unchanged" in done.stdout
    return set((folder / "modules").read_text().split())


def test_an_apply_with_nothing_to_do_imports_nothing_that_only_changes_need(tmp_path: Path) -> None:
    imported = apply_nothing(tmp_path)
    assert {"provision.rollout.execution", "provision.report.results", "rich", "yaml"} <= imported, (
        "it is a whole apply"
    )
    assert sorted(name for name in imported if below(name, UNNEEDED)) == []


def test_what_counts_as_not_needed_is_there() -> None:
    places = [CHECKOUT / "provision" / name.replace(".", "/") for name in OURS]
    assert [str(place) for place in places if not place.is_dir() and not place.with_suffix(".py").is_file()] == []
