"""Engines of the systems' own package sources and of CRI-O's: they come, work, are held beside the site's, and go.

Package managers, signatures, locks, systemd, containerd and CRI-O are real on nodes that say they are other systems.
The packages are the lab's, with the names, relations and settings of the published ones.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from lab import sources
from lab.bundle.repository import PUBLIC_KEY
from lab.nodes import NodeSpec
from lab.sources.systems import CRIOS, DOCKERS
from tests.journey.systems import CASES, DPKG, LISTED, RPM, SETTINGS, SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.nodes import Node, Site
    from tests.journey.conftest import Controller

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(900)]

UPGRADES = {"dnf": "dnf -y -q upgrade", "zypper": "zypper -nq update", "apt": "apt-get -y -qq upgrade"}
OWN = {"source": "distribution"}
DOCKER = {"source": "docker", "repository": {"url": f"file://{SOURCES}/{DOCKERS}"}}
# Of the site: these nodes have no iptables, which both want for published ports.
SITES = {
    "docker": ("/etc/docker/daemon.json", '{"bridge": "none", "iptables": false, "ip6tables": false}\n'),
    "crio": ("/etc/crio/crio.conf.d/20-site.conf", "[crio.runtime]\ndisable_hostport_mapping = true\n"),
}
CRIO = {"engine": "crio", "source": "crio", "repository": {"url": f"file://{SOURCES}/{CRIOS}"}}


@dataclass(frozen=True)
class Case:
    """A system, what is declared of its engine, which package that is, and which are held: that one alone, or these."""

    system: str
    runtime: dict[str, Any]
    package: str
    held: tuple[str, ...] = ()


ENGINES = (
    Case("sles15", OWN, "containerd 2.2.1-150000.123.1"),
    Case("sles15", CRIO, "cri-o 1.36.3-1.1"),
    Case("ubuntu2404", OWN, "containerd 2.2.1-0ubuntu1~24.04.3"),
    Case("ubuntu2404", CRIO, "cri-o 1.36.3-1.1"),
    Case("al2023", OWN, "containerd 2.2.1-1.amzn2023"),
    Case("rocky10", DOCKER, "containerd.io 2.2.1-1.el10"),
    Case("rocky9", CRIO, "cri-o 1.36.3-1.1"),
    Case("rocky9", {**DOCKER, "engine": "docker"}, "docker-ce 3:26.1.5-1.el9", ("containerd.io", "docker-ce")),
)


ALWAYS = (ENGINES[0], ENGINES[-1])


def as_param(case: Case) -> object:
    name = f"{case.system}-{case.package.split()[0]}"
    return pytest.param(case.system, case, id=name, marks=[] if case in ALWAYS else [pytest.mark.long])


@pytest.fixture(scope="module")
def node(site: Site, request: pytest.FixtureRequest) -> Iterator[Node]:
    name = request.param
    made = site.up(NodeSpec(name, suite=sources.BASE_SUITE, gpus=1, system=name))
    say(made, CASES[name].lock)  # of the site's administrator
    yield made
    site.remove(name)


def say(node: Node, script: str) -> str:
    return node.run(["sh", "-c", script]).stdout.strip()


def packages(node: Node) -> list[str]:
    """Return names and versions of what is installed, without dpkg's state, which is another one of what is held."""
    is_apt = "ubuntu" in node.name
    rows = node.run(DPKG if is_apt else RPM).stdout.splitlines()
    return sorted(" ".join(row.split()[is_apt:]) for row in rows if not row.startswith("gpg-pubkey"))


def settings(node: Node) -> str:
    folders = f"{SETTINGS} /etc/docker /etc/containerd /etc/crio /etc/cni"
    return say(node, f"find {folders} -type f -exec sha256sum '{{}}' + 2>/dev/null | sort -k 2")


def locks(node: Node) -> list[str]:
    return sorted(say(node, CASES[node.name].shown).splitlines())


