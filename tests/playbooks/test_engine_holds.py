"""Holds of engines: what grapnel holds is noted, follows an exchange, and is the only thing that it lets go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.engines import packages, staging
from ansible_collections.grapnel.node.plugins.module_utils.engines.found import read_engine_holds
from ansible_collections.grapnel.node.plugins.module_utils.engines.packages import (
    hold,
    let_go,
    unhold,
)
from ansible_collections.grapnel.node.plugins.module_utils.engines.staging import Arrival, EnginePackageError
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import InstalledPackage, PackageError
from ansible_collections.grapnel.node.plugins.module_utils.removal.originals import PLACE, read_originals
from ansible_collections.grapnel.node.plugins.modules import engine_packages

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine

ENGINE, SITES = "containerd.io", "docker-ce"


class Manager:
    """Has both packages installed; an exchange takes its hold off, as apt's do."""

    def __init__(self) -> None:
        self.locked = {SITES}

    def installed(self, _host: object, names: object) -> dict[str, InstalledPackage]:
        there = {ENGINE, SITES} & {*names}  # type: ignore[misc]
        return {name: InstalledPackage("1", name in self.locked) for name in there}

    def held(self, _host: object, names: object) -> set[str]:
        return self.locked & {*names}  # type: ignore[misc]

    def hold(self, _host: object, names: object) -> None:
        self.locked |= {*names}  # type: ignore[misc]

    def unhold(self, _host: object, names: object) -> None:
        self.locked -= {*names}  # type: ignore[misc]


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Manager:
    made = Manager()
    for each in (packages, staging):
        monkeypatch.setattr(each, "find_manager", lambda _host: made)
    return made


def test_only_what_nobody_held_is_noted_and_let_go(machine: Machine, manager: Manager) -> None:
    hold(machine.host, [ENGINE, SITES, "not-installed"])

    assert manager.locked == {ENGINE, SITES}
    assert read_engine_holds(machine.host) == [ENGINE]

    unhold(machine.host, [ENGINE, SITES])

    assert manager.locked == {SITES}
    assert not (machine.root / PLACE.lstrip("/")).exists()


def test_a_hold_is_noted_before_it_is_there(
    machine: Machine, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is killed in between would leave a hold that counts as the site's."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(manager, "hold", killed)
    with pytest.raises(KeyboardInterrupt):
        hold(machine.host, [ENGINE])

    assert read_engine_holds(machine.host) == [ENGINE]


@pytest.mark.parametrize("fails", [False, True])
def test_what_grapnel_holds_is_let_go_for_an_exchange_and_held_after_it(
    machine: Machine, manager: Manager, *, fails: bool
) -> None:
    hold(machine.host, [ENGINE])
    during: set[str] = set()

    def exchange() -> None:
        with let_go(machine.host):
            during.update(manager.locked)
            if fails:
                raise PackageError("no space left on device")

    if fails:
        with pytest.raises(PackageError):
            exchange()
    else:
        exchange()

    assert during == {SITES}
    assert manager.locked == {ENGINE, SITES}
    assert read_originals(machine.host).held == (ENGINE,)


def test_why_an_exchange_failed_is_told_where_its_packages_cannot_be_held_again_either(
    machine: Machine, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(machine.host, [ENGINE])

    def full(*_: object) -> None:
        raise PackageError("apt-mark hold failed")

    def exchange() -> None:
        with let_go(machine.host):
            monkeypatch.setattr(manager, "hold", full)
            raise EnginePackageError("a container without a GPU starts none")

    with pytest.raises(EnginePackageError, match=r"starts none; .*apt-mark hold failed"):
        exchange()


class Module:
    """Ansible's side of the module: what it is given, and what it answers."""

    def __init__(self, *, check_mode: bool, **given: object) -> None:
        empty = {
            "state": "present",
            "packages": [],
            "versions": {},
            "hold": [],
            "unhold": [],
            "handed": "",
            "unit": "containerd.service",
        }
        self.params = {**empty, "engine": "containerd", **given}
        self.check_mode = check_mode
        self.answer: dict[str, object] = {}

    def exit_json(self, **answer: object) -> None:
        self.answer = answer

    def fail_json(self, *, msg: str) -> None:
        raise AssertionError(msg)


@pytest.mark.parametrize("check_mode", [True, False], ids=["check mode", "carried out"])
def test_the_module_exchanges_what_grapnel_let_go_and_holds_it_again(
    machine: Machine, manager: Manager, monkeypatch: pytest.MonkeyPatch, *, check_mode: bool
) -> None:
    hold(machine.host, [ENGINE])
    arrival = Arrival({ENGINE: "2"})
    during: list[set[str]] = []
    given = {"packages": [ENGINE], "versions": {ENGINE: "2"}, "hold": [ENGINE]}
    module = Module(check_mode=check_mode, **given)
    monkeypatch.setattr(engine_packages, "AnsibleModule", lambda **_: module)
    monkeypatch.setattr(engine_packages, "Host", lambda: machine.host)
    monkeypatch.setattr(engine_packages, "find_arrival", lambda *_: arrival)
    monkeypatch.setattr(engine_packages, "install", lambda *_: during.append({*manager.locked}))

    engine_packages.main()

    assert during == ([] if check_mode else [{SITES}])
    assert manager.locked == {ENGINE, SITES}
    assert module.answer == {"changed": True, "coming": [], "diff": {}, "note": ""}


@pytest.mark.parametrize("check_mode", [True, False], ids=["check mode", "carried out"])
def test_the_module_lets_go_what_grapnel_holds(
    machine: Machine, manager: Manager, monkeypatch: pytest.MonkeyPatch, *, check_mode: bool
) -> None:
    hold(machine.host, [ENGINE])
    module = Module(check_mode=check_mode, unhold=[ENGINE, SITES])
    monkeypatch.setattr(engine_packages, "AnsibleModule", lambda **_: module)
    monkeypatch.setattr(engine_packages, "Host", lambda: machine.host)

    engine_packages.main()

    assert manager.locked == ({ENGINE, SITES} if check_mode else {SITES})
    assert module.answer["changed"]


def test_a_damaged_record_tells_of_no_holds(machine: Machine) -> None:
    machine.write(PLACE, "{")
    assert read_engine_holds(machine.host) == []
