"""Drivers and engines for a node without a network: collected on another one, carried as a file, and changed there.

What is simulated is the kernel that loads the modules. Those of Debian are built beforehand by the same dkms
(``lab.modules``), those of systems with dnf by the collecting node; zypper's are packages.
"""

from __future__ import annotations

import json
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lab import modules, sources
from lab.bundle.repository import PUBLIC_KEY
from lab.nodes import NodeSpec, Site
from lab.sources.systems import DOCKERS
from provision.cli.session.context import open_bundle
from provision.planning.supply.bundle.model import BundleList
from provision.planning.supply.bundle.write import write_bundle
from tests.journey.conftest import OLD_VERSION, VERSION, fingerprint
from tests.journey.dkms import TRIM
from tests.journey.systems import CASES, DPKG, RPM, SOURCES, add_node, change_there_and_back
from tests.journey.wire import Wire
from tests.worker import of_this_worker

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from lab.nodes import Node
    from provision.planning.supply.bundle.model import Driver
    from provision.planning.supply.bundle.read import Bundle
    from tests.journey.conftest import Controller
    from tests.journey.systems import Case, Machine

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(1500)]  # minutes, also where nothing else runs

TIMEOUT_S = 900  # of a command, beside whatever else runs
NAME, COLLECTOR = "offline", "connected"
BUNDLE = "drivers.bundle"
OTHER_KERNEL, OTHER_DISTRIBUTION = "6.99.0-other", "ubuntu-24.04"
VERSIONS = {"trixie": (OLD_VERSION, VERSION), "bookworm": ("535.261.03", OLD_VERSION)}
DISTRIBUTIONS = {"trixie": "debian-13", "bookworm": "debian-12"}
PROGRAM = "/usr/lib/grapnel/driver/grapnel-driver"
PACKAGES = ("libcuda1", "libnvidia-ml1", "nvidia-kernel-dkms", "nvidia-kernel-support", "nvidia-smi")
DECLARATION = """\
apiVersion: grapnel.dev/v1alpha1
kind: GpuStack
spec:
  driver: {{version: "{version}", companions: []{source}}}
  runtime: {{enabled: false}}
"""


