"""The way back that is staged with a driver: from where it comes, and when it is kept."""

from __future__ import annotations

import json
import tarfile
from dataclasses import replace

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.change import NO_DRIVER, change_id
from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.drift import still_fits
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.run import RunRecord, write_run

from tests.playbooks.staging.node import HOME, KERNEL, Node, Packages, change_of
from tests.playbooks.staging.sets import NEW, OLD, codes, staged, way_back


def test_the_way_back_of_a_first_installation_is_a_removal(node: Node) -> None:
    back = way_back(node, staged(node, change_of()))

    assert back.version == back.module == NO_DRIVER
    assert back.remove == ("glx", "libcuda1", "nvidia-dkms")
    assert (back.packages, back.kernels) == ((), ())


def test_the_way_back_of_an_upgrade_comes_from_what_the_node_has_without_a_download(node: Node) -> None:
    old, new = change_of(OLD), change_of(NEW)
    staged(node, old)
    node.swap(old, change_id(old))
    node.held = {"libcuda1"}
    node.fetched.clear()

    folder = staged(node, new)

    back = way_back(node, folder)
    assert {one.name: one.version for one in back.packages} == {"libcuda1": OLD, "nvidia-dkms": OLD}
    assert (back.version, back.flavour, back.dkms, back.kernels) == (OLD, "proprietary", "nvidia-current", (KERNEL,))
    assert (back.remove, back.files[0].content) == ((), f"pin {OLD}\n")
    assert {f"before/packages/libcuda1_{OLD}.deb", f"before/modules/{KERNEL}.tar.gz"} <= node.files(folder)
    assert json.loads(node.path(f"{folder}/before/holds.json").read_text()) == {"held": ["libcuda1"]}
    assert node.fetched == [f"libcuda1_{NEW}.deb", f"nvidia-dkms_{NEW}.deb"]


def test_the_way_back_starts_what_ran_although_the_new_driver_has_no_such_service(node: Node) -> None:
    persistenced, imex = "nvidia-persistenced.service", "nvidia-imex.service"
    old = change_of(OLD, services=[persistenced, imex])
    staged(node, old)
    node.swap(old, change_id(old))
    node.active = {persistenced}

    back = way_back(node, staged(node, change_of(NEW, services=[])))

    assert back.services == (persistenced,)


@pytest.mark.parametrize("is_rebuilt", [False, True])
def test_the_way_back_has_the_module_that_is_installed_and_is_packed_only_where_no_set_has_it(
    node: Node, *, is_rebuilt: bool
) -> None:
    """Compressing it takes longer than all the rest of staging."""
    old = change_of(OLD)
    folder = staged(node, old)
    node.swap(old, change_id(old))
    with tarfile.open(node.path(f"{folder}/modules/{KERNEL}.tar.gz")) as archive:
        module = next(each for each in archive if each.name.endswith(".ko"))
        text = archive.extractfile(module).read().decode()  # type: ignore[union-attr] - a file
    tree = f"/var/lib/dkms/nvidia-current/{OLD}/{KERNEL}/amd64/module"
    node.write(f"{tree}/Module.symvers", "")
    node.write(f"{tree}/nvidia-current.ko", text.replace("DKMS", "Other") if is_rebuilt else text)
    node.calls.clear()

    kept = node.path(f"{staged(node, change_of(NEW))}/before/modules/{KERNEL}.tar.gz")

    packed = [call for call in node.calls if "mktarball" in call and OLD in call]
    assert len(packed) == is_rebuilt
    assert is_rebuilt or kept.read_bytes() == node.path(f"{folder}/modules/{KERNEL}.tar.gz").read_bytes()


@pytest.mark.parametrize("place", ["cache", "source"])
def test_a_driver_that_somebody_else_installed_can_be_returned_to(node: Node, place: str) -> None:
    node.installed = {"libcuda1": OLD, "nvidia-dkms": OLD, "glx": "1.2"}
    node.built = {KERNEL: OLD}
    if place == "cache":
        node.offered |= {"libcuda1": [NEW], "nvidia-dkms": [NEW]}
        for name in ("libcuda1", "nvidia-dkms"):
            node.write(f"/var/cache/{name}_{OLD}.deb", f"{name} {OLD}")

    result = node.stage(change_of(NEW))

    assert result.findings == ()
    folder = f"{HOME}/staged/{result.id}"
    assert {f"before/packages/libcuda1_{OLD}.deb", f"before/packages/nvidia-dkms_{OLD}.deb"} <= node.files(folder)


def test_a_way_back_that_nobody_has_is_told_by_name(node: Node) -> None:
    node.installed = {"libcuda1": OLD, "nvidia-dkms": OLD, "glx": "1.2"}
    node.built = {KERNEL: OLD}
    node.offered["libcuda1"] = [NEW]

    result = node.stage(change_of(NEW))

    assert result.complete
    assert [(one.code, one.severity) for one in result.findings] == [("no-way-back", "warning")]
    assert f"libcuda1 {OLD}" in result.findings[0].message
    assert codes(node, change_of(NEW)) == ["no-way-back"]


def test_a_driver_that_the_node_had_before_is_staged_again_with_the_way_back_from_there(node: Node) -> None:
    former, present = change_of(OLD), change_of(NEW)
    for change in (former, present):
        staged(node, change)
        node.swap(change, change_id(change))
    node.path(f"{HOME}/previous").symlink_to(f"staged/{change_id(former)}")
    node.offered["libcuda1"].remove(NEW)
    assert not still_fits(node.host, Packages(node).installed, change_id(former))

    folder = staged(node, former)

    assert still_fits(node.host, Packages(node).installed, change_id(former))
    assert way_back(node, folder).version == NEW


@pytest.mark.parametrize("state", ["running", "quarantined"])
def test_a_change_whose_swap_has_begun_keeps_its_way_back(state: str, node: Node) -> None:
    folder = staged(node, change_of())
    record = RunRecord("run", change_id(change_of()), "swap", "unit", state)
    write_run(node.host, record)
    node.installed["libcuda1"] = "999"

    assert still_fits(node.host, Packages(node).installed, change_id(change_of()))
    assert way_back(node, folder).version == NO_DRIVER


def test_packages_of_a_user_space_alone_need_no_module(node: Node) -> None:
    change = replace(change_of(), flavour="none", kernels=(), dkms=None, module=None)

    folder = staged(node, change)

    assert not any(name.startswith("modules/") for name in node.files(folder))
    assert way_back(node, folder).module is None
