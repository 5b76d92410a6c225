"""The real apt and dpkg, killed in the middle of a transaction: the same one finishes it, or the one back undoes it."""

from __future__ import annotations

import itertools
import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Finished, Host, run_command
from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.transaction import Apt
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError, Transaction

from lab import trees
from tests.sampled import every_second

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

pytestmark = pytest.mark.functional

OLD, NEW = "535.309.01", "550.163.01"
STAGED, SCRATCH, MARK = "/srv/staged", "/srv/scratch", "/srv/kill"
LIBRARY, MODULE = "libcuda1", "nvidia-kernel-dkms"
CONTROL = """\
Package: {name}
Version: {version}
Architecture: amd64
Maintainer: lab <lab@grapnel.invalid>
{depends}Description: x
"""
# Kills dpkg, and apt-get above it, where the test says so; the files of a package are there or not by then.
SCRIPT = f"""\
#!/bin/sh
[ "$(cat {MARK} 2>/dev/null)" = "{{name}} {{script}} $1" ] || exit 0
rm {MARK}
above=$(sed 's/.*) . //; s/ .*//' /proc/$PPID/stat)
kill -9 "$above" "$PPID"
"""
SCRIPTS = ("preinst", "postinst", "prerm", "postrm")


class Root:
    """A Debian below a folder, with the package files of a driver in two versions."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.host = Host(root, self._run)

    def _run(self, arguments: Sequence[str], timeout_s: float) -> Finished:
        return run_command(["chroot", str(self.root), *arguments], timeout_s)

    def change(self, version: str | None) -> Transaction:
        """Return the transaction that leads to a version, or to none: what is not there is not removed."""
        if version is None:
            names = Apt().installed(self.host, (LIBRARY, MODULE))
            return Transaction((), tuple(names), SCRATCH, purge=True)
        files = tuple(f"{STAGED}/{name}_{version}_amd64.deb" for name in (LIBRARY, MODULE))
        return Transaction(files, (), SCRATCH)

    def bring_to(self, version: str | None) -> None:
        """Do what the driver's program does in its step `packages`."""
        if Apt().is_interrupted(self.host):
            Apt().repair(self.host, Clock())
        change = self.change(version)
        if change.files or change.remove:
            Apt().apply(self.host, change, Clock())

    def cut(self, version: str | None, moment: str) -> bool:
        """Begin a transaction that is killed when a maintainer script is called; tells whether it came to that."""
        mark = self.root / MARK.lstrip("/")
        mark.write_text(moment)
        try:
            Apt().apply(self.host, self.change(version), Clock())
        except PackageError:
            return not mark.exists()
        mark.unlink()
        return False

    def assert_has(self, version: str | None) -> None:
        found = Apt().installed(self.host, (LIBRARY, MODULE))
        assert {name: one.version for name, one in found.items()} == (
            {} if version is None else dict.fromkeys((LIBRARY, MODULE), version)
        )
        assert not Apt().is_interrupted(self.host)
        for name in found:
            assert version in self.host.names(f"/usr/lib/{name}")

    def assert_no_others(self, version: str | None) -> None:
        """Hold the driver's files to those of a version."""
        for name in (LIBRARY, MODULE):
            assert self.host.names(f"/usr/lib/{name}") == ([] if version is None else [version])


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A layer with the package files."""
    layer, made = tmp_path_factory.mktemp("layer"), tmp_path_factory.mktemp("made")
    for folder in (STAGED, SCRATCH):
        (layer / folder.lstrip("/")).mkdir(parents=True)
    for name, version in itertools.product((LIBRARY, MODULE), (OLD, NEW)):
        build_package(made / f"{name}-{version}", layer / STAGED.lstrip("/"), name, version)
    return layer


def build_package(made: Path, into: Path, name: str, version: str) -> None:
    (made / "DEBIAN").mkdir(parents=True)
    depends = f"Depends: {LIBRARY} (= {version})\n" if name == MODULE else ""
    (made / "DEBIAN/control").write_text(CONTROL.format(name=name, version=version, depends=depends))
    for script in SCRIPTS:
        path = made / "DEBIAN" / script
        path.write_text(SCRIPT.format(name=name, script=script))
        path.chmod(0o755)
    (made / f"usr/lib/{name}").mkdir(parents=True)
    (made / f"usr/lib/{name}/{version}").write_text(version)
    build = ["dpkg-deb", "-Znone", "--root-owner-group", "--build", str(made), f"{into}/{name}_{version}_amd64.deb"]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(params=["bookworm", "trixie"])
def root(request: pytest.FixtureRequest, staged: Path, tmp_path: Path) -> Iterator[Root]:
    upper, work, merged = (tmp_path / name for name in ("upper", "work", "merged"))
    for path in (upper, work, merged):
        path.mkdir()
    options = f"lowerdir={staged}:{trees.ensure(request.param)},upperdir={upper},workdir={work}"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, str(merged)], check=True)
    try:
        subprocess.run(["mount", "-t", "proc", "proc", str(merged / "proc")], check=True)
        yield Root(merged)
    finally:
        subprocess.run(["umount", "--recursive", str(merged)], check=True)


MOMENTS = {
    "before the files of a new package": (None, OLD, f"{MODULE} preinst install"),
    "before the files of an upgrade": (OLD, NEW, f"{LIBRARY} preinst upgrade"),
    "behind the files of an upgrade": (OLD, NEW, f"{LIBRARY} postrm upgrade"),
    "before the files of a downgrade": (NEW, OLD, f"{LIBRARY} preinst upgrade"),
    "behind the files of a downgrade": (NEW, OLD, f"{MODULE} postrm upgrade"),
    "before an upgrade": (OLD, NEW, f"{MODULE} prerm upgrade"),
    "while configuring": (NEW, OLD, f"{LIBRARY} postinst configure"),
    "while configuring the last": (None, NEW, f"{MODULE} postinst configure"),
    "before a removal": (NEW, None, f"{MODULE} prerm remove"),
    "behind a removal": (NEW, None, f"{MODULE} postrm remove"),
    "while purging": (NEW, None, f"{LIBRARY} postrm purge"),
}


@pytest.mark.parametrize("moment", every_second(MOMENTS))
def test_a_killed_transaction_is_finished_by_the_same(moment: tuple[str | None, str | None, str], root: Root) -> None:
    before, wanted, script = moment
    root.bring_to(before)
    assert root.cut(wanted, script)

    root.bring_to(wanted)

    root.assert_has(wanted)
    root.assert_no_others(wanted)


@pytest.mark.parametrize("moment", every_second(MOMENTS))
def test_a_killed_transaction_is_undone_by_the_one_back(moment: tuple[str | None, str | None, str], root: Root) -> None:
    """Dpkg does not know yet which files came with the package it was killed at: those alone may be left."""
    before, wanted, script = moment
    root.bring_to(before)
    assert root.cut(wanted, script)

    root.bring_to(before)

    root.assert_has(before)


def test_a_package_of_somebody_else_that_dpkg_was_killed_at_is_named(root: Root) -> None:
    status = root.host.path("/var/lib/dpkg/status")
    root.bring_to(OLD)
    text = status.read_text()
    status.write_text(re.sub(r"(?<=Package: zlib1g\nStatus: ).*", "install reinstreq half-installed", text))

    with pytest.raises(PackageError, match=r"no part of this driver: .*zlib1g needs to be reinstalled") as raised:
        root.bring_to(NEW)

    assert raised.value.is_unchanged