# How a package manager is cut off, and what it does that needs a network.
REPOSITORIES = {"rocky9": "/etc/yum.repos.d", "sles15": "/etc/zypp/repos.d"}
CACHES = {"rocky9": "/var/cache/dnf", "sles15": "/var/cache/zypp"}
REFRESH = {"rocky9": ["dnf", "-q", "makecache"], "sles15": ["zypper", "-n", "refresh"]}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Debian 12 differs in the versions of its tools alone, and takes as long."""
    every = metafunc.config.getoption("--all-systems")
    if "engine" in metafunc.fixturenames:
        return
    if "suite" in metafunc.fixturenames:
        metafunc.parametrize("suite", list(VERSIONS) if every else ["trixie"])
    else:
        names = list(REPOSITORIES) if every else ["rocky9"]
        metafunc.parametrize("case", [CASES[name] for name in names], ids=names)


def declare(controller: Controller, version: str, source: str = "") -> None:
    controller.folder.joinpath("grapnel.yaml").write_text(DECLARATION.format(version=version, source=source))


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


@pytest.fixture
def node(site: Site, suite: str) -> Iterator[Node]:
    """A node with a kernel, and nothing of a driver, nor of dkms."""
    made = site.up(NodeSpec(NAME, suite=suite, gpus=2, builder=True))
    for script in (TRIM, "dpkg --purge dkms"):
        made.run(["sh", "-e", "-c", script])
    yield made
    site.remove(NAME)


@pytest.fixture
def operator(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> Controller:
    monkeypatch.setenv("XDG_STATE_HOME", str(controller.folder / "state"))
    return replace(controller, timeout_s=TIMEOUT_S)


def create(site: Site, operator: Controller, node: Node, *words: str) -> Path:
    """Have the bundle made on another node, which has a network, for the kernel of this one."""
    site.up(replace(node.spec, name=COLLECTOR, gpus=0, builder=False))
    done = operator.run(
        "grapnel", "bundle", "create", BUNDLE, "-i", "inventory.yaml", "--from", COLLECTOR,
        "--kernel", node.kernel_release, *words,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    site.remove(COLLECTOR)
    return operator.folder / BUNDLE


def prebuilt(node: Node) -> list[str]:
    """Return the words by which a bundle has both drivers with modules that exist already."""
    kernel = node.kernel_release
    built = {version: modules.archive(version, "proprietary", kernel) for version in VERSIONS[node.spec.suite]}
    return [word for version, file in built.items() for word in ("--version", version, "--modules", str(file))]


def test_a_node_without_a_network_gets_its_drivers_from_a_bundle(site: Site, operator: Controller, node: Node) -> None:
    older, newer = VERSIONS[node.spec.suite]
    declare(operator, older)
    bundle = create(site, operator, node, "--flavour", "proprietary", *prebuilt(node))
    cut_off(node, site.bridge.host_address)

    with Wire(site.bridge_name, node.address) as wire:
        refusals(operator, node, bundle)
        apply(operator, node, older, "--bundle", BUNDLE)
        assert plan_items(operator, "--bundle", BUNDLE) == []
        apply(operator, node, newer, source=f", source: bundle, repository: {{folder: {bundle}}}")
        assert plan_items(operator) == []
        assert wire.sent() == []

        node.run(["apt-get", "-q", "update"], check=False)
        assert wire.sent() != [], "nothing would have been seen"


@pytest.fixture
def machine(case: Case, site: Site, operator: Controller) -> Iterator[Machine]:
    """A node as bare as it comes, without a repository that answers."""
    made = add_node(site, case, operator)
    yield made
    site.remove(made.node.name)


def cut_off_rpm(machine: Machine, address: str) -> None:
    """Leave the node no repository that answers, and nothing of what it knew of packages."""
    folder, cache = REPOSITORIES[machine.case.system], CACHES[machine.case.system]
    machine.say(
        f"umount {SOURCES} && rm -rf {cache}/* && sed -i 's,file:/*srv/bundle,http://{address}:9,' {folder}/*.repo"
    )


def test_dnf_and_zypper_change_drivers_without_a_network(site: Site, operator: Controller, machine: Machine) -> None:
    """The driver that comes first is collected last: what the other was built with must not be missing beside it."""
    case = machine.case
    machine.declare(case.old)
    create(
        site, operator, machine.node, "--flavour", "open", "--version", case.new.version, "--version", case.old.version
    )
    cut_off_rpm(machine, site.bridge.host_address)
    machine.bundle = ("--bundle", BUNDLE)

    with Wire(site.bridge_name, machine.node.address) as wire:
        machine.sent = wire.sent
        change_there_and_back(machine, nullcontext())
        assert wire.sent() == []

        machine.node.run(REFRESH[case.system], check=False)
        assert wire.sent() != [], "nothing would have been seen"


@dataclass(frozen=True)
class Engine:
    """An engine of a system, as it is declared, and its packages at its versions, in the order in which they come."""

    system: str
    runtime: dict[str, Any]
    packages: dict[str, str]
    cut_off: str


DOCKERS_ENGINE = {"source": "docker", "repository": {"url": f"file://{SOURCES}/{DOCKERS}"}}
OFF_RPM = "umount {sources} && rm -rf {cache}/* && sed -i 's,file:/*srv/bundle,http://{address}:9,' {folder}/*.repo"
OFF_APT = (
    "umount {sources} && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /etc/apt/sources.list.d/* && "
    "echo 'deb [trusted=yes] http://{address}:9/ ./' > /etc/apt/sources.list"
)
ENGINES = (
    Engine(
        "rocky9", DOCKERS_ENGINE, {"2.2.1": "containerd.io 2.2.1-1.el9", "2.4.2": "containerd.io 2.4.2-1.el9"}, OFF_RPM
    ),
    Engine("sles15", {}, {"2.2.1": "containerd 2.2.1-150000.123.1"}, OFF_RPM),
    Engine("ubuntu2404", {}, {"2.2.1": "containerd 2.2.1-0ubuntu1~24.04.3"}, OFF_APT),
)
IS_BROKEN = "[Service]\nExecStartPre=/bin/sh -c '! containerd --version | grep -q {version}'\n"


@dataclass
class EngineNode:
    """A node without a network whose engine comes from bundles, and who operates it."""

    node: Node
    engine: Engine
    controller: Controller

    def say(self, script: str) -> str:
        return self.node.run(["sh", "-c", script]).stdout.strip()

    def declare(self, version: str) -> None:
        runtime: dict[str, Any] = {"entitlement": "env", "version": version, "hold": True, **self.engine.runtime}
        if "repository" in runtime:
            key = self.node.machine.bundle.joinpath(PUBLIC_KEY).read_text()
            runtime["repository"] = {**runtime["repository"], "key": key}
        spec = {"driver": {"enabled": False}, "runtime": runtime, "plugin": {"enabled": False}}
        document = {"apiVersion": "grapnel.dev/v1alpha1", "kind": "GpuStack", "spec": spec}
        self.controller.folder.joinpath("grapnel.yaml").write_text(json.dumps(document))

    def bundle(self, version: str) -> str:
        return f"{version}.bundle"

    def create(self, version: str) -> None:
        self.declare(version)
        words = ("-i", "inventory.yaml", "--from", COLLECTOR, "--drivers-only")
        done = self.controller.run("grapnel", "bundle", "create", self.bundle(version), self.node.name, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"engine {self.engine.packages[version]}," in done.stdout

    def plan(self, version: str) -> dict[str, Any]:
        words = ("--json", "--bundle", self.bundle(version), self.node.name)
        (found,) = json.loads(self.controller.grapnel("plan", *words).stdout)["plans"]
        return dict(found)

    def apply(self, version: str) -> subprocess.CompletedProcess[str]:
        self.declare(version)
        words = ("--yes", "--no-cluster", "--bundle", self.bundle(version), self.node.name)
        return self.controller.grapnel("apply", *words)

    def packages(self) -> list[str]:
        """Return names and versions of what is installed, without dpkg's state."""
        is_apt = self.engine.cut_off is OFF_APT
        rows = self.node.run(DPKG if is_apt else RPM).stdout.splitlines()
        return sorted(" ".join(row.split()[is_apt:]) for row in rows if not row.startswith("gpg-pubkey"))


