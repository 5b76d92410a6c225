"""Says which package an engine is, by system and source, and by which files a node knows Docker's repository."""

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
_NAME: Final = "docker"


@dataclass(frozen=True)
class EnginePackage:
    """A package of an engine; one that is installed beside it ``replaces`` others, which go then."""

    name: str
    replaces: tuple[str, ...] = ()


# Docker's packages of containerd bring a runc, and are said to conflict with both and to replace them
# (docker/containerd-packaging, debian/control and rpm/containerd.spec).
CONTAINERD_IO: Final = EnginePackage("containerd.io", ("containerd", "containerd-stable", "runc", "runc-stable"))
DOCKER_CE: Final = EnginePackage("docker-ce", (*CONTAINERD_IO.replaces, "docker.io", "docker"))

DOCKERS_SYSTEMS: Final = (*DEBIAN_KIN, *RHEL_KIN)


def render_sources(facts: NodeFacts, runtime: Runtime) -> tuple[FileContent, ...]:
    """Return the files by which a node knows the declared source; none where it is the node's own system."""
    if runtime.source is not EngineSource.DOCKER or runtime.repository is None:
        return ()
    url, key, system = runtime.repository.url, runtime.repository.key, facts.node.os
    if facts.package_manager.name == "apt":
        text = render_deb822(
            url=url or f"{DOCKERS_ROOT}/{system.id}",
            suites=system.codename or "",
            components="stable",
            key_path=apt_key_path(_NAME),
        )
        return (FileContent(apt_key_path(_NAME), key), FileContent(apt_source_path(_NAME), text))
    major = system.version_id.partition(".")[0]
    folder = f"{DOCKERS_ROOT}/rhel/{major}/{facts.node.architecture}/stable"
    text = render_repo(facts.package_manager.name, _NAME, "Docker", url or folder)
    return (FileContent(rpm_key_path(_NAME), key), FileContent(repo_path(facts.package_manager.name, _NAME), text))


def source_paths() -> tuple[str, ...]:
    """Return where the files of a source that is not a node's own system are, by whichever package manager."""
    return (apt_source_path(_NAME), apt_key_path(_NAME), repo_path("dnf", _NAME), rpm_key_path(_NAME))
