"""Whether a staged set still fits the node, told without digesting a file: what facts say of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.drift import still_fits
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import staged_folder
from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.database import read_packages
from ansible_collections.grapnel.node.plugins.module_utils.preflight.staged import read_driver_state

from tests.playbooks.driver.conftest import NEW, REVISION, Staged
from tests.playbooks.driver.machines import KERNEL, Package

if TYPE_CHECKING:
    from collections.abc import Callable


def nothing(_staged: Staged) -> None: ...


def install_wanted(staged: Staged) -> None:
    staged.machine.packages["libcuda1"].version = f"{NEW}{REVISION}"


def install_other(staged: Staged) -> None:
    staged.machine.packages["libcuda1"].version = "545.1-1"


def install_unrelated(staged: Staged) -> None:
    staged.machine.packages["vim"] = Package("9")


def remove_package(staged: Staged) -> None:
    del staged.machine.packages["libcuda1"]


def add_kernel(staged: Staged) -> None:
    staged.machine.write("boot/vmlinuz-6.13.0-amd64")
    staged.machine.write("lib/modules/6.13.0-amd64/modules.dep")


def add_image_of_the_kernel(staged: Staged) -> None:
    staged.machine.write(f"boot/vmlinuz-{KERNEL}")


def lose_package_file(staged: Staged) -> None:
    next((staged.machine.root / staged_folder(staged.id).lstrip("/") / "packages").iterdir()).unlink()


def lose_module_of_the_way_back(staged: Staged) -> None:
    next((staged.machine.root / staged_folder(staged.id).lstrip("/") / "before/modules").iterdir()).unlink()


def lose_seal(staged: Staged) -> None:
    (staged.machine.root / staged_folder(staged.id).lstrip("/") / "complete").unlink()


def break_change(staged: Staged) -> None:
    staged.machine.write(f"{staged_folder(staged.id)}/change.json", "{")


@pytest.mark.parametrize(
    ("happens", "fits"),
    [
        pytest.param(nothing, True, id="nothing happened"),
        pytest.param(install_wanted, True, id="a package has the wanted version already"),
        pytest.param(install_other, False, id="a package has a third version"),
        pytest.param(install_unrelated, True, id="another package was installed"),
        pytest.param(remove_package, False, id="a package was removed"),
        pytest.param(add_kernel, False, id="another kernel was installed"),
        pytest.param(add_image_of_the_kernel, True, id="the kernel of the change has an image"),
        pytest.param(lose_package_file, False, id="a package file is gone"),
        pytest.param(lose_module_of_the_way_back, False, id="a module of the way back is gone"),
        pytest.param(lose_seal, False, id="the seal is gone"),
        pytest.param(break_change, False, id="its change cannot be read"),
    ],
)
def test_facts_call_a_set_complete_only_while_it_fits(
    upgrade: Staged, happens: Callable[[Staged], None], *, fits: bool
) -> None:
    happens(upgrade)
    upgrade.machine.show()
    host = upgrade.machine.host()

    assert still_fits(host, read_packages, upgrade.id) == fits
    assert [one["complete"] for one in read_driver_state(host)["staged"]] == [fits]


@pytest.mark.parametrize("happens", [install_other, remove_package, add_kernel])
def test_the_set_that_the_node_runs_is_used_again_whatever_happened(
    upgrade: Staged, happens: Callable[[Staged], None]
) -> None:
    upgrade.run("swap")
    happens(upgrade)
    upgrade.machine.show()

    assert still_fits(upgrade.machine.host(), read_packages, upgrade.id)


def test_after_going_back_the_set_fits_again(upgrade: Staged) -> None:
    upgrade.run("swap")
    upgrade.run("back")

    assert still_fits(upgrade.machine.host(), read_packages, upgrade.id)
