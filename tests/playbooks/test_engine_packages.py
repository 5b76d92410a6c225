"""An engine's package comes with what it needs, and takes nothing of others away."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.engines import packages, staging
from ansible_collections.grapnel.node.plugins.module_utils.engines.packages import install
from ansible_collections.grapnel.node.plugins.module_utils.engines.staging import (
    Arrival,
    EnginePackageError,
    find_arrival,
)
from ansible_collections.grapnel.node.plugins.module_utils.engines.trial import PLAIN, WITH_GPU, TrialError
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import RESTART_MARKS
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError, Rehearsal
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import Download, Request, Resolution
from ansible_collections.grapnel.node.plugins.module_utils.removal.originals import remember_held

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.grapnel.node.plugins.module_utils.engines.trial import Seen
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import Transaction

    from tests.playbooks.fakes import Machine

ROCKY = 'ID="rocky"\nID_LIKE="rhel centos fedora"\n'
ANY = {"containerd.io": ""}
OBSOLETING = """\
================================================================
 Package           Arch    Version      Repository         Size
================================================================
Installing:
 containerd.io     x86_64  2.2.1-1.el9  grapnel-docker     29 M
     replacing  runc.x86_64 4:1.3.6-1.el9
Installing dependencies:
 container-selinux x86_64  2.235.0-1.el9  base     9.5 k

