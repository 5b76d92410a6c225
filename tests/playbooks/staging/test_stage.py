"""Staging on a fake node: what a set holds, what is found, and what a kill leaves."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.change import NO_DRIVER, change_id, parse_change
from ansible_collections.grapnel.node.plugins.module_utils.driver.drift import still_fits
from ansible_collections.grapnel.node.plugins.module_utils.driver.run_record import RunRecord, write_run
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.check import check_set
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import file_digest

from tests.playbooks.staging.node import HOME, KERNEL, Node, Packages, change_of

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import DriverChange

OLD, NEW = "535.309.01", "550.163.01"
PIN = "/etc/apt/preferences.d/00-grapnel-nvidia"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node without a driver, whose sources have two."""
    offered = {name: [NEW, OLD] for name in ("libcuda1", "nvidia-dkms")}
    return Node(tmp_path, offered={**offered, "glx": ["1.2"]}, needs={"libcuda1": ("glx",)})


def staged(node: Node, change: DriverChange) -> str:
    """Stage, hold that to success, and return the folder of the set."""
    result = node.stage(change)
    assert result.complete, result.findings
    return f"{HOME}/staged/{change_id(change)}"


def way_back(node: Node, folder: str) -> DriverChange:
    return parse_change(node.path(f"{folder}/before/change.json").read_bytes())


def codes(node: Node, change: DriverChange) -> list[str]:
    return [one.code for one in check_set(node.host, Packages(node), change_id(change))]


