"""What people install is the wheel, not the checkout: its content is a promise."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the checkout with the pinned hatchling."""
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-P", "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return next(out.glob("*.whl"))


@pytest.mark.slow
def test_the_wheel_holds_the_three_packages_and_nothing_else(wheel: Path) -> None:
    top = {name.split("/", 1)[0] for name in zipfile.ZipFile(wheel).namelist()}

    assert {entry for entry in top if not entry.endswith(".dist-info")} == {
        "provision",
        "runtime_hook",
        "plugin",
    }


@pytest.mark.slow
def test_the_wheel_carries_the_collection_where_ansible_looks_for_it(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    home = "provision/_collection/ansible_collections/grapnel/node"

    assert f"{home}/galaxy.yml" in names
    assert f"{home}/plugins/modules/facts.py" in names
    assert f"{home}/roles/driver/tasks/main.yml" in names


@pytest.mark.slow
def test_the_wheel_carries_the_list_of_gpus(wheel: Path) -> None:
    assert "provision/planning/driver/data/supported-gpus.json" in zipfile.ZipFile(wheel).namelist()


@pytest.mark.slow
def test_the_wheel_carries_the_pages_that_help_prints(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()

    assert {"provision/_docs/upgrade.md", "provision/_docs/migrate/gpu-operator.md"} <= set(names)
    assert not [name for name in names if name.startswith("provision/_docs/") and not name.endswith(".md")]
    assert not [name for name in names if name.startswith("provision/_docs/reference/")]


@pytest.mark.slow
def test_the_wheel_describes_itself_without_files_that_are_not_in_it(wheel: Path) -> None:
    contents = zipfile.ZipFile(wheel)
    metadata = message_from_bytes(
        contents.read(next(each for each in contents.namelist() if each.endswith("/METADATA")))
    )

    assert metadata["Summary"]
    assert re.findall(r"\]\((?!https?://)[^)]+", str(metadata.get_payload())) == []
    assert metadata["License-File"] == "LICENSE"


@pytest.mark.slow
def test_the_wheel_carries_the_live_page(wheel: Path) -> None:
    folder = ROOT / "provision/report/status_page/static"
    carried = {
        name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("provision/report/status_page/static/")
    }

    assert carried == {f"provision/report/status_page/static/{path.name}" for path in folder.iterdir()}


@pytest.mark.slow
def test_the_command_line_starts_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    find = f"import sys; sys.path.insert(0, {str(tmp_path)!r})"
    code = f"{find}; from provision.cli import main; sys.exit(main(['--version']))"

    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin"},
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("grapnel ")