@pytest.fixture
def engine_node(engine: Engine, site: Site, operator: Controller) -> Iterator[EngineNode]:
    node = site.up(NodeSpec("engine", suite=sources.BASE_SUITE, gpus=1, system=engine.system))
    yield EngineNode(node, engine, operator)
    site.remove(node.name)


@pytest.mark.parametrize(
    "engine",
    [pytest.param(one, id=one.system, marks=[pytest.mark.long] * (one is not ENGINES[0])) for one in ENGINES],
)
def test_an_engine_comes_changes_and_goes_without_a_network(
    site: Site, engine: Engine, engine_node: EngineNode
) -> None:
    machine, versions = engine_node, list(engine.packages)
    site.up(replace(machine.node.spec, name=COLLECTOR, gpus=0))
    try:
        for version in versions:
            machine.create(version)
    finally:
        site.remove(COLLECTOR)
    places = {"folder": REPOSITORIES.get(engine.system, ""), "cache": CACHES.get(engine.system, "")}
    machine.say(engine.cut_off.format(sources=SOURCES, address=site.bridge.host_address, **places))
    before, older, newer = machine.packages(), versions[0], versions[-1]

    with Wire(site.bridge_name, machine.node.address) as wire:
        machine.declare("0.1")
        (problem,) = machine.plan(older)["problems"]
        assert problem["code"] == "engine-version-not-available"
        assert f"the bundle has of engines for {bundled_name(engine)}: {engine.packages[older]};" in problem["hint"]
        assert machine.packages() == before

        machine.declare(older)
        (item,) = (one for one in machine.plan(older)["items"] if one["action"] == "install")
        assert item["reason"].endswith("; its packages come from the bundle")
        for version in versions:
            done = machine.apply(version)
            assert "1 converged" in done.stdout, done.stdout + done.stderr
            assert engine.packages[version] in machine.packages()
        assert machine.say("systemctl is-active containerd") == "active"

        if older != newer:  # what is installed leads back, with no source of it
            folder = machine.node.root / "etc/systemd/system/containerd.service.d"
            folder.mkdir()
            folder.joinpath("trouble.conf").write_text(IS_BROKEN.format(version=older))
            done = machine.apply(older)
            assert (
                "its former packages were put back, and containerd.service works with them" in done.stdout + done.stderr
            )
            assert engine.packages[newer] in machine.packages()
            machine.say(f"rm -r /{folder.relative_to(machine.node.root)}; systemctl daemon-reload")
            assert "1 converged" in machine.apply(older).stdout
            assert engine.packages[older] in machine.packages()

        done = machine.controller.grapnel("remove", "--yes", "--no-cluster", machine.node.name)
        assert "1 removed" in done.stdout, done.stdout + done.stderr
        assert machine.packages() == before
        assert machine.say("ls -d /var/lib/grapnel 2>/dev/null || :") == ""
        assert wire.sent() == []


def bundled_name(engine: Engine) -> str:
    return {"rocky9": "rocky-9", "sles15": "sles-15", "ubuntu2404": "ubuntu-24.04"}[engine.system]


def refusals(operator: Controller, node: Node, archive: Path) -> None:
    """Each of them is found before anything is touched."""
    before = fingerprint(node)
    unpacked = open_bundle(archive, operator.environment())
    own, (version, _) = DISTRIBUTIONS[node.spec.suite], VERSIONS[node.spec.suite]
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


def apply(operator: Controller, node: Node, version: str, *words: str, source: str = "") -> None:
    declare(operator, version, source)
    done = operator.grapnel("apply", "--yes", "--no-cluster", *words)
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


def plan_items(operator: Controller, *words: str) -> list[dict[str, str]]:
    done = operator.grapnel("plan", "--json", *words)
    (plan,) = json.loads(done.stdout)["plans"]
    return list(plan["items"])