@pytest.mark.parametrize(("node", "case"), [as_param(case) for case in ENGINES], indirect=["node"])
def test_an_engine_comes_works_is_held_and_goes(
    case: Case, node: Node, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(controller.folder / "state"))
    manager, held = sources.find_system(case.system).manager, case.held or (case.package.split()[0],)
    engine = case.runtime.get("engine", "containerd")
    if engine in SITES:
        path, text = SITES[engine]
        place = node.root / path.lstrip("/")
        place.parent.mkdir(parents=True)
        place.write_text(text)
    before, former, sites = packages(node), settings(node), locks(node)
    declare(controller, node, {**case.runtime, "hold": True})

    done = controller.call("apply", node.name)

    assert "1 converged" in done.stdout, done.stdout + done.stderr
    assert case.package in packages(node)
    assert controller.plan_items(node.name) == []
    assert_works(node, engine)
    ours = [lock for lock in locks(node) if lock not in sites]
    assert len(ours) == len(held)
    assert all(name in lock for name, lock in zip(held, ours, strict=True))
    say(node, UPGRADES[manager])
    assert case.package in packages(node)

    declare(controller, node, case.runtime)
    assert {item["action"] for item in controller.plan_items(node.name)} == {"unhold"}
    assert "1 converged" in controller.call("apply", node.name).stdout
    assert locks(node) == sites

    declare(controller, node, {**case.runtime, "hold": True})
    assert "1 converged" in controller.call("apply", node.name).stdout
    gone = controller.call("remove", node.name)
    assert "1 removed" in gone.stdout, gone.stdout + gone.stderr
    assert packages(node) == before
    assert settings(node) == former
    assert locks(node) == sites
    say(node, "rm -rf /etc/docker /etc/crio")


def test_a_hold_goes_along_with_another_version(
    site: Site, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(controller.folder / "state"))
    node = site.up(NodeSpec("exchanged", suite=sources.BASE_SUITE, gpus=1, system="rocky9"))
    try:
        for version in ("2.2.1", "2.4.2", "2.2.1"):
            declare(controller, node, {**DOCKER, "version": version, "hold": True})
            done = controller.call("apply", node.name)
            assert "1 converged" in done.stdout, done.stdout + done.stderr
            say(node, UPGRADES["dnf"])
            assert f"containerd.io {version}-1.el9" in packages(node)
            assert say(node, LISTED) == f"containerd.io-0:{version}-1.el9.*"
            assert controller.plan_items(node.name) == []
        say(node, "dnf -y -q versionlock add bash")
        before = say(node, LISTED).splitlines()
        declare(controller, node, {**DOCKER, "version": "2.4.2"})  # which lets it go, and leaves the site's
        assert "1 converged" in controller.call("apply", node.name).stdout
        assert say(node, LISTED).splitlines() == [line for line in before if line.startswith("bash")]
    finally:
        site.remove(node.name)


def declare(controller: Controller, node: Node, runtime: dict[str, Any]) -> None:
    declared = {"entitlement": "env", **runtime}
    if "repository" in runtime:
        key = node.machine.bundle.joinpath(PUBLIC_KEY).read_text()
        declared["repository"] = {**runtime["repository"], "key": key}
    spec = {"driver": {"enabled": False}, "runtime": declared, "plugin": {"enabled": False}}
    document = {"apiVersion": "grapnel.dev/v1alpha1", "kind": "GpuStack", "spec": spec}
    controller.folder.joinpath("grapnel.yaml").write_text(json.dumps(document))


def assert_works(node: Node, engine: str) -> None:
    """See that the service runs and starts at boot, and that it has taken grapnel's handler in."""
    assert say(node, f"systemctl is-active {engine}; systemctl is-enabled {engine}") == "active\nenabled"
    if engine == "crio":
        assert "runtimes.nvidia]" in say(node, "crio status config")
        return
    if engine == "docker":
        assert "nvidia" in json.loads(say(node, "docker info --format '{{json .Runtimes}}'"))
        return
    plugins = say(node, "$(command -v ctr || command -v containerd-ctr) plugins ls")
    assert [line.split()[-1] for line in plugins.splitlines() if "io.containerd.cri.v1" in line] == ["ok", "ok"]
    assert "runtimes.nvidia" in say(node, "containerd config dump")
