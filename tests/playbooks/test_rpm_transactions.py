"""Transactions of dnf and zypper on booted nodes: the real programs, staged files, no repository."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Finished, Host
from ansible_collections.grapnel.node.plugins.module_utils.packages.choose import find_manager
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError, Rehearsal, Transaction

from lab.nodes import Node, NodeSpec, Site
from lab.sources import BASE_SUITE, SYSTEMS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageManager

pytestmark = pytest.mark.nodes

STAGED = "/var/lib/staged"
SCRATCH = "/var/lib/scratch"
ENVIRONMENT = ("env", "-i", "LC_ALL=C.UTF-8", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root")
LEFT_OUT = ("cuda-drivers", "nvidia-open-5", "fabricmanager", "imex", "nscq", "modprobe-", "nvidia-driver-")


class Driven:
    """A node, its package manager, and the driver packages of its repository by version and flavour."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.system = SYSTEMS[node.spec.system]
        self.host = Host(node.root, self._run)
        self.manager: PackageManager = find_manager(self.host)
        self.open, self.closed = {
            "dnf": ("kmod-nvidia-open-dkms", "kmod-nvidia-latest-dkms"),
            "zypper": ("nvidia-open-driver-G06-signed-cuda-kmp-default", "nvidia-driver-G06-kmp-default"),
        }[self.manager.name]

    def _run(self, arguments: Sequence[str], timeout_s: float) -> Finished:
        done = self.node.run([*ENVIRONMENT, *arguments], check=False, timeout_s=timeout_s)
        return Finished(done.returncode, done.stdout, done.stderr)

    def stage(self, version: str, *, without: str, remove: tuple[str, ...] = ()) -> Transaction:
        """Copy the packages of one version, but for the module package ``without``, as staging would have."""
        folder = f"{STAGED}/{version}-{without}"
        names = [
            path
            for path in self.node.run(["find", "/srv/bundle", "-name", f"*-{version}[-_]*.rpm"]).stdout.split()
            if without not in path and not any(text in path.rpartition("/")[2] for text in self._left_out())
        ]
        self.node.run(["mkdir", "-p", folder])
        self.node.run(["cp", *names, folder])
        files = tuple(f"{folder}/{os.path.basename(name)}" for name in sorted(names))  # noqa: PTH119  # of the node
        return Transaction(files, remove, SCRATCH)

    def _left_out(self) -> tuple[str, ...]:
        if self.manager.name == "zypper":
            return ()
        return tuple(f"{text}5" if text.endswith("driver-") else text for text in LEFT_OUT)

    def apply(self, transaction: Transaction) -> None:
        self.manager.apply(self.host, transaction, Clock())

    def versions(self) -> dict[str, str]:
        """Return the upstream version of every driver package, by name."""
        shown = self.node.run(["rpm", "-qa", "--qf", "%{NAME} %{VERSION}\n"]).stdout
        rows = (line.split() for line in shown.splitlines() if "nvidia" in line)
        return {name: version.partition("_")[0] for name, version in rows}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        made = Site(f"r{os.getpid()}")
        try:
            yield made
        finally:
            made.destroy()


@pytest.fixture(scope="module", params=["rocky9", "sles15"])
def driven(site: Site, request: pytest.FixtureRequest) -> Driven:
    """A node whose own dependencies are there, but no driver."""
    node = site.up(NodeSpec(request.param, suite=BASE_SUITE, gpus=1, system=request.param))
    if request.param == "rocky9":
        node.run(["dnf", "-y", "install", "dkms", "grubby", "ocl-icd"])
    found = Driven(node)
    for name in (f"/etc/yum.repos.d/{found.system.repository}.repo", "/etc/yum.repos.d/base.repo"):
        node.run(["rm", "-f", name])
    node.run(["sh", "-c", "rm -f /etc/zypp/repos.d/*"])
    return found


def test_a_driver_is_installed_changed_both_ways_and_removed(driven: Driven) -> None:
    old, *_, new = driven.system.versions
    for version in (old, new, old):
        transaction = driven.stage(version, without=driven.closed)
        rehearsed = driven.manager.rehearse(driven.host, transaction)
        driven.apply(transaction)
        assert set(driven.versions().values()) == {version}
        described = driven.manager.describe(driven.host, transaction.files)
        assert rehearsed.install == dict(described.values())
        assert driven.manager.rehearse(driven.host, transaction) == Rehearsal()
    names = tuple(driven.versions())
    driven.apply(Transaction((), names, SCRATCH))
    assert driven.versions() == {}


