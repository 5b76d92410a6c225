"""Packages of an engine that were handed over: they alone are installed, and lead back afterwards."""

from __future__ import annotations

import hashlib
import json
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.engines.handed import HOME, find_kept, forget_handed
from ansible_collections.grapnel.node.plugins.module_utils.engines.packages import install
from ansible_collections.grapnel.node.plugins.module_utils.engines.staged import HANDED, read_engine_staged
from ansible_collections.grapnel.node.plugins.module_utils.engines.staging import (
    EnginePackageError,
    find_arrival,
    stage,
)
from ansible_collections.grapnel.node.plugins.module_utils.engines.trial import PLAIN, TrialError
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock
from ansible_collections.grapnel.node.plugins.modules import engine_packages

from tests.playbooks.engine_manager import Packages, use

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine

ENGINE, RUNC = "containerd.io", "runc"
IDENTIFIER = "0123456789ab"


@dataclass
class Node:
    """A machine to which packages are handed over, and whose engine is looked at after each exchange."""

    machine: Machine
    manager: Packages = field(
        default_factory=lambda: Packages({}, unreachable=True, back=({ENGINE, RUNC}, set()), name="dnf")
    )
    looks: list[TrialError] = field(default_factory=list)

    def hand(self, *described: str, digest: str = "") -> None:
        files = {}
        for text in described:
            name = f"packages/{text.replace(' ', '-')}.rpm"
            self.machine.write(f"{HANDED}/{IDENTIFIER}/{name}", text)
            files[name] = digest or hashlib.sha256(text.encode()).hexdigest()
        self.machine.write(f"{HANDED}/{IDENTIFIER}/list.json", json.dumps(files))

    def bring(self, version: str) -> None:
        arrival = find_arrival(self.machine.host, {ENGINE: version}, IDENTIFIER)
        install(self.machine.host, arrival, "containerd", "containerd.service", Clock())

    def look(self) -> dict[str, frozenset[str]]:
        if self.looks and (trouble := self.looks.pop(0)) is not None:
            raise trouble
        return {PLAIN: frozenset()}


