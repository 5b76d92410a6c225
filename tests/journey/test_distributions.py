"""A driver on nodes that say they are other systems: it comes, changes from staged files, goes back, and goes.

Package managers, repositories, signatures, locks, DKMS and module streams are real; the packages are the lab's.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.journey.systems import CASES, SOURCES, Case, Machine, add_node, change_there_and_back

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.nodes import Site
    from tests.journey.conftest import Controller

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(900)]  # four driver changes with a real package manager

# Beside apt on Debian everywhere, and dnf from a bundle, which another node has collected: test_offline.
ALWAYS = ("sles15", "ubuntu2404")
LONG = ("ubuntu2404",)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    names = CASES if metafunc.config.getoption("--all-systems") else ALWAYS
    metafunc.parametrize("case", [as_case(name) for name in names])


def as_case(name: str) -> object:
    return pytest.param(CASES[name], id=name, marks=[pytest.mark.long] if name in LONG else [])


@pytest.fixture
def machine(case: Case, site: Site, controller: Controller, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setenv("XDG_STATE_HOME", str(controller.folder / "state"))
    yield add_node(site, case, controller)
    site.remove(case.system)


def test_a_driver_comes_changes_goes_back_and_goes(machine: Machine) -> None:
    change_there_and_back(machine, sources_gone(machine))


@contextmanager
def sources_gone(machine: Machine) -> Iterator[None]:
    """Leave the package sources empty."""
    machine.say(f"mount -t tmpfs none {SOURCES}")
    try:
        yield
    finally:
        machine.say(f"umount {SOURCES}")