def test_a_set_holds_everything_that_the_swap_needs(node: Node) -> None:
    change = change_of()

    folder = staged(node, change)

    assert node.files(folder) == {
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


def test_a_damaged_set_is_made_good(node: Node) -> None:
    folder = staged(node, change_of())
    node.write(f"{folder}/packages/glx_1.2.deb", "rubbish")
    assert codes(node, change_of()) == ["not-staged"]

    again = node.stage(change_of())

    assert again.changed
    assert codes(node, change_of()) == []


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
    assert not any("scratch/build" in name for name in node.files(HOME))


def hand_over(node: Node, change: DriverChange, **values: str) -> None:
    """Hand a module over as the controller does."""
    place = f"{HOME}/incoming/{change_id(change)}"
    name = f"modules/{KERNEL}.tar.gz"
    node.write_archive(f"{place}/{name}", KERNEL, change.version, **values)
    node.write(f"{place}/list.json", json.dumps({name: file_digest(node.path(f"{place}/{name}"))}))


def test_a_module_that_was_handed_over_saves_the_build(node: Node) -> None:
    hand_over(node, change_of())

    staged(node, change_of())

    assert not any("build" in words for words in node.calls)


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


def test_a_damaged_handover_is_refused(node: Node) -> None:
    hand_over(node, change_of())
    node.write(f"{HOME}/incoming/{change_id(change_of())}/modules/{KERNEL}.tar.gz", "cut")

    assert [one.code for one in node.stage(change_of()).findings] == ["damaged-handover"]


SIGN = {"key": "/etc/keys/mok.key", "certificate": "/etc/keys/mok.der"}


def put_key(node: Node, *, mode: int = 0o600) -> None:
    node.write(SIGN["key"], "PRIVATE KEY").chmod(mode)


def enforce(node: Node, *certificates: str) -> None:
    """Let the kernel accept modules only of certificates, as /proc/keys lists them."""
    node.write("/sys/module/module/parameters/sig_enforce", "Y\n")
    lines = (
        f"0a1b2c3d I------     1 perm 1f030000     0     0 asymmetri {one}: X509.rsa x []\n" for one in certificates
    )
    node.write("/proc/keys", "".join(lines))


def test_a_disk_that_becomes_full_while_building_is_no_fault_of_the_compiler(node: Node) -> None:
    node.compiler_fails = "nv.o: final close failed: No space left on device\n"

    (finding,) = node.stage(change_of()).findings

    assert finding.code == "no-space"
    assert "No space left on device" in finding.message
    assert "make room" in finding.remedy


def test_signing_asks_dkms_for_the_key_and_holds_it_to_that(node: Node) -> None:
    put_key(node)
    change = change_of(sign=SIGN)

    refused = node.stage(change)
    node.signer = "Operations"
    done = node.stage(change)

    assert [one.code for one in refused.findings] == ["module-unfit"]
    assert "signed by DKMS module signing key, not by Operations" in refused.findings[0].message
    assert done.complete
    build = next(words for words in node.calls if "build" in words)
    assert {"mok_signing_key=/etc/keys/mok.key", "mok_certificate=/etc/keys/mok.der"} <= set(build)


@pytest.mark.parametrize(
    ("mode", "words"),
    [(None, "/etc/keys/mok.key is not there"), (0o640, "/etc/keys/mok.key can be used by others than root")],
)
def test_a_key_that_is_not_root_s_alone_is_found_before_anything_is_built(
    node: Node, mode: int | None, words: str
) -> None:
    if mode is not None:
        put_key(node, mode=mode)

    result = node.stage(change_of(sign=SIGN))

    assert [one.code for one in result.findings] == ["signing-key"]
    assert words in result.findings[0].message
    assert not any("build" in call for call in node.calls)


def test_a_certificate_that_the_kernel_lacks_is_found_before_anything_is_built(node: Node) -> None:
    put_key(node)
    enforce(node, "Debian Secure Boot CA: 6ccece7e", "Operations: ffff")

    result = node.stage(change_of(sign=SIGN))

    assert [one.code for one in result.findings] == ["signing-key-not-enrolled"]
    assert "does not have the certificate 'Operations'" in result.findings[0].message
    assert "mokutil --import" in result.findings[0].remedy
    assert not any("build" in call for call in node.calls)


def test_an_enrolled_certificate_is_known_by_its_key(node: Node) -> None:
    put_key(node)
    node.signer = "Operations"
    enforce(node, "Operations: 0a1b")

    folder = staged(node, change_of(sign=SIGN))

    said = json.loads(node.path(f"{folder}/signers.json").read_text())
    assert said == {KERNEL: [{"name": "Operations", "key_id": "0a1b"}]}


@pytest.mark.parametrize(("signer", "code"), [("", "module-unsigned"), ("Stranger", "signing-key-not-enrolled")])
def test_a_built_module_that_the_kernel_would_refuse_is_not_staged(node: Node, signer: str, code: str) -> None:
    enforce(node, "Debian Secure Boot CA: 6ccece7e")
    node.signer = signer

    result = node.stage(change_of())

    assert [one.code for one in result.findings] == [code]


def test_keys_that_cannot_be_listed_leave_a_warning(node: Node) -> None:
    node.write("/sys/module/module/parameters/sig_enforce", "Y\n")

    result = node.stage(change_of())

    assert result.complete
    assert [(one.code, one.severity) for one in result.findings] == [("signature-unknown", "warning")]


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


class Killed(BaseException):
    """As if the process ended here."""


STEPS = [
    "resolve",
    f"fetch nvidia-dkms_{NEW}.deb",
    "dkms add",
    "dkms build",
    "dkms mktarball",
    "rehearse",
    "rehearse back",
]


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_leaves_no_set_and_the_next_run_makes_one(node: Node, step: str) -> None:
    def kill(at: str) -> None:
        if at == step:
            raise Killed

    node.interrupt = kill
    with pytest.raises(Killed):
        node.stage(change_of())
    assert codes(node, change_of()) == ["not-staged"]
    node.interrupt = lambda _: None

    staged(node, change_of())

    assert codes(node, change_of()) == []
    assert len(node.fetched) == len(set(node.fetched)), "what was downloaded is not downloaded again"
    assert not [name for name in node.host.names(f"{HOME}/staged") if name.startswith(".")]


def test_two_runs_do_not_stage_at_once(node: Node) -> None:
    inner: list[str] = []

    def also(at: str) -> None:
        if at == "resolve":
            node.interrupt = lambda _: None
            inner.extend(one.code for one in node.stage(change_of(OLD)).findings)

    node.interrupt = also

    result = node.stage(change_of())

    assert inner == ["staging-now"]
    assert result.complete


def test_old_sets_go_but_not_the_one_that_the_node_runs(node: Node) -> None:
    first, second, third = change_of(OLD), change_of(NEW, hold=False), change_of(NEW)
    staged(node, first)
    node.swap(first, change_id(first))
    staged(node, second)

    staged(node, third)

    assert set(node.host.names(f"{HOME}/staged")) == {change_id(first), change_id(third)}


@pytest.mark.parametrize(
    ("code", "happens"),
    [
        pytest.param("kernel-not-staged", lambda node: node.add_kernel("6.13.0-amd64"), id="a new kernel"),
        pytest.param("stale-way-back", lambda node: node.installed.update(libcuda1="999"), id="a package changed"),
    ],
)
def test_a_node_that_changed_meanwhile_is_noticed(node: Node, code: str, happens: object) -> None:
    staged(node, change_of())
    assert callable(happens)

    before = not still_fits(node.host, Packages(node), change_id(change_of()))
    happens(node)

    assert codes(node, change_of()) == [code]
    assert (before, not still_fits(node.host, Packages(node), change_id(change_of()))) == (False, True)


def test_a_half_done_swap_still_finds_its_set_good(node: Node) -> None:
    staged(node, change_of())
    node.installed["libcuda1"] = NEW

    assert codes(node, change_of()) == []


def test_a_driver_that_the_node_had_before_is_staged_again_with_the_way_back_from_there(node: Node) -> None:
    former, present = change_of(OLD), change_of(NEW)
    for change in (former, present):
        staged(node, change)
        node.swap(change, change_id(change))
    node.path(f"{HOME}/previous").symlink_to(f"staged/{change_id(former)}")
    node.offered["libcuda1"].remove(NEW)
    assert not still_fits(node.host, Packages(node), change_id(former))

    folder = staged(node, former)

    assert still_fits(node.host, Packages(node), change_id(former))
    assert way_back(node, folder).version == NEW


@pytest.mark.parametrize("state", ["running", "quarantined"])
def test_a_change_whose_swap_has_begun_keeps_its_way_back(state: str, node: Node) -> None:
    folder = staged(node, change_of())
    record = RunRecord("run", change_id(change_of()), "swap", "unit", state)
    write_run(node.host, record)
    node.installed["libcuda1"] = "999"

    assert still_fits(node.host, Packages(node), change_id(change_of()))
    assert way_back(node, folder).version == NO_DRIVER


def test_offline_takes_packages_from_what_was_handed_over(node: Node) -> None:
    change = change_of()
    hand_over(node, change)
    place = f"{HOME}/incoming/{change_id(change)}"
    listed = json.loads(node.path(f"{place}/list.json").read_text())
    from ansible_collections.grapnel.node.plugins.module_utils.packages.source import file_digest  # noqa: PLC0415

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


def test_a_file_that_is_a_link_is_left_alone(node: Node) -> None:
    node.path(PIN).parent.mkdir(parents=True)
    node.path(PIN).symlink_to("/elsewhere")

    assert [one.code for one in node.stage(change_of()).findings] == ["file-in-the-way"]


def test_packages_of_a_user_space_alone_need_no_module(node: Node) -> None:
    change = replace(change_of(), flavour="none", kernels=(), dkms=None, module=None)

    folder = staged(node, change)

    assert not any(name.startswith("modules/") for name in node.files(folder))
    assert way_back(node, folder).module is None
