"""Drivers for a node without a network: collected on another node, carried as one file, changed there and back.

What is simulated is the kernel that loads the modules, which are built beforehand by the same dkms (``lab.modules``).
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest

from lab import modules
from lab.nodes import NodeSpec, Site
from provision.bundle.model import BundleList
from provision.bundle.write import write_bundle
from provision.cli.plan import open_bundle
from tests.journey.conftest import OLD_VERSION, VERSION, fingerprint
from tests.journey.wire import Wire
from tests.worker import of_this_worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.nodes import Node
    from provision.bundle.model import Driver
    from provision.bundle.read import Bundle
    from tests.journey.conftest import Controller

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(1500)]  # three driver changes; minutes where nothing else runs

TIMEOUT_S = 900  # of a command, beside whatever else runs
NAME, COLLECTOR = "offline", "connected"
BUNDLE = "drivers.bundle"
OTHER_KERNEL = "6.99.0-other"
PROGRAM = "/usr/lib/grapnel/driver/grapnel-driver"
PACKAGES = ("libcuda1", "libnvidia-ml1", "nvidia-kernel-dkms", "nvidia-kernel-support", "nvidia-smi")
DECLARATION = """\
apiVersion: grapnel.dev/v1alpha1
kind: GpuStack
spec:
  driver: {{version: "{version}", companions: []}}
  runtime: {{enabled: false}}
"""


def declare(controller: Controller, version: str) -> None:
    controller.folder.joinpath("grapnel.yaml").write_text(DECLARATION.format(version=version))


def cut_off(node: Node, address: str) -> None:
    """Leave the node no package source but one that does not answer, and nothing of what it knew of packages."""
    source = f"deb [trusted=yes] http://{address}:9/ ./\n"
    script = "umount /srv/bundle && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin && rm -f /etc/apt/sources.list.d/*"
    node.run(["sh", "-c", f"{script} && cat > /etc/apt/sources.list"], input_text=source)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A site of this file's own: its inventory has nobody else's nodes."""
    made = Site(of_this_worker("offline"))
    made.destroy()
    yield made
    made.destroy()


@pytest.fixture(scope="module")
def node(site: Site) -> Node:
    """A Debian 13 node with a kernel, and nothing of a driver, nor of dkms.

    It has no initramfs: rebuilding it after each change would take longer than they do.
    """
    made = site.up(NodeSpec(NAME, suite="trixie", gpus=2, builder=True))
    made.run(["sh", "-c", "rm /boot/initrd.img-* && dpkg --purge dkms"])
    return made


