"""A module that another node has built is looked at before it is used, and one that does not fit is not."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.change import change_id
from ansible_collections.grapnel.node.plugins.module_utils.driver.transfer.built_module import (
    BuiltModuleError,
    Wanted,
    find_archive,
)
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import file_digest

from tests.playbooks.staging.node import HOME, KERNEL, Node, change_of, write_tar

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import DriverChange
    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import StageResult

VERSION = "550.163.01"
MODULE = f"modules/{KERNEL}.tar.gz"
TREE = f"./dkms_main_tree/{KERNEL}/x86_64"
SIGN = {"key": "/etc/keys/mok.key", "certificate": "/etc/keys/mok.der"}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, offered={name: [VERSION] for name in ("libcuda1", "nvidia-dkms")})


def hand_over(node: Node, change: DriverChange, *more: str) -> str:
    """Write the list of what lies in the incoming folder, and return that."""
    place = f"{HOME}/incoming/{change_id(change)}"
    listed = {name: file_digest(node.path(f"{place}/{name}")) for name in (MODULE, *more)}
    node.write(f"{place}/list.json", json.dumps(listed))
    return place


def stage_with(node: Node, change: DriverChange, **values: str) -> StageResult:
    node.write_archive(f"{HOME}/incoming/{change_id(change)}/{MODULE}", KERNEL, VERSION, **values)
    hand_over(node, change)
    return node.stage(change)


def has_built(node: Node) -> bool:
    return any("build" in words for words in node.calls)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        pytest.param({"version": "1.0"}, "has the version 1.0", id="another version"),
        pytest.param({"vermagic": "6.1 SMP"}, "built for the kernel 6.1", id="another kernel"),
        pytest.param({"license": "Dual MIT/GPL"}, "the modules are open, not proprietary", id="another flavour"),
        pytest.param(
            {"vermagic": f"{KERNEL} SMP preempt"},
            f"for a kernel with {KERNEL} SMP preempt, and this one has {KERNEL} SMP",
            id="another kernel of the same name",
        ),
    ],
)
def test_the_node_builds_its_own_where_the_module_does_not_fit(node: Node, values: dict[str, str], words: str) -> None:
    node.write(f"/lib/modules/{KERNEL}/kernel/fs/ext4.ko", f"version: 1\nvermagic: {KERNEL} SMP\n")

    result = stage_with(node, change_of(), **values)

    assert result.complete
    assert has_built(node)
    assert [(one.code, one.severity) for one in result.findings] == [("module-unfit", "warning")]
    assert words in result.findings[0].message


def test_one_that_fits_is_used(node: Node) -> None:
    node.write(f"/lib/modules/{KERNEL}/kernel/fs/ext4.ko", f"version: 1\nvermagic: {KERNEL} SMP\n")

    result = stage_with(node, change_of())

    assert (result.complete, result.findings, has_built(node)) == (True, (), False)


def test_without_a_network_nothing_else_could_be_used(node: Node) -> None:
    change = change_of()
    place = f"{HOME}/incoming/{change_id(change)}"
    node.write_archive(f"{place}/{MODULE}", KERNEL, "1.0")
    packages = [f"packages/{name}_{VERSION}.deb" for name in ("libcuda1", "nvidia-dkms")]
    for name in packages:
        node.write(f"{place}/{name}", name.removeprefix("packages/").removesuffix(".deb").replace("_", " "))
    hand_over(node, change, *packages)

    result = node.stage(change, offline=True)

    assert not result.complete
    assert [(one.code, one.severity) for one in result.findings] == [("module-unfit", "error")]


def test_what_a_node_was_handed_it_gives_to_nobody(node: Node) -> None:
    assert stage_with(node, change_of()).complete
    assert node.stage(change_of(hold=False)).complete  # with the module of the set before
    assert not has_built(node)

    with pytest.raises(BuiltModuleError, match="that it has built itself"):
        find_archive(node.host, Wanted(KERNEL, "nvidia-current", VERSION, "proprietary"))


def test_what_a_node_has_built_it_gives_from_another_set_as_well(node: Node) -> None:
    first = node.stage(change_of())
    assert node.stage(change_of(hold=False)).complete
    shutil.rmtree(node.path(f"{HOME}/staged/{first.id}"), ignore_errors=True)

    assert find_archive(node.host, Wanted(KERNEL, "nvidia-current", VERSION, "proprietary"))
    assert len([words for words in node.calls if "build" in words]) == 1


@pytest.mark.parametrize(
    ("more", "words"),
    [
        pytest.param({"./dkms_source_tree/dkms.conf": "x"}, "does not belong to built modules", id="sources"),
        pytest.param({"./etc/cron.d/x": "x"}, "does not belong to built modules", id="elsewhere"),
        pytest.param({f"{TREE}/log/nvidia-current.ko": "x"}, "not where modules are", id="in the place of another"),
        pytest.param({f"{TREE}/module/a/nvidia.ko": "x"}, "not where modules are", id="deeper"),
        pytest.param({f"dkms_main_tree/{KERNEL}/x86_64/module/nvidia-current.ko": "x"}, "twice", id="twice"),
    ],
)
def test_an_archive_with_anything_else_is_not_used(node: Node, more: Mapping[str, str], words: str) -> None:
    module = f"version: {VERSION}\nlicense: NVIDIA\nvermagic: {KERNEL} SMP\n"
    members = {f"{TREE}/module/nvidia-current.ko": module}
    write_tar(node.path(f"{HOME}/incoming/{change_id(change_of())}/{MODULE}"), {**members, **more})
    hand_over(node, change_of())

    result = node.stage(change_of())

    assert has_built(node)
    assert words in result.findings[0].message


def test_a_module_that_only_says_who_signed_it_is_not_used(node: Node) -> None:
    change = change_of(sign=SIGN)
    node.write(SIGN["key"], "PRIVATE KEY").chmod(0o600)
    node.signer = "Operations"

    result = stage_with(node, change, signed_by="Mallory")

    assert has_built(node)
    assert "is not signed by the key of /etc/keys/mok.der" in result.findings[0].message


def test_one_that_the_site_has_signed_is_used(node: Node) -> None:
    node.signer = "Operations"

    result = stage_with(node, change_of(sign=SIGN))

    assert (result.complete, result.findings, has_built(node)) == (True, (), False)