Transaction Summary
================================================================
"""
NEW = OBSOLETING.replace("     replacing  runc.x86_64 4:1.3.6-1.el9\n", "")


@pytest.fixture
def rocky(machine: Machine) -> Machine:
    machine.write("/etc/os-release", ROCKY)
    machine.write("/usr/bin/dnf", mode=0o755)
    machine.teach("rpm --query", return_code=1)
    return machine


def test_what_it_needs_comes_with_it_and_is_told(rocky: Machine) -> None:
    rocky.teach("dnf", NEW, return_code=1)

    arrival = find_arrival(rocky.host, ANY)

    assert arrival.wanted == ANY
    assert arrival.coming == ("container-selinux", "containerd.io")


def test_one_that_takes_another_package_away_is_refused(rocky: Machine) -> None:
    rocky.teach("dnf", OBSOLETING, return_code=1)

    with pytest.raises(EnginePackageError, match=r"containerd\.io would take runc off this machine, and nothing was"):
        find_arrival(rocky.host, ANY)


def test_one_that_would_change_what_somebody_holds_is_refused(rocky: Machine) -> None:
    selinux = "container-selinux\t0\t2.229.0\t1.el9\tx86_64\tcontainer-selinux-2.229.0-1.el9.src.rpm\t1700000000\t7\n"
    rocky.teach("dnf", NEW, return_code=1)
    rocky.teach("rpm --query --queryformat", "container-selinux 2.229.0-1.el9\n")
    rocky.teach("rpm --query container-selinux", selinux)
    rocky.write("/etc/dnf/plugins/versionlock.list", "container-selinux-0:2.229.0-1.el9.*\n")

    with pytest.raises(EnginePackageError, match="container-selinux"):
        find_arrival(rocky.host, ANY)

    remember_held(rocky.host, ["container-selinux"], held=True)
    assert find_arrival(rocky.host, ANY).former == {"container-selinux": "2.229.0-1.el9"}, "by grapnel itself"


def test_what_no_source_has_is_told_with_what_helps(rocky: Machine) -> None:
    rocky.teach("dnf", return_code=1, stderr="Error: Unable to find a match: containerd.io\n")

    with pytest.raises(EnginePackageError, match=r"no repository has containerd\.io: refresh dnf's metadata"):
        find_arrival(rocky.host, ANY)


def test_one_that_is_there_is_left_alone(rocky: Machine) -> None:
    rocky.teach(
        "rpm --query containerd.io",
        "containerd.io\t0\t2.2.1\t1.el9\tx86_64\tcontainerd.io-2.2.1-1.el9.src.rpm\t1700000000\t7\n",
    )

    assert find_arrival(rocky.host, ANY).wanted == {}
    assert not any(call.startswith("dnf") for call in rocky.calls)


@dataclass
class Manager:
    """Carries out transactions, and fails at the packages of ``broken``."""

    broken: str = ""
    is_unchanged: bool = False
    done: list[str] = field(default_factory=list)
    name: str = "apt"
    gone: tuple[str, ...] = ()
    marked: list[bool] = field(default_factory=list)

    def apply(self, host: Host, transaction: Transaction, clock: Clock) -> None:
        del clock
        self.marked.append(host.path(f"{RESTART_MARKS}/containerd.service").exists())
        (name,) = (PurePosixPath(file).parent.name for file in transaction.files)
        self.done.append(name)
        if name == self.broken:
            raise PackageError("no space left on device", is_unchanged=self.is_unchanged)

    def rehearse(self, *_: object) -> Rehearsal:
        return Rehearsal(remove=self.gone)


class Source:
    """Has every version of the package."""

    def resolve(self, host: Host, request: Request) -> Resolution:
        del host
        return Resolution((Download("containerd.deb", "", 1),), replaced=dict.fromkeys(request.packages, "1"))

    def fetch(self, *_: object) -> None:
        """Nothing is downloaded."""


@dataclass
class Node:
    """A machine whose engine runs: its package manager, and what its containers have at each look at them."""

    host: Host
    manager: Manager = field(default_factory=Manager)
    looks: list[Seen | TrialError] = field(default_factory=list)
    restarts: int = 0

    def exchange(self) -> None:
        wanted = {"containerd.io": "2"}
        found = Source().resolve(self.host, Request(wanted))
        install(self.host, Arrival(wanted, found), "containerd", "containerd.service", Clock())

    def look(self) -> Seen:
        seen = self.looks.pop(0) if self.looks else {PLAIN: frozenset[str]()}
        if isinstance(seen, TrialError):
            raise seen
        return seen

    def restart(self) -> None:
        self.restarts += 1


@pytest.fixture
def node(rocky: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    made = Node(rocky.host)
    rocky.teach("systemctl daemon-reload")
    rocky.teach("systemctl reset-failed containerd.service")
    for each in (packages, staging):
        monkeypatch.setattr(each, "find_manager", lambda _host: made.manager)
    monkeypatch.setattr(staging, "find_source", lambda _name: Source())
    monkeypatch.setattr(packages, "unit_state", lambda _host, _unit: SimpleNamespace(is_active=True))
    monkeypatch.setattr(packages, "apply_changes", lambda *_, **__: made.restart())
    monkeypatch.setattr(packages, "try_containers", lambda *_: made.look())
    yield made
    assert not made.looks


WITH = {PLAIN: frozenset[str](), WITH_GPU: frozenset({"/dev/nvidia0", "/lib/libcuda.so.1"})}
SILENT = TrialError("a container without a GPU does not start: exec format error")


@pytest.mark.parametrize(
    ("is_unchanged", "done", "words"),
    [
        (False, ["there", "back"], "no space left on device; its former packages were put back"),
        (True, ["there"], "no space left on device$"),
    ],
    ids=["half done", "not begun"],
)
def test_a_transaction_that_fails_half_way_leads_back_to_the_former_packages(
    node: Node, *, is_unchanged: bool, done: list[str], words: str
) -> None:
    node.manager = Manager("there", is_unchanged)

    with pytest.raises(EnginePackageError, match=words):
        node.exchange()

    assert node.manager.done == done
    assert node.restarts == ("back" in done)
    assert node.manager.marked[0], "a run that is killed here leaves a restart to the next one"
    assert node.host.path(f"{RESTART_MARKS}/containerd.service").exists() is not is_unchanged


def test_a_transaction_that_takes_more_away_when_it_is_rehearsed_is_not_begun(node: Node) -> None:
    node.manager = Manager(gone=("runc",))

    with pytest.raises(EnginePackageError, match="would take runc off this machine, and nothing was changed"):
        node.exchange()

    assert node.manager.done == []


def test_an_engine_that_starts_what_it_did_stays(node: Node) -> None:
    node.looks += [WITH, WITH]

    node.exchange()

    assert node.manager.done == ["there"]
    assert node.restarts == 1


@pytest.mark.parametrize(
    ("afterwards", "words"),
    [
        (SILENT, "a container without a GPU does not start: exec format error; its former packages were put back"),
        ({PLAIN: frozenset[str]()}, "a container with a GPU cannot be started: .*; its former packages were put back"),
        (
            {**WITH, WITH_GPU: frozenset({"/dev/nvidia0"})},
            "starts without /lib/libcuda.so.1, which one had before; its",
        ),
    ],
    ids=["starts none", "has no handler", "the hook does nothing"],
)
def test_an_engine_that_does_not_start_what_it_did_goes_again(
    node: Node, afterwards: Seen | TrialError, words: str
) -> None:
    node.looks += [WITH, afterwards, WITH]

    with pytest.raises(EnginePackageError, match=words):
        node.exchange()

    assert node.manager.done == ["there", "back"]
    assert node.restarts == 2


def test_that_the_former_engine_does_not_start_containers_either_is_said(node: Node) -> None:
    node.looks += [WITH, SILENT, SILENT]

    with pytest.raises(EnginePackageError, match=r"exec format error; with its former packages: .* exec format error$"):
        node.exchange()


def test_an_engine_that_starts_no_container_is_not_exchanged(node: Node) -> None:
    node.looks.append(SILENT)

    with pytest.raises(EnginePackageError, match="nothing was changed: mend this first"):
        node.exchange()

    assert node.manager.done == []
    assert node.restarts == 0
