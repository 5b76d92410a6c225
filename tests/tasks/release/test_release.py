"""What a release has, and that it is whole."""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from lab import golang
from lab.cluster.controller import reference_of
from tasks.release.sums import render_sums

pytestmark = pytest.mark.functional

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release") / "made"
    argv = [sys.executable, "-P", "-m", "tasks.release", "--output", str(folder)]
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True)
    return folder


def test_the_wheel_carries_whole_archives_for_nodes(release: Path) -> None:
    wheel = zipfile.ZipFile(next(release.glob("*.whl")))
    home = "provision/_payload/archives"
    manifest = json.loads(wheel.read(f"{home}/manifest.json"))

    archives = [manifest["hook"], manifest["driver"], *manifest["node"].values()]
    assert list(manifest["node"]) == ["3.10"]
    for each in archives:
        content = wheel.read(f"{home}/{each['name']}")
        assert len(content) == each["size_bytes"]
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            assert archive.getnames()


def test_the_wheel_carries_the_manual_page(release: Path) -> None:
    wheel = zipfile.ZipFile(next(release.glob("*.whl")))
    name = next(name for name in wheel.namelist() if name.endswith(".data/data/share/man/man1/grapnel.1"))

    assert wheel.read(name).startswith(b".TH GRAPNEL 1 ")


def test_the_wheel_names_what_it_needs(release: Path) -> None:
    wheel = zipfile.ZipFile(next(release.glob("*.whl")))
    metadata = wheel.read(next(name for name in wheel.namelist() if name.endswith("/METADATA"))).decode()

    lines = (line.removeprefix("Requires-Dist: ") for line in metadata.splitlines() if "Requires-Dist: " in line)
    needed = {re.split(r"[<>=; ]", line)[0].lower() for line in lines if "extra ==" not in line}
    direct = (ROOT / "requirements" / "provision.in").read_text().splitlines()
    assert needed == {re.split(r"[<>=; ]", line)[0].lower() for line in direct if line and not line.startswith("#")}
    assert "Requires-Python: >=3.11" in metadata


def test_the_versions_that_it_was_tested_with_are_those_of_its_bill_of_materials(release: Path) -> None:
    bill = json.loads((release / "sbom.cdx.json").read_text())
    is_controllers = {"name": "grapnel:part", "value": "controller"}
    listed = {
        f"{each['name']}=={each['version']}" for each in bill["components"] if is_controllers in each["properties"]
    }

    lines = (release / "constraints.txt").read_text().splitlines()

    assert set(lines) == listed
    assert any(line.startswith("ansible-core==") for line in lines)


def test_the_collection_has_nothing_but_its_own(release: Path) -> None:
    with tarfile.open(next(release.glob("grapnel-node-*.tar.gz"))) as archive:
        names = archive.getnames()
        licence = archive.extractfile("LICENSE")
        assert licence is not None
        assert licence.read() == (ROOT / "LICENSE").read_bytes()

    assert "plugins/modules/facts.py" in names
    assert not [name for name in names if name.startswith((".", "collections")) or "__pycache__" in name]


def test_the_image_has_the_name_of_the_release(release: Path) -> None:
    (image,) = release.glob("grapnel-image-*.tar")
    version = next(release.glob("*.whl")).name.split("-")[1]

    assert image.name == f"grapnel-image-{version}.tar"
    assert reference_of(image) == f"docker.io/local/grapnel:{version}"


def test_helm_renders_the_chart_of_the_release(release: Path) -> None:
    (chart,) = release.glob("grapnel-*.tgz")
    argv = [str(golang.helm() / "helm"), "template", "grapnel", str(chart), "--set", "image.repository=x/grapnel"]

    rendered = subprocess.run(argv, check=True, capture_output=True, text=True).stdout

    assert "kind: Deployment" in rendered


def test_the_sums_are_those_of_all_files(release: Path) -> None:
    for line in (release / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((release / name).read_bytes()).hexdigest() == digest
    named = {line.split("  ")[1] for line in (release / "SHA256SUMS").read_text().splitlines()}
    assert named == {path.name for path in release.iterdir()} - {"SHA256SUMS"}


def test_sums_are_in_the_form_that_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("x")
    (tmp_path / "SUMS").write_text(render_sums(tmp_path))
    subprocess.run(["sha256sum", "--check", "--quiet", "SUMS"], cwd=tmp_path, check=True)
