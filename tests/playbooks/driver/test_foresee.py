"""What is shown of a way back or a removal is what it does: nothing else changes, and nothing shown stays undone."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.foresee import Foreseen, foresee
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.run import (
    QUARANTINED,
    RUNNING,
    RunRecord,
    write_run,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.removal import remove_leftovers
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished

from tests.playbooks.driver.conftest import NAMES, OLD, SETTINGS, make_change, put_driver, stage
from tests.playbooks.driver.machines import KERNEL, REVISION, SERVICE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

    from tests.playbooks.driver.conftest import Staged
    from tests.playbooks.driver.machines import FakeMachine

SOURCE = "/etc/apt/sources.list.d/grapnel-nvidia.sources"
DECLARED = "/etc/grapnel/declared.json"
HOME = "/var/lib/grapnel/driver"
_FOLDERS = ("etc", "var/lib/grapnel", "usr/lib/grapnel/releases", "usr/lib/grapnel/driver")


def host_of(staged: Staged) -> Host:
    """Return the machine with a node daemon that runs."""
    inner = staged.machine.host()

    def run(words: Sequence[str], timeout_s: float) -> Finished:
        if words[0] == "systemctl" and "grapnel-node.service" in words:
            return Finished(0, "UnitFileState=enabled\nActiveState=active\n" if words[1] == "show" else "")
        return inner.run(list(words), timeout_s)

    return replace(inner, run=run)


def shown(staged: Staged, verb: str) -> Foreseen:
    return foresee(host_of(staged), verb, staged.node)


def steps(found: Foreseen) -> set[tuple[str, str]]:
    return {(one.action, one.target) for one in found.effects}


def tell(machine: FakeMachine) -> dict[str, str]:
    """Return what a machine is like: packages, holds, modules, services, files."""
    files = {
        f"/{path.relative_to(machine.root)}": path.read_text()
        for folder in _FOLDERS
        for path in (machine.root / folder).rglob("*")
        if path.is_file()
    }
    return {
        **{f"package {name}": one.version for name, one in machine.packages.items()},
        **{f"hold {name}": "held" for name, one in machine.packages.items() if one.held},
        **{f"kernel module {name}": version for name, version in machine.loaded.items()},
        **{f"module for kernel {kernel}": version for kernel, (version, _) in machine.on_disk.items()},
        **{f"service {name}": "runs" for name in machine.running},
        **files,
    }


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {what for what in before.keys() | after.keys() if before.get(what) != after.get(what)}


def told_by(found: Foreseen) -> set[str]:
    """Return what a plan says is changed, in the words of `tell`; a service that stops and starts is not."""
    said: dict[str, str] = {}
    for one in found.effects:
        name = one.target.split()[0]
        words = {
            "purge": f"package {name}",
            "install": f"package {name}",
            "hold": f"hold {name}",
            "unhold": f"hold {name}",
            "stop": f"service {name}",
            "start": f"service {name}",
        }
        what = words.get(one.action, one.target)
        if " for kernel " in one.target:
            what = f"module for kernel {one.target.rpartition(' ')[2]}"
        if one.action == "start" and what in said:
            del said[what]
        elif one.action not in {"rebuild", "restart"}:
            said[what] = one.action
    return set(said)


def is_told(what: str, told: set[str]) -> bool:
    """Tell whether a plan names something, or the folder that it is in."""
    return what in told or any(what.startswith(f"{one}/") for one in told if one.startswith("/"))


def install(staged: Staged) -> None:
    for path in (SOURCE, DECLARED, "/usr/lib/grapnel/releases/driver-1/RELEASE"):
        staged.machine.write(path, "1")
    (staged.machine.root / "usr/lib/grapnel/driver").symlink_to("releases/driver-1")


def assert_same(before: dict[str, str], after: dict[str, str], found: Foreseen, *, own: str = "") -> None:
    """Hold a plan to what was changed, but for the program's ``own`` notes of what it did."""
    did, told = changed(before, after), told_by(found)
    assert {what for what in did if not is_told(what, told) and not (own and what.startswith(own))} == set()
    assert {one for one in told if not any(what == one or what.startswith(f"{one}/") for what in did)} == set()


def remove(staged: Staged) -> None:
    assert staged.run("remove").state == "done"
    remove_leftovers(host_of(staged))