def test_another_flavour_takes_the_place_of_the_first_in_one_transaction(driven: Driven) -> None:
    version = driven.system.versions[-1]
    driven.apply(driven.stage(version, without=driven.closed))

    driven.apply(driven.stage(version, without=driven.open, remove=(driven.open,)))

    assert driven.closed in driven.versions()
    assert driven.open not in driven.versions()
    if driven.manager.name == "dnf":
        assert driven.node.run(["rpm", "-q", "dkms"]).returncode == 0  # nobody asked for it to go


def test_held_packages_stay_for_others_and_change_for_a_transaction(driven: Driven) -> None:
    old, *_, new = driven.system.versions
    driven.apply(driven.stage(old, without=driven.open, remove=(driven.open,)))
    names = tuple(driven.versions())
    driven.manager.hold(driven.host, names)
    assert {one.is_held for one in driven.manager.installed(driven.host, names).values()} == {True}

    driven.apply(driven.stage(new, without=driven.open))

    assert set(driven.versions().values()) == {new}
    driven.manager.unhold(driven.host, names)
    assert {one.is_held for one in driven.manager.installed(driven.host, names).values()} == {False}


def test_packages_that_do_not_go_together_change_nothing(driven: Driven) -> None:
    old, *_, new = driven.system.versions
    driven.apply(driven.stage(new, without=driven.open))
    before = driven.versions()
    half = driven.stage(old, without=driven.open)
    lacking = Transaction(
        tuple(file for file in half.files if "cuda-libs" not in file and "compute-G06" not in file), (), SCRATCH
    )

    with pytest.raises(PackageError) as raised:
        driven.apply(lacking)

    assert raised.value.is_unchanged
    assert "do not fit" in str(raised.value)
    assert driven.versions() == before


def test_an_interrupted_transaction_is_finished(driven: Driven) -> None:
    old, *_, new = driven.system.versions
    driven.apply(driven.stage(old, without=driven.open))
    transaction = driven.stage(new, without=driven.open)
    beside = [file for file in transaction.files if "persistenced" in file]
    driven.node.run(
        ["rpm", "--force-debian", "--install", "--force", "--nodeps", *beside]
    )  # as if killed before the erasure
    assert driven.manager.is_interrupted(driven.host)
    assert not driven.manager.installed(driven.host, ["nvidia-persistenced"])["nvidia-persistenced"].is_whole

    driven.manager.repair(driven.host, Clock())
    assert not driven.manager.is_interrupted(driven.host)
    driven.apply(transaction)

    assert set(driven.versions().values()) == {new}
    assert driven.node.run(["systemctl", "cat", "nvidia-persistenced"]).returncode == 0  # its files are still there


def test_a_killed_transaction_is_carried_out_by_the_next(driven: Driven) -> None:
    old, *_, new = driven.system.versions
    transaction = driven.stage(old, without=driven.open)
    unit = "killed.service"
    words = " ".join(transaction.files)
    install = {
        "dnf": f"dnf -y --disablerepo=* install {words}",
        "zypper": f"rpm --force-debian -U --oldpackage {words}",
    }
    driven.apply(driven.stage(new, without=driven.open))
    driven.node.run(["systemd-run", f"--unit={unit}", "sh", "-c", install[driven.manager.name]])
    while not driven.node.run(["rpm", "-q", f"nvidia-persistenced-{old}"], check=False).stdout.startswith("nvidia"):
        if driven.node.run(["systemctl", "is-active", unit], check=False).returncode:
            break
        time.sleep(0.01)
    driven.node.run(["systemctl", "kill", "--signal=KILL", unit], check=False)

    if driven.manager.is_interrupted(driven.host):
        driven.manager.repair(driven.host, Clock())
    driven.apply(transaction)

    assert set(driven.versions().values()) == {old}
    assert not driven.manager.is_interrupted(driven.host)


def test_a_damaged_database_is_said_to_be_damaged(driven: Driven) -> None:
    driven.node.run(["sh", "-c", "cp -a /var/lib/rpm /root/rpm; for f in /var/lib/rpm/*; do echo broken > $f; done"])
    try:
        with pytest.raises(PackageError, match=r"rpm's database is damaged.*rpm --rebuilddb"):
            driven.manager.installed(driven.host, ["nvidia-persistenced"])
    finally:
        driven.node.run(["sh", "-c", "rm -rf /var/lib/rpm; mv /root/rpm /var/lib/rpm"])


def test_what_is_no_package_is_named(driven: Driven) -> None:
    driven.node.run(["sh", "-c", "echo text > /root/x.rpm"])
    with pytest.raises(PackageError, match=r"/root/x\.rpm is not an RPM package"):
        driven.manager.describe(driven.host, ["/root/x.rpm"])
