"""Staging on a booted node: real apt, dpkg, dkms, compiler and modinfo; the module is a small one of the lab's."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from lab.nodes import NodeSpec, Site
from tests.playbooks.staging.small_driver import CODE, HOME, NEW, OLD, SCRIPT, UTILS, Staging
from tests.worker import of_this_worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.nodes


@pytest.fixture(scope="module")
def staging() -> Iterator[Staging]:
    site = Site(of_this_worker("staging"))
    site.destroy()
    try:
        yield Staging(site.up(NodeSpec("n1", gpus=1, builder=True)))
    finally:
        site.destroy()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_first_driver_is_built_without_a_trace_on_the_node(staging: Staging) -> None:
    before = staging.state()

    folder = staging.staged(staging.change(OLD))

    assert staging.state() == before
    assert names(folder / "modules") == [f"{staging.node.kernel_release}.tar.gz"]
    packages = names(folder / "packages")
    assert f"liblab_{OLD}_amd64.deb" in packages
    assert any(name.startswith("pciutils_") for name in packages), "what the node lacks comes along"
    back = json.loads((folder / "before/change.json").read_text())
    assert {"liblab", "nvidia-lab-dkms", "pciutils"} <= set(back["remove"])
    assert back["version"] == ""
    assert staging.run("check", staging.change(OLD)) == {"findings": []}


def test_a_kill_in_the_middle_of_a_build_is_made_good(staging: Staging) -> None:
    change = staging.change(OLD, hold=False)
    place = staging.node.root / "srv/change.json"
    place.write_text(change)
    kill = (
        f"python3 /{CODE}/on_node.py stage /{CODE} < /srv/change.json & P=$!; "
        "for i in $(seq 600); do pgrep -x dkms >/dev/null && break; sleep 0.05; done; "
        "kill -9 $P; pkill -9 -x dkms; wait"
    )

    staging.forget()
    staging.node.run(["bash", "-c", kill], timeout_s=120, check=False)
    left_over = [path.name for path in (staging.node.root / HOME.lstrip("/") / "staged").iterdir()]
    left = staging.run("check", change)
    folder = staging.staged(change)

    assert left_over == [f".new-{folder.name}"], "the build was cut off in the middle"
    assert [one["code"] for one in left["findings"]] == ["not-staged"]
    assert names(folder.parent) == [folder.name]


def test_an_upgrade_keeps_the_installed_driver_with_its_built_module(staging: Staging) -> None:
    apt = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-y", "install", "--no-install-recommends"]
    staging.node.run([*apt, f"nvidia-lab-dkms={OLD}", f"liblab={OLD}"], timeout_s=240)
    staging.node.run(["apt-mark", "hold", "liblab"])
    before = staging.state()

    folder = staging.staged(staging.change(NEW))

    assert staging.state() == before
    back = json.loads((folder / "before/change.json").read_text())
    assert (back["version"], back["dkms"], back["flavour"]) == (OLD, "nvidia-lab", "proprietary")
    assert back["kernels"] == [staging.node.kernel_release]
    assert names(folder / "before/packages") == [f"liblab_{OLD}_amd64.deb", f"nvidia-lab-dkms_{OLD}_amd64.deb"]
    assert names(folder / "before/modules") == [f"{staging.node.kernel_release}.tar.gz"]
    assert json.loads((folder / "before/holds.json").read_text()) == {"held": ["liblab"]}


def test_the_archive_is_what_dkms_installs_without_a_compiler(staging: Staging) -> None:
    folder = staging.staged(staging.change(NEW))
    place, kernel = f"/{folder.relative_to(staging.node.root)}", staging.node.kernel_release

    staging.node.run(["dpkg-deb", "--extract", f"{place}/packages/nvidia-lab-dkms_{NEW}_amd64.deb", "/"])
    staging.node.run(["dkms", "ldtarball", "--archive", f"{place}/modules/{kernel}.tar.gz"])
    shown = staging.node.run(["dkms", "status", "-m", "nvidia-lab", "-v", NEW, "-k", kernel]).stdout
    staging.node.run(["dkms", "remove", "-m", "nvidia-lab", "-v", NEW, "--all"])
    staging.node.run(["rm", "-r", f"/usr/src/nvidia-lab-{NEW}"])

    assert f"nvidia-lab/{NEW}, {kernel}, x86_64: built" in shown


def test_a_compiler_that_fails_is_quoted(staging: Staging) -> None:
    gcc = staging.node.root / "usr/local/bin/gcc"
    gcc.write_text("#!/bin/sh\necho 'module.c:7: error: no member named magic' >&2\nexit 1\n")
    gcc.chmod(0o755)
    staging.forget()
    before = staging.state()
    try:
        finding = staging.refused(staging.change(NEW))
    finally:
        gcc.unlink()

    assert finding["code"] == "build-failed", finding
    assert "module.c:7: error: no member named magic" in finding["message"]
    assert staging.state() == before


def test_a_source_that_lost_its_packages_is_named(staging: Staging) -> None:
    lost = staging.node.root / "srv/lost"
    lost.mkdir()
    shutil.copy(staging.node.root / "srv/extra/Packages", lost)
    staging.use_source("deb [trusted=yes] file:/srv/lost ./\n")
    try:
        finding = staging.refused(staging.change(NEW, hold=False, files=[]))
    finally:
        staging.use_source("deb [trusted=yes] file:/srv/extra ./\n")

    assert finding["code"] == "package-gone", finding
    assert f"_{NEW}_amd64.deb" in finding["message"]


def test_a_version_that_no_source_has_is_named(staging: Staging) -> None:
    finding = staging.refused(staging.change("570.1"))

    assert finding["code"] == "package-not-found"
    assert "liblab 570.1" in finding["message"]


def test_a_kernel_without_headers_is_told_before_anything_is_built(staging: Staging) -> None:
    finding = staging.refused(staging.change(NEW, kernels=["6.99.0-amd64"]))

    assert finding["code"] == "build-tools-missing", finding
    assert "linux-headers-6.99.0-amd64" in finding["message"]


def test_staging_goes_on_while_a_process_keeps_a_gpu_open(staging: Staging) -> None:
    """On a node of its own, whose driver is the lab's: user space comes, and nothing that is loaded or open changes."""
    node = Site(of_this_worker("staging")).up(NodeSpec("n2", gpus=2, driver_module="550.163.01"))
    shutil.copytree(UTILS, node.root / CODE / "ansible_collections/grapnel/node/plugins/module_utils")
    shutil.copy(SCRIPT, node.root / CODE)
    node.run(["apt-get", "-qq", "update"], timeout_s=120)
    opened = "--property=StandardInput=file:/dev/nvidia0"
    node.run(["systemd-run", "--unit=holder", "--service-type=exec", opened, "sleep", "1000"])
    held = "lsmod; systemctl show holder --property MainPID,ActiveState"
    before = node.run(["sh", "-c", held]).stdout
    version = "550.163.01-2"
    packages = [{"name": name, "version": version} for name in ("libnvidia-ml1", "nvidia-alternative")]
    packages.append({"name": "nvidia-legacy-check", "version": version})
    none = {"flavour": "none", "kernels": [], "dkms": None, "module": None, "files": []}
    change = json.loads(staging.change("550.163.01")) | none | {"packages": packages}

    done = node.run(
        ["python3", f"/{CODE}/on_node.py", "stage", f"/{CODE}"], input_text=json.dumps(change), timeout_s=200
    )

    assert json.loads(done.stdout)["complete"], done.stdout
    assert node.run(["sh", "-c", held]).stdout == before
    assert "ActiveState=active" in before