@pytest.fixture
def node(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node(machine)
    machine.teach("systemctl daemon-reload")
    machine.teach("systemctl reset-failed containerd.service")
    use(monkeypatch, made.manager, made.look, ENGINE)
    return made


def test_what_was_handed_over_is_installed_in_one_transaction_and_no_source_is_asked(node: Node) -> None:
    node.hand(f"{ENGINE} 2.2.1-1", f"{RUNC} 1.3-1")

    arrival = find_arrival(node.machine.host, {ENGINE: "2.2.1-1"}, IDENTIFIER)
    install(node.machine.host, arrival, "containerd", "containerd.service", Clock())

    assert arrival.coming == (ENGINE, RUNC)
    assert node.manager.done == [{ENGINE: "2.2.1-1", RUNC: "1.3-1"}]


def test_an_engine_that_does_not_work_goes_back_to_what_was_installed_before(node: Node) -> None:
    node.hand(f"{ENGINE} 2.2.1-1", f"{RUNC} 1.3-1")
    node.bring("2.2.1-1")
    node.hand(f"{ENGINE} 2.4.2-1")
    node.looks += [None, TrialError("a container without a GPU does not start"), None]  # type: ignore[list-item]

    with pytest.raises(EnginePackageError, match="its former packages were put back"):
        node.bring("2.4.2-1")

    assert node.manager.done[-1] == {ENGINE: "2.2.1-1"}
    assert find_kept(node.machine.host, node.manager, {ENGINE: "2.2.1-1", RUNC: "1.3-1"})  # type: ignore[arg-type]


def test_of_each_package_the_installed_version_is_kept(node: Node) -> None:
    node.hand(f"{ENGINE} 2.2.1-1", f"{RUNC} 1.3-1")
    node.bring("2.2.1-1")
    node.hand(f"{ENGINE} 2.4.2-1")
    node.bring("2.4.2-1")

    kept = sorted(path.read_text() for path in (node.machine.root / HOME.lstrip("/") / "installed").glob("*.rpm"))

    assert kept == [f"{ENGINE} 2.4.2-1", f"{RUNC} 1.3-1"]


def test_what_was_handed_over_is_staged_and_then_it_and_what_leads_back_lie_on_the_node(node: Node) -> None:
    node.hand(f"{ENGINE} 2.2.1-1", f"{RUNC} 1.3-1")
    node.bring("2.2.1-1")
    node.hand(f"{ENGINE} 2.4.2-1")
    stage(node.machine.host, find_arrival(node.machine.host, {ENGINE: "2.4.2-1"}, IDENTIFIER))
    forget_handed(node.machine.host)
    node.looks += [None, TrialError("a container without a GPU does not start"), None]  # type: ignore[list-item]

    with pytest.raises(EnginePackageError, match="its former packages were put back"):
        node.bring("2.4.2-1")
    assert node.manager.there == {ENGINE: "2.2.1-1", RUNC: "1.3-1"}
    node.bring("2.4.2-1")

    assert node.manager.there == {ENGINE: "2.4.2-1", RUNC: "1.3-1"}
    assert find_kept(node.machine.host, node.manager, node.manager.there)  # type: ignore[arg-type]


def test_what_a_killed_handover_has_left_is_seen_and_goes_with_what_is_staged(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else takes it away where no other handover follows, and it may be what fills the disk."""
    node.hand(f"{ENGINE} 2.2.1-1", f"{RUNC} 1.3-1")
    node.bring("2.2.1-1")
    node.machine.write(f"{HANDED}/{IDENTIFIER}/packages/.{ENGINE}-2.4.2-1.rpm.new", "half of it")

    assert read_engine_staged(node.machine.host) == {"packages": {}, "complete": False, "bytes": 0}
    assert ask(node, monkeypatch, state="staged", packages=[], handed="")["changed"]

    assert read_engine_staged(node.machine.host) is None
    assert find_kept(node.machine.host, node.manager, node.manager.there)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", f"{ENGINE} 2.2.1-1\n"], ids=["no package any more", "in what it holds"])
def test_a_kept_file_that_is_damaged_leads_nowhere_and_stops_no_exchange(node: Node, text: str) -> None:
    """Each later one failed at it, or would have been given back by what cannot be installed."""
    node.hand(f"{ENGINE} 2.2.1-1", f"{RUNC} 1.3-1")
    node.bring("2.2.1-1")
    kept = node.machine.root / HOME.lstrip("/") / "installed"
    (kept / f"{ENGINE}-2.2.1-1.rpm").write_text(text)
    node.hand(f"{ENGINE} 2.4.2-1")

    words = stage(node.machine.host, find_arrival(node.machine.host, {ENGINE: "2.4.2-1"}, IDENTIFIER))
    node.bring("2.4.2-1")

    assert words == f"if {ENGINE} 2.4.2-1 does not work here, the way back is not sure: no route to the mirror"
    assert sorted(path.read_text() for path in kept.glob("*.rpm")) == [f"{ENGINE} 2.4.2-1", f"{RUNC} 1.3-1"]


@pytest.mark.parametrize(
    ("given", "digest", "words"),
    [
        ((f"{RUNC} 1.3-1",), "", f"{ENGINE} was not handed over: make the bundle again"),
        ((f"{ENGINE} 2.4.2-1",), "", f"{ENGINE} was not handed over: make the bundle again"),
        ((f"{ENGINE} 2.2.1-1",), "0" * 64, "does not have the digest that list.json gives"),
    ],
    ids=["another package", "another version", "another digest"],
)
def test_what_is_not_what_was_asked_for_is_refused(node: Node, given: tuple[str, ...], digest: str, words: str) -> None:
    node.hand(*given, digest=digest)

    with pytest.raises(EnginePackageError, match=words):
        node.bring("2.2.1-1")

    assert node.manager.done == []


def test_what_others_hold_or_run_with_is_left_alone(node: Node) -> None:
    node.manager.there = {RUNC: "1.2-1"}
    node.hand(f"{ENGINE} 2.2.1-1", f"{RUNC} 1.3-1")

    node.manager.held_ones = {RUNC}
    with pytest.raises(EnginePackageError, match="would change runc, which is held"):
        node.bring("2.2.1-1")
    node.manager.held_ones, node.manager.obsoleted = set(), (RUNC,)
    with pytest.raises(EnginePackageError, match="would take runc off this machine"):
        node.bring("2.2.1-1")

    assert node.manager.done == []


def ask(node: Node, monkeypatch: pytest.MonkeyPatch, *, check: bool = False, **given: object) -> dict[str, object]:
    """Return what the module answers for an engine 2.2.1-1 that was handed over; SystemExit says what it fails with."""
    answers: list[dict[str, object]] = []
    asked = {"packages": [ENGINE], "versions": {ENGINE: "2.2.1-1"}, "hold": [], "unhold": [], **given}

    def fail(**said: object) -> None:
        raise SystemExit(str(said["msg"]))

    def answer(**said: object) -> None:
        answers.append(said)
        if check:  # as Ansible's ends there
            raise StopIteration

    module = SimpleNamespace(
        params={
            "state": "present",
            "engine": "containerd",
            "handed": IDENTIFIER,
            "unit": "containerd.service",
            **asked,
        },
        check_mode=check,
        exit_json=answer,
        fail_json=fail,
    )
    monkeypatch.setattr(engine_packages, "AnsibleModule", lambda **_: module)
    monkeypatch.setattr(engine_packages, "Host", lambda: node.machine.host)
    monkeypatch.setattr(engine_packages, "let_go", lambda _host: nullcontext())
    with suppress(StopIteration):
        engine_packages.main()
    (said,) = answers
    return said


def test_nothing_that_was_handed_over_stays_beside_what_is_installed(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.hand(f"{ENGINE} 2.2.1-1")

    assert ask(node, monkeypatch)["coming"] == [ENGINE]
    assert not (node.machine.root / HANDED.lstrip("/")).exists()


def test_nothing_that_was_handed_over_stays_where_it_is_not_what_was_asked_for(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.hand(f"{ENGINE} 2.4.2-1")

    with pytest.raises(SystemExit, match="was not handed over"):
        ask(node, monkeypatch)
    assert not (node.machine.root / HANDED.lstrip("/")).exists()


def test_an_engine_that_comes_first_is_not_told_as_if_it_should_have_lain_ready(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing leaves service for it, whichever package that is there it has upgraded."""
    node.manager.there = {RUNC: "1.2-1"}
    node.hand(f"{ENGINE} 2.2.1-1", f"{RUNC} 1.3-1")

    assert ask(node, monkeypatch)["note"] == ""
    assert node.manager.there == {ENGINE: "2.2.1-1", RUNC: "1.3-1"}


@pytest.mark.parametrize("named", [{"hold": [RUNC]}, {"unhold": [RUNC]}, {}], ids=["hold", "unhold", "nothing"])
def test_a_check_tells_of_holds_beside_what_was_handed_over(
    node: Node, monkeypatch: pytest.MonkeyPatch, named: dict[str, object]
) -> None:
    said = ask(node, monkeypatch, check=True, packages=[], **named)

    assert said["changed"] == bool(named)
