"""Drivers for nodes without a network: collected on another node, carried as one file, changed there and back.

What is simulated is the kernel that loads the modules; those of Debian are built beforehand by the same dkms
(``lab.modules``), the packages of the others are the lab's (``lab.sources``).
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest

from lab.nodes import Site
from provision.bundle.model import BundleList
from provision.bundle.write import write_bundle
from provision.cli.plan import open_bundle
from tests.journey.conftest import fingerprint
from tests.journey.offline import ALWAYS, COLLECTOR, NAME, SYSTEMS, Debian, status
from tests.journey.wire import Wire
from tests.worker import of_this_worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.nodes import Node
    from provision.bundle.model import Driver
    from provision.bundle.read import Bundle
    from tests.journey.conftest import Controller
    from tests.journey.offline import RpmSystem

    System = Debian | RpmSystem

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(1500)]  # three driver changes; minutes where nothing else runs

TIMEOUT_S = 900  # of a command, beside whatever else runs
BUNDLE = "drivers.bundle"
OTHER_KERNEL, OTHER_DISTRIBUTION = "6.99.0-other", "ubuntu-24.04"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Debian 12 differs from 13 in the versions of its tools, zypper from dnf in what test_distributions looks at."""
    every = metafunc.config.getoption("--all-systems")
    chosen = [system for system in SYSTEMS if every or system.name in ALWAYS]
    metafunc.parametrize("system", chosen, ids=lambda system: system.name)


def declare(controller: Controller, system: System, version: str) -> None:
    driver = {"version": version, "companions": [], **system.declared()}
    spec = {"driver": driver, "runtime": {"enabled": False}}
    document = {"apiVersion": "grapnel.dev/v1alpha1", "kind": "GpuStack", "spec": spec}
    controller.folder.joinpath("grapnel.yaml").write_text(json.dumps(document))


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A site of this file's own: its inventory has nobody else's nodes."""
    made = Site(of_this_worker("offline"))
    made.destroy()
    yield made
    made.destroy()


@pytest.fixture
def node(site: Site, system: System) -> Iterator[Node]:
    """A node with a kernel, and nothing of a driver, nor of dkms."""
    made = site.up(system.spec())
    system.furnish(made)
    yield made
    site.remove(NAME)


@pytest.fixture
def operator(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> Controller:
    monkeypatch.setenv("XDG_STATE_HOME", str(controller.folder / "state"))
    return replace(controller, timeout_s=TIMEOUT_S)


def create(site: Site, operator: Controller, node: Node, system: System) -> Path:
    """Have the bundle made on another node, which has a network, for the kernel and the GPUs of this one.

    The driver that is installed first is collected last: what was built with for another must not be missing.
    """
    site.up(system.collector())
    kernel = node.kernel_release
    words = [word for version in reversed(system.versions) for word in ("--version", version)]

    done = operator.run(
        "grapnel", "bundle", "create", BUNDLE, "-i", "inventory.yaml", "--from", COLLECTOR,
        "--kernel", kernel, "--flavour", system.flavour, *words, *system.collecting(kernel),
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    site.remove(COLLECTOR)
    return operator.folder / BUNDLE


def test_a_node_without_a_network_gets_its_drivers_from_a_bundle(
    site: Site, operator: Controller, node: Node, system: System
) -> None:
    older, newer = system.versions
    declare(operator, system, older)
    bundle = create(site, operator, node, system)
    system.cut_off(node, site.bridge.host_address)

    with Wire(site.bridge_name, node.address) as wire:
        if isinstance(system, Debian):  # what is refused is refused by the controller
            refusals(operator, node, system, bundle)
        for version in (older, newer, older):
            apply(operator, node, system, version)
        assert plan_items(operator) == []
        assert wire.sent() == []

        node.run([*system.asks_sources], check=False)
        assert wire.sent() != [], "nothing would have been seen"


def refusals(operator: Controller, node: Node, system: System, archive: Path) -> None:
    """Each of them is found before anything is touched."""
    before = fingerprint(node)
    unpacked = open_bundle(archive, operator.environment())
    own, (version, _) = system.distribution, system.versions
    driver = next(one for one in unpacked.listing.drivers if one.version == version)
    cut = operator.folder / "cut.bundle"
    with archive.open("rb") as whole:
        cut.write_bytes(whole.read(archive.stat().st_size // 4))
    elsewhere = msgspec.structs.replace(
        driver, distribution=OTHER_DISTRIBUTION, modules=(), packages=driver.packages[:1]
    )
    with_other_kernel = msgspec.structs.replace(
        driver, modules=tuple(msgspec.structs.replace(one, kernel=OTHER_KERNEL) for one in driver.modules)
    )

    assert "is cut or damaged at byte" in refused(operator, cut)
    with damaged(archive):
        assert "is damaged: it does not have the digest that is listed" in refused(operator, archive)
    said = refused(operator, alone(unpacked, elsewhere, operator.folder / "elsewhere.bundle"))
    assert f"the bundle has nothing for {own}; it is for {OTHER_DISTRIBUTION}" in said
    said = refused(operator, alone(unpacked, with_other_kernel, operator.folder / "kernel.bundle"))
    assert f"the bundle has no module of driver {version} (proprietary) for kernel {node.kernel_release}" in said
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


def apply(operator: Controller, node: Node, system: System, version: str) -> None:
    declare(operator, system, version)
    done = operator.grapnel("apply", "--yes", "--no-cluster", "--bundle", BUNDLE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert_has(node, system, version)


def assert_has(node: Node, system: System, version: str) -> None:
    """Hold the node to packages, module on disk and module loaded of one version, and nothing that was built."""
    system.assert_installed(node, version)
    found = status(node)
    current = next(one for one in found["staged"] if one["id"] == found["current"])
    smi = node.run(["nvidia-smi", "-L"]).stdout.splitlines()
    assert [gpu.uuid in line for gpu, line in zip(node.gpus, smi, strict=True)] == [True] * len(node.gpus)
    assert version in node.run(["cat", "/proc/driver/nvidia/version"]).stdout.splitlines()[0].split()
    assert node.run(["cat", "/sys/module/nvidia/version"]).stdout.strip() == version
    assert node.run(["systemctl", "is-active", "grapnel-node"]).stdout.strip() == "active"
    assert current["cost"]["build_s"] == 0


def plan_items(operator: Controller) -> list[dict[str, str]]:
    done = operator.grapnel("plan", "--json", "--bundle", BUNDLE)
    (plan,) = json.loads(done.stdout)["plans"]
    return list(plan["items"])
