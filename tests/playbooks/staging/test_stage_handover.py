"""Packages and modules that the controller hands over are used, once they are what they should be."""

from __future__ import annotations

import json

from ansible_collections.grapnel.node.plugins.module_utils.driver.change import change_id
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import file_digest

from tests.playbooks.staging.node import HOME, KERNEL, Node, change_of
from tests.playbooks.staging.sets import NEW, hand_over, staged


def test_a_module_that_was_handed_over_saves_the_build(node: Node) -> None:
    hand_over(node, change_of())

    staged(node, change_of())

    assert not any("build" in words for words in node.calls)


def test_a_damaged_handover_is_refused(node: Node) -> None:
    hand_over(node, change_of())
    node.write(f"{HOME}/incoming/{change_id(change_of())}/modules/{KERNEL}.tar.gz", "cut")

    assert [one.code for one in node.stage(change_of()).findings] == ["damaged-handover"]


def test_offline_takes_packages_from_what_was_handed_over(node: Node) -> None:
    change = change_of()
    hand_over(node, change)
    place = f"{HOME}/incoming/{change_id(change)}"
    listed = json.loads(node.path(f"{place}/list.json").read_text())
    node.installed = {"pciutils": "3.13", "libpci": "3.1"}
    versions = {"libcuda1": NEW, "nvidia-dkms": NEW, "glx": "1.2", "pciutils": "3.12", "libpci": "3.2"}
    for name, version in versions.items():
        path = node.write(f"{place}/packages/{name}_{version}.deb", f"{name} {version}")
        listed[f"packages/{path.name}"] = file_digest(path)
    node.write(f"{place}/list.json", json.dumps(listed))
    node.offered = {}

    result = node.stage(change, offline=True)

    assert (result.complete, node.fetched) == (True, []), result.findings
    files = node.host.names(f"{HOME}/staged/{result.id}/packages")
    assert files == ["glx_1.2.deb", f"libcuda1_{NEW}.deb", "libpci_3.2.deb", f"nvidia-dkms_{NEW}.deb"]


def test_packages_that_were_handed_over_stand_beside_the_package_sources(node: Node) -> None:
    change = change_of()
    place = f"{HOME}/incoming/{change_id(change)}"
    file = node.write(f"{place}/packages/libcuda1_{NEW}.deb", f"libcuda1 {NEW}")
    node.write(f"{place}/list.json", json.dumps({f"packages/{file.name}": file_digest(file)}))
    del node.offered["libcuda1"]

    result = node.stage(change)

    assert result.complete, result.findings
    assert f"libcuda1_{NEW}.deb" in node.host.names(f"{HOME}/staged/{result.id}/packages")
    assert f"nvidia-dkms_{NEW}.deb" in node.fetched


def test_offline_names_what_is_missing(node: Node) -> None:
    node.installed = {"libcuda1": NEW}

    result = node.stage(change_of(), offline=True)

    assert [one.code for one in result.findings] == ["not-handed-over"]
    assert result.findings[0].message.endswith(f": nvidia-dkms {NEW}")
