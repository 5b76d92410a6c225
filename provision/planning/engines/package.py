"""Says which package an engine is, by system and source, and by which files a node knows Docker's and CRI-O's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import EngineSource
from provision.planning.node_plan import FileContent
from provision.planning.render.package_source import (
    apt_key_path,
    apt_source_path,
    render_deb822,
    render_repo,
    repo_path,
    rpm_key_path,
)

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import Runtime

DEBIAN_KIN: Final = ("debian", "ubuntu")
RHEL_KIN: Final = ("rhel", "rocky", "almalinux")
# Docker's own: product data, as names of packages are (docs.docker.com, "Install Docker Engine on RHEL"). The keys have
# the fingerprints 9DC858229FC7DD38854AE2D88D81803C0EBFCD88 (deb) and 060A61C51B558A7F742B77AAC52FEB6B621E9F35 (rpm).
DOCKERS_ROOT: Final = "https://download.docker.com/linux"
# CRI-O's: one for each minor version, with the same packages for all systems (cri-o/packaging, README.md).
CRIOS_ROOT: Final = "https://download.opensuse.org/repositories/isv:/cri-o:/stable:/v{minor}"
_NAMES: Final = {EngineSource.DOCKER: "docker", EngineSource.CRIO: "cri-o"}


@dataclass(frozen=True)
class EnginePackage:
    """A package of an engine; one that is installed beside it ``replaces`` others, which go then.

    ``besides`` are installed with it: what it works without, and grapnel or the system does not.
    """

    name: str
    replaces: tuple[str, ...] = ()
    besides: tuple[str, ...] = ()


# Docker's packages of containerd bring a runc, and are said to conflict with both and to replace them
# (docker/containerd-packaging, debian/control and rpm/containerd.spec).
CONTAINERD_IO: Final = EnginePackage("containerd.io", ("containerd", "containerd-stable", "runc", "runc-stable"))
DOCKER_CE: Final = EnginePackage("docker-ce", (*CONTAINERD_IO.replaces, "docker.io", "docker"))
DOCKER_IO: Final = EnginePackage("docker.io", ("containerd.io", "docker-ce"))  # it needs the distribution's containerd
CRI_O: Final = EnginePackage("cri-o")
# Its package does not ask for the labels of containers, without which it starts none on these systems (README.md).
CRI_O_WITH_SELINUX: Final = EnginePackage("cri-o", besides=("container-selinux",))

CONTAINERDS: Final = frozenset({"containerd", "containerd-stable", CONTAINERD_IO.name})
DOCKERS_SYSTEMS: Final = (*DEBIAN_KIN, *RHEL_KIN)


def render_sources(facts: NodeFacts, runtime: Runtime) -> tuple[FileContent, ...]:
    """Return the files by which a node knows the declared source; none where it is the node's own system."""
    if runtime.source not in _NAMES or runtime.repository is None:
        return ()
    name, key, manager = _NAMES[runtime.source], runtime.repository.key, facts.package_manager.name
    place = _find_docker if runtime.source is EngineSource.DOCKER else _find_crio
    url, suites, components = place(facts, runtime)
    if manager == "apt":
        path = apt_key_path(name)
        text = render_deb822(url=url, suites=suites, components=components, key_path=path)
        return (FileContent(path, key), FileContent(apt_source_path(name), text))
    text = render_repo(manager, name, runtime.source.owner, url)
    return (FileContent(rpm_key_path(name), key), FileContent(repo_path(manager, name), text))


def _find_docker(facts: NodeFacts, runtime: Runtime) -> tuple[str, str, str]:
    """Return where Docker's repository is: for apt with suite and component, which the others do not have."""
    url, system = runtime.repository and runtime.repository.url, facts.node.os
    if facts.package_manager.name == "apt":
        return url or f"{DOCKERS_ROOT}/{system.id}", system.codename, "stable"
    major = system.version_id.partition(".")[0]
    return url or f"{DOCKERS_ROOT}/rhel/{major}/{facts.node.architecture}/stable", "", ""


def _find_crio(facts: NodeFacts, runtime: Runtime) -> tuple[str, str, str]:
    """Return where CRI-O's repository is; for apt it is flat."""
    minor = ".".join((runtime.version or "").split(".")[:2])
    root = (runtime.repository and runtime.repository.url) or CRIOS_ROOT.format(minor=minor)
    is_apt = facts.package_manager.name == "apt"
    return f"{root.rstrip('/')}/{'deb' if is_apt else 'rpm'}", "/" if is_apt else "", ""


def source_paths() -> dict[str, EngineSource]:
    """Return where the files of sources that are not a node's own system are, by whichever package manager."""
    return {
        path: source
        for source, name in _NAMES.items()
        for path in (
            apt_source_path(name),
            apt_key_path(name),
            repo_path("dnf", name),
            repo_path("zypper", name),
            rpm_key_path(name),
        )
    }
