"""The packages of another engine lie ready before the node leaves service, count while they fit, and go again."""

from __future__ import annotations

import errno
import hashlib
import json
import re
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.engines import packages, staged, staging
from ansible_collections.grapnel.node.plugins.module_utils.engines.packages import hold, install
from ansible_collections.grapnel.node.plugins.module_utils.engines.staged import HOME, STAGED, read_engine_staged
from ansible_collections.grapnel.node.plugins.module_utils.engines.staging import (
    EnginePackageError,
    clear,
    find_arrival,
    stage,
)
from ansible_collections.grapnel.node.plugins.module_utils.engines.trial import MARK, PLAIN, TrialError
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import (
    InstalledPackage,
    PackageError,
)
from ansible_collections.grapnel.node.plugins.module_utils.removal.originals import remember_held

from tests.playbooks.engine_manager import Packages, use

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import Transaction

    from tests.playbooks.fakes import Machine

WANTED = {"containerd": "2"}
LATER = {"containerd": "3"}


@dataclass
class Node(Packages):
    """A machine whose containerd 1 runs, with its own package manager."""

    host: Host = field(kw_only=True)

    def stage(self, wanted: dict[str, str] = WANTED) -> str:
        return stage(self.host, find_arrival(self.host, wanted))

    def exchange(self, wanted: dict[str, str] = WANTED) -> str:
        """Exchange the engine; return why nothing that lay ready was used."""
        arrival = find_arrival(self.host, wanted)
        install(self.host, arrival, "containerd", "containerd.service", Clock())
        return arrival.unstaged


