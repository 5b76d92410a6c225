"""Staging on a fake node: what a set holds, and what is found before and while one is made."""

from __future__ import annotations

import json
from dataclasses import replace

from ansible_collections.grapnel.node.plugins.module_utils.driver.change import parse_change

from tests.playbooks.staging.node import HOME, KERNEL, Node, change_of
from tests.playbooks.staging.sets import NEW, OLD, codes, staged, way_back

PIN = "/etc/apt/preferences.d/00-grapnel-nvidia"


def test_a_set_holds_everything_that_the_swap_needs(node: Node) -> None:
    change = change_of()

    folder = staged(node, change)

    assert node.files(folder) == {
        "built.json",
        "change.json",
        "complete",
        "cost.json",
        "findings.json",
        "found.json",
        "packages.json",
        "signers.json",
        f"modules/{KERNEL}.tar.gz",
        f"packages/libcuda1_{NEW}.deb",
        f"packages/nvidia-dkms_{NEW}.deb",
        "packages/glx_1.2.deb",
        "before/change.json",
        "before/holds.json",
        "before/files/index.json",
    }
    assert parse_change(node.path(f"{folder}/change.json").read_bytes()) == change
    assert json.loads(node.path(f"{folder}/cost.json").read_text())["bytes"] > 0
    assert codes(node, change) == []


def test_staging_leaves_the_node_as_it_was(node: Node) -> None:
    before = {path: path.read_bytes() for path in node.root.rglob("*") if path.is_file()}

    staged(node, change_of())

    after = {path: path.read_bytes() for path in node.root.rglob("*") if path.is_file()}
    assert {path: text for path, text in after.items() if HOME.lstrip("/") not in str(path)} == before
    assert node.installed == {}


def test_a_second_run_finds_it_done(node: Node) -> None:
    staged(node, change_of())
    node.fetched.clear()

    again = node.stage(change_of())

    assert (again.complete, again.changed, node.fetched) == (True, False, [])
    assert again.cost.bytes > 0


def test_a_full_disk_is_found_before_anything_is_downloaded(node: Node) -> None:
    node.size_bytes = 10**18

    result = node.stage(change_of())

    assert [one.code for one in result.findings] == ["no-space"]
    assert (result.complete, node.fetched) == (False, [])


def test_a_package_that_the_sources_lost_is_named(node: Node) -> None:
    node.offered["nvidia-dkms"] = []

    result = node.stage(change_of())

    assert [one.code for one in result.findings] == ["package-not-found"]
    assert f"nvidia-dkms {NEW}" in result.findings[0].message


def test_every_change_is_built_at_one_path_since_modules_have_it_in_them(node: Node) -> None:
    for change in (change_of(), change_of(OLD)):
        staged(node, change)

    trees = {words[words.index("--dkmstree") + 1] for words in node.calls if "--dkmstree" in words}
    assert trees == {f"{HOME}/build/tree"}
    assert not node.path(f"{HOME}/build").exists()


def test_what_a_killed_build_has_left_is_gone_when_the_next_begins(node: Node) -> None:
    node.write(f"{HOME}/build/tree/rest.o", "")

    staged(node, change_of())

    assert not node.path(f"{HOME}/build").exists()


def test_a_failed_build_shows_the_compiler_and_leaves_no_set(node: Node) -> None:
    node.compiler_fails = (
        "make: ok\n" * 50 + "nv.c:12: error: too few arguments\n" + "make: ok\n" * 50 + "make: *** [all] 2\n"
    )

    result = node.stage(change_of())

    assert [one.code for one in result.findings] == ["build-failed"]
    assert "nv.c:12: error: too few arguments" in result.findings[0].message
    assert "make: *** [all] 2" in result.findings[0].message
    assert len(result.findings[0].message) < 1000
    assert codes(node, change_of()) == ["not-staged"]
    assert not node.path(f"{HOME}/build").exists()


def test_a_module_that_cannot_be_read_in_time_is_neither_unfit_nor_built_again(node: Node) -> None:
    staged(node, change_of())
    other = replace(change_of(), hold=False)
    node.is_too_busy = True
    node.calls.clear()

    result = node.stage(other)

    (finding,) = result.findings
    assert (result.complete, finding.code) == (False, "no-answer")
    assert "took longer than" in finding.message
    assert not any("build" in call for call in node.calls)
    node.is_too_busy = False
    staged(node, other)
    assert not any("build" in call for call in node.calls)


def test_a_database_of_which_only_the_package_manager_itself_sees_the_damage_stops_it_before_a_download(
    node: Node,
) -> None:
    node.is_damaged = True

    (finding,) = node.stage(change_of()).findings

    assert (finding.code, finding.message) == ("packages-unreadable", "status is damaged")
    assert node.fetched == []


def test_a_disk_that_becomes_full_while_building_is_no_fault_of_the_compiler(node: Node) -> None:
    node.compiler_fails = "nv.o: final close failed: No space left on device\n"

    (finding,) = node.stage(change_of()).findings

    assert finding.code == "no-space"
    assert "No space left on device" in finding.message
    assert "make room" in finding.remedy


def test_missing_build_tools_are_installed_and_go_with_a_first_driver(node: Node) -> None:
    node.path("/usr/bin/dkms").unlink()
    node.offered["dkms"] = ["3.2"]

    back = way_back(node, staged(node, change_of()))

    assert node.installed == {"dkms": "3.2"}
    assert "dkms" in back.remove


def test_missing_build_tools_are_named_where_nothing_may_be_installed(node: Node) -> None:
    node.path("/usr/bin/dkms").unlink()

    result = node.stage(change_of(), install_tools=False)

    assert [one.code for one in result.findings] == ["build-tools-missing"]
    assert "lacks dkms" in result.findings[0].message


def test_a_file_that_is_a_link_is_left_alone(node: Node) -> None:
    node.path(PIN).parent.mkdir(parents=True)
    node.path(PIN).symlink_to("/elsewhere")

    assert [one.code for one in node.stage(change_of()).findings] == ["file-in-the-way"]