@pytest.fixture
def operator(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> Controller:
    monkeypatch.setenv("XDG_STATE_HOME", str(controller.folder / "state"))
    return replace(controller, timeout_s=TIMEOUT_S)


def create(site: Site, operator: Controller, node: Node, archives: dict[str, Path]) -> Path:
    """Have the bundle made where there is a network, for the kernel and the GPUs of the node."""
    site.up(NodeSpec(COLLECTOR, suite="trixie", gpus=0))
    words = [
        word for version, archive in archives.items() for word in ("--version", version, "--modules", str(archive))
    ]

    done = operator.run(
        "grapnel", "bundle", "create", BUNDLE, "-i", "inventory.yaml", "--from", COLLECTOR,
        "--kernel", node.kernel_release, "--flavour", "proprietary", *words,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    site.remove(COLLECTOR)
    return operator.folder / BUNDLE


def test_a_node_without_a_network_gets_its_drivers_from_a_bundle(site: Site, operator: Controller, node: Node) -> None:
    archives = {
        version: modules.archive(version, "proprietary", node.kernel_release) for version in (OLD_VERSION, VERSION)
    }
    declare(operator, OLD_VERSION)
    bundle = create(site, operator, node, archives)
    cut_off(node, site.bridge.host_address)

    with Wire(site.bridge_name, node.address) as wire:
        refusals(operator, node, bundle)
        first_installation(operator, node)
        upgrade(operator, node)
        downgrade(operator, node)
        assert wire.sent() == []

        node.run(["apt-get", "-q", "update"], check=False)
        assert wire.sent() != [], "nothing would have been seen"


def refusals(operator: Controller, node: Node, archive: Path) -> None:
    """Each of them is found before anything is touched."""
    before = fingerprint(node)
    unpacked = open_bundle(archive, operator.environment())
    driver = next(one for one in unpacked.listing.drivers if one.version == OLD_VERSION)
    cut = operator.folder / "cut.bundle"
    with archive.open("rb") as whole:
        cut.write_bytes(whole.read(archive.stat().st_size // 4))
    elsewhere = msgspec.structs.replace(driver, distribution="debian-12", modules=(), packages=driver.packages[:1])
    with_other_kernel = msgspec.structs.replace(
        driver, modules=tuple(msgspec.structs.replace(one, kernel=OTHER_KERNEL) for one in driver.modules)
    )

    assert "is cut or damaged at byte" in refused(operator, cut)
    with damaged(archive):
        assert "is damaged: it does not have the digest that is listed" in refused(operator, archive)
    said = refused(operator, alone(unpacked, elsewhere, operator.folder / "debian12.bundle"))
    assert "the bundle has nothing for debian-13; it is for debian-12" in said
    said = refused(operator, alone(unpacked, with_other_kernel, operator.folder / "kernel.bundle"))
    assert f"the bundle has no module of driver {OLD_VERSION} (proprietary) for kernel {node.kernel_release}" in said
    assert f"cannot build it without dkms; it has modules for {OTHER_KERNEL}" in said
    assert fingerprint(node) == before


def refused(operator: Controller, bundle: Path) -> str:
    done = operator.grapnel("apply", "--yes", "--no-cluster", "--bundle", str(bundle))
    assert done.returncode == 1, done.stdout + done.stderr
    return " ".join((done.stdout + done.stderr).replace("│", " ").split())


@contextmanager
def damaged(archive: Path) -> Iterator[None]:
    """Change one bit in the middle, and put it right afterwards."""
    with archive.open("r+b") as file:
        place = file.seek(archive.stat().st_size // 2)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 1]))
        file.flush()
        yield
        file.seek(place)
        file.write(bytes([byte]))


def alone(bundle: Bundle, driver: Driver, target: Path) -> Path:
    """Write a bundle with one driver, which is described as it is given."""
    places = {one.place for one in (*driver.packages, *driver.modules)}
    listing = BundleList(grapnel=bundle.listing.grapnel, files=(), drivers=(driver,))
    write_bundle(target, {place: bundle.path(place) for place in places}, listing)
    return target


def apply(operator: Controller, node: Node, version: str) -> None:
    declare(operator, version)
    done = operator.grapnel("apply", "--yes", "--no-cluster", "--bundle", BUNDLE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert_has(node, version)


def assert_has(node: Node, version: str) -> None:
    """Hold the node to packages, module on disk and module loaded of one version, and nothing that was built."""
    form = "${db:Status-Abbrev}${source:Upstream-Version}\n"
    shown = node.run(["dpkg-query", "--show", "--showformat", form, *PACKAGES]).stdout.splitlines()
    built = node.run(["dkms", "status"]).stdout.splitlines()
    smi = node.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]).stdout.split()
    status = json.loads(node.run([PROGRAM, "status"]).stdout)
    current = next(one for one in status["staged"] if one["id"] == status["current"])
    assert shown == [f"hi {version}"] * len(PACKAGES)
    assert built == [f"nvidia-current/{version}, {node.kernel_release}, x86_64: installed"]
    assert smi == [version] * len(node.gpus)
    assert node.run(["cat", "/sys/module/nvidia/version"]).stdout.strip() == version
    assert node.run(["systemctl", "is-active", "grapnel-node"]).stdout.strip() == "active"
    assert current["cost"]["build_s"] == 0


def first_installation(operator: Controller, node: Node) -> None:
    """What the packages need comes with them, dkms too."""
    apply(operator, node, OLD_VERSION)


def upgrade(operator: Controller, node: Node) -> None:
    apply(operator, node, VERSION)


def downgrade(operator: Controller, node: Node) -> None:
    apply(operator, node, OLD_VERSION)
    done = operator.grapnel("plan", "--json", "--bundle", BUNDLE)
    assert json.loads(done.stdout)["plans"][0]["items"] == []