@pytest.fixture
def node(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node(host=machine.host)
    machine.teach("systemctl")
    use(monkeypatch, made)
    return made


def test_what_lies_ready_is_just_what_is_exchanged_and_no_source_is_asked_again(node: Node) -> None:
    assert node.stage() == ""
    assert node.there == {"containerd": "1", "runc": "7"}
    assert node.applied == []
    facts = read_engine_staged(node.host)
    assert facts is not None
    assert (facts["packages"], facts["complete"]) == (WANTED, True)
    assert node.host.path(STAGED).stat().st_mode & 0o777 == 0o700, "it is root's alone"

    node.unreachable = True
    assert node.exchange() == ""

    assert node.applied == [["staged/there/containerd_2.deb", "staged/there/runc_8.deb"]]
    assert not node.host.path(HOME).exists()
    assert read_engine_staged(node.host) is None


def test_an_engine_that_does_not_work_goes_back_by_what_lies_ready_and_that_stays_for_another_try(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.stage()
    node.unreachable = True

    def look(*_: object) -> dict[str, frozenset[str]]:
        if node.there["containerd"] == "2":
            raise TrialError("a container without a GPU does not start")
        return {PLAIN: frozenset()}

    monkeypatch.setattr(packages, "try_containers", look)
    with pytest.raises(EnginePackageError, match="its former packages were put back"):
        node.exchange()

    assert [files[0] for files in node.applied] == ["staged/there/containerd_2.deb", "staged/back/containerd_1.deb"]
    assert node.there == {"containerd": "1", "runc": "7"}
    assert node.host.names(HOME) == ["staged"]
    assert (read_engine_staged(node.host) or {})["complete"]


@pytest.mark.parametrize("there", ["1", "2"], ids=["before anything is done", "half-way, and on the way back"])
def test_an_exchange_for_which_the_disk_is_full_says_what_became_of_the_engine(
    node: Node, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    """The package managers write notes of their own, with the words of the system alone where that fails."""
    node.stage()
    apply, tries = node.apply, []

    def full(host: Host, transaction: Transaction, clock: Clock) -> None:
        tries.append(transaction)
        if len(tries) == 1 and there == "2":
            apply(host, transaction, clock)
            raise PackageError("the disk is full")
        if len(tries) == 1 or there == "2":
            raise OSError(errno.ENOSPC, "No space left on device", f"{HOME}/work/notes")
        apply(host, transaction, clock)

    monkeypatch.setattr(node, "apply", full)
    with pytest.raises(EnginePackageError) as raised:
        node.exchange()

    told = {
        "1": "No space left on device.*; its former packages were put back, and containerd.service works with them",
        "2": "the disk is full; with its former packages: .*No space left on device",
    }
    assert re.search(told[there], str(raised.value))
    assert node.there["containerd"] == there


def damage(node: Node) -> None:
    node.host.path(f"{STAGED}/there/runc_8.deb").write_text("something else")


def upgrade(node: Node) -> None:
    node.there["runc"] = "7.1"


@pytest.mark.parametrize(
    ("happens", "why"),
    [(damage, "runc_8.deb was changed"), (upgrade, r"after it was staged: runc \(7 then, 7.1 now\)")],
    ids=["a file is damaged", "somebody upgrades a package"],
)
def test_what_does_not_fit_any_more_does_not_count_and_is_downloaded_again(
    node: Node, happens: Callable[[Node], None], why: str
) -> None:
    node.stage()
    happens(node)

    assert read_engine_staged(node.host) == {"packages": {}, "complete": False, "bytes": 0}
    unstaged = node.exchange()

    assert re.search(why, unstaged)
    assert node.applied == [["new/there/containerd_2.deb", "new/there/runc_8.deb"]]
    assert not node.host.path(HOME).exists()


def test_another_version_than_what_lies_ready_takes_its_place(node: Node) -> None:
    node.stage()
    assert find_arrival(node.host, LATER).unstaged == "what was staged is containerd 2"

    node.stage(LATER)

    assert sorted(node.host.names(f"{STAGED}/there")) == ["containerd_3.deb", "runc_8.deb"]
    asked = len(node.asked)
    node.stage(LATER)
    assert len(node.asked) == asked, "it lies there already"


def test_a_run_that_is_killed_leaves_nothing_that_counts_and_the_next_one_begins_anew(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "sweep", lambda _host: None)  # nothing is tidied by a process that is gone
    with monkeypatch.context() as killed:
        killed.setattr(node, "rehearse_return", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            node.stage()

    assert read_engine_staged(node.host) == {"packages": {}, "complete": False, "bytes": 0}
    assert find_arrival(node.host, WANTED).staged is None

    monkeypatch.undo()
    use(monkeypatch, node)
    node.stage()
    assert (read_engine_staged(node.host) or {})["complete"]
    assert node.host.names(HOME) == ["staged"]


@pytest.mark.parametrize(
    ("happens", "words"),
    [
        ({"full": True}, "No space left on device, and nothing was changed: make room on the file system of"),
        ({"unreachable": True}, "no route to the mirror: see that the node reaches its sources"),
        ({"taken": ("podman",)}, "would take podman off this machine, and nothing was changed"),
    ],
    ids=["a full disk", "no network", "something would go"],
)
def test_what_cannot_be_staged_is_told_and_leaves_nothing(node: Node, happens: dict[str, object], words: str) -> None:
    for name, value in happens.items():
        setattr(node, name, value)

    with pytest.raises(EnginePackageError, match=words):
        node.stage()

    assert not node.host.path(HOME).exists()
    assert node.applied == []


def test_a_disk_without_room_for_both_ways_is_told_before_anything_is_downloaded(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = SimpleNamespace(f_bavail=100, f_frsize=1024 * 1024)
    monkeypatch.setattr(staging.os, "statvfs", lambda _path: full)

    with pytest.raises(EnginePackageError, match=r"1 MiB of packages do not fit below .*of 100 MiB free, 512 MiB must"):
        node.stage()

    assert not node.host.path(HOME).exists()


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        ({"gone": {"1"}}, "no source has 1"),
        ({"back": ({"containerd"}, {"kubelet"})}, "it would change kubelet as well"),
    ],
    ids=["no source has the former version", "it would take something else off"],
)
def test_that_nothing_leads_back_is_told_before_anything_is_exchanged(
    node: Node, happens: dict[str, object], why: str
) -> None:
    for name, value in happens.items():
        setattr(node, name, value)

    assert node.stage() == f"if containerd 2 does not work here, the way back is not sure: {why}"
    assert node.stage().endswith(why), "also by a run that finds it there"
    node.exchange()
    assert node.there["containerd"] == "2"


def test_what_grapnel_itself_holds_may_be_staged_and_stays_held(node: Node) -> None:
    """Nothing lets it go while packages are only looked for: a check was refused by grapnel's own hold."""
    hold(node.host, ["containerd", "runc"])

    node.stage()

    assert node.held_ones == {"containerd", "runc"}
    assert node.asked[0].loose == ("containerd", "runc")
    node.held_ones.add("runc")
    remember_held(node.host, ["runc"], held=False)
    with pytest.raises(EnginePackageError, match="would change runc, which is held"):
        find_arrival(node.host, LATER)


@pytest.mark.parametrize("is_staged", [True, False])
def test_an_engine_that_somebody_holds_since_it_was_planned_is_not_exchanged(node: Node, *, is_staged: bool) -> None:
    """Hours may be between the plan and a node's turn, and package managers are told to change what is held."""
    if is_staged:
        node.stage()
    node.held_ones.add("containerd")

    with pytest.raises(EnginePackageError, match="containerd 2 would change containerd, which is held"):
        node.exchange()

    assert node.there["containerd"] == "1"


def test_what_a_killed_trial_left_in_an_engine_goes_with_what_is_staged(machine: Machine, node: Node) -> None:
    machine.write("/usr/bin/docker", mode=0o755)
    machine.write(f"{HOME}/{MARK}", "docker")
    machine.teach("docker")
    machine.teach("docker image ls", "", return_code=1)
    node.stage()
    assert sorted(node.host.names(HOME)) == ["staged", MARK]
    assert clear(node.host).startswith("docker does not answer, so what a trial that was killed may have left in it")
    assert node.host.names(HOME) == [MARK]
    assert read_engine_staged(node.host) is not None, "the next plan has it go"

    machine.teach("docker image ls", "")
    assert clear(node.host) == ""

    assert machine.calls[-3:] == [
        "docker rm --force grapnel-trial",
        "docker image rm --force grapnel-trial",
        "docker image ls --quiet grapnel-trial",
    ]
    assert not node.host.path(HOME).exists()


def test_a_description_that_nobody_wrote_so_does_not_count(node: Node) -> None:
    node.stage()
    text = json.dumps([])
    node.host.path(f"{STAGED}/set.json").write_text(text)
    sealed = json.loads(node.host.path(f"{STAGED}/complete").read_text())
    sealed["set.json"] = hashlib.sha256(text.encode()).hexdigest()
    node.host.path(f"{STAGED}/complete").write_text(json.dumps(sealed))

    assert read_engine_staged(node.host) == {"packages": {}, "complete": False, "bytes": 0}


def test_a_database_that_cannot_be_read_says_nothing_of_what_lies_ready(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.stage()

    def damaged(*_: object) -> dict[str, InstalledPackage]:
        raise PackageError("the database is damaged")

    monkeypatch.setattr(staged, "find_reader", lambda _host: damaged)
    assert (read_engine_staged(node.host) or {})["complete"] is False