@pytest.mark.parametrize("fixture", ["first", "upgrade"], ids=["from no driver", "from another driver"])
def test_what_is_shown_of_a_removal_is_what_it_does(fixture: str, request: pytest.FixtureRequest) -> None:
    """It listed files and folders alone: no package, pin or module, and all of these went."""
    staged: Staged = request.getfixturevalue(fixture)
    assert staged.run("swap").state == "done"
    install(staged)
    staged.machine.running.add(SERVICE)
    before = tell(staged.machine)

    found = shown(staged, "remove")
    assert tell(staged.machine) == before, "it only looks"
    remove(staged)

    assert_same(before, tell(staged.machine), found)
    assert {("purge", f"{name} {staged.change.version}{REVISION}") for name in NAMES} <= steps(found)
    assert {
        ("unload", "kernel module nvidia"),
        ("stop", SERVICE),
        ("remove", SETTINGS),
        ("remove", SOURCE),
        ("remove", HOME),
        ("unhold", "libcuda1"),
        ("remove", f"kernel module nvidia {staged.change.version} for kernel {KERNEL}"),
        ("rebuild", f"the initramfs of kernel {KERNEL}"),
        ("restart", "grapnel-node.service"),
    } <= steps(found)
    assert steps(shown(staged, "remove")) == set()


def test_what_is_shown_of_a_way_back_is_what_it_does(upgrade: Staged) -> None:
    upgrade.machine.write(SETTINGS, "# somebody's\n")
    staged = stage(upgrade.machine, make_change(upgrade.change.version), make_change(OLD, files=(), services=()))
    assert staged.run("swap").state == "done"
    before = tell(staged.machine)

    found = shown(staged, "back")
    assert tell(staged.machine) == before, "it only looks"
    assert staged.run("back").state == "done"

    assert_same(before, tell(staged.machine), found, own=HOME)
    assert {("install", f"{name} {OLD}{REVISION}") for name in NAMES} <= steps(found)
    assert {
        ("unload", "kernel module nvidia"),
        ("load", "kernel module nvidia"),
        ("install", f"kernel module nvidia {OLD} for kernel {KERNEL}"),
        ("restore", SETTINGS),
        ("unhold", "libcuda1"),
    } <= steps(found)


def test_a_first_driver_is_taken_away_by_the_way_back_as_it_is_shown(first: Staged) -> None:
    assert first.run("swap").state == "done"
    before = tell(first.machine)

    found = shown(first, "back")
    assert first.run("back").state == "done"

    assert_same(before, tell(first.machine), found, own=HOME)
    assert "load" not in {one.action for one in found.effects}


def test_a_node_with_nothing_for_drivers_keeps_its_record(fake: FakeMachine) -> None:
    put_driver(fake, OLD)
    staged = stage(fake, make_change(OLD))
    for place in (HOME, DECLARED):
        fake.write(f"{place}.x")
    shutil.rmtree(fake.root / HOME.lstrip("/"))
    fake.write(DECLARED, "{}")

    assert shown(staged, "remove") == Foreseen()
    assert remove_leftovers(host_of(staged)) == []
    assert fake.has(DECLARED)


@pytest.mark.parametrize(
    ("verb", "record", "told"),
    [
        pytest.param("back", None, "there is nothing to go back from", id="no change"),
        pytest.param("remove", QUARANTINED, "run `back` first, then `remove`", id="half of a first driver"),
        pytest.param("remove", RUNNING, "was cut short on this node", id="a swap that was cut short"),
    ],
)
def test_what_keeps_it_from_being_done_is_said(first: Staged, verb: str, record: str | None, told: str) -> None:
    if record is not None:
        write_run(first.machine.host(), RunRecord("r1", first.id, "swap", "u", state=record))

    found = shown(first, verb)

    assert told in found.problems[0]
    assert found.effects == ()


def test_packages_of_others_that_would_go_keep_it_from_being_done(upgrade: Staged) -> None:
    """The node was drained first, and the removal refused then."""
    assert upgrade.run("swap").state == "done"
    upgrade.machine.packages["cuda-tool"] = replace(upgrade.machine.packages["libcuda1"], held=False)
    upgrade.machine.extra_removals = {"cuda-tool"}
    upgrade.machine.show()

    found = shown(upgrade, "remove")

    assert "that the change does not name: cuda-tool" in found.problems[0]
    assert ("remove", HOME) in steps(found), "both are shown"
