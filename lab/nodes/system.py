"""Decides what a node is made of, and writes what makes it the distribution that it says it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab import bundle, sources, trees

if TYPE_CHECKING:
    from pathlib import Path

    from lab.nodes.layer import Layer
    from lab.nodes.spec import NodeSpec

KEY = "/etc/pki/rpm-gpg/RPM-GPG-KEY-grapnel-lab"
REPOSITORY_FOLDERS = {"dnf": "/etc/yum.repos.d", "zypper": "/etc/zypp/repos.d"}
REPOSITORY = """\
[{name}]
name={name}
baseurl=file:///srv/bundle/{name}
enabled=1
autorefresh=1
gpgcheck=1
repo_gpgcheck=1
gpgkey=file://{key}
"""


@dataclass(frozen=True)
class Materials:
    """The lower folders of a node's overlay, top first; its package folder; the driver versions in that folder."""

    lower: tuple[Path, ...]
    packages: Path
    key: Path
    driver_versions: tuple[str, ...]
    system: sources.System | None = None

    @property
    def has_apt(self) -> bool:
        """Whether the node has apt and dpkg."""
        return self.system is None or self.system.manager == "apt"


def find_materials(spec: NodeSpec) -> Materials:
    """Return what a node of ``spec`` is made of, building what the cache lacks."""
    tree = trees.ensure(spec.suite)
    if spec.system:
        found = sources.ensure(spec.system, spec.packages)
        lower, versions = (*found.layers, tree), found.system.versions
        return Materials(lower, found.repositories, found.public_key, versions, found.system)
    packages = bundle.ensure(spec.suite)
    wanted = (*(bundle.BUILDER_PACKAGES if spec.builder else ()), *spec.packages)
    installed = [bundle.ensure_layer(spec.suite, wanted)] if wanted else []
    return Materials((*installed, tree), packages.folder, packages.public_key, tuple(packages.driver_versions()))


def write_system(layer: Layer, system: sources.System) -> None:
    """Write os-release, the package sources, and where libraries are found."""
    lines = [f'{name}="{value}"\n' for name, value in system.os_release]
    layer.write("/usr/lib/os-release", "".join(lines))
    if system.manager == "apt":
        return
    layer.write("/etc/ld.so.conf.d/lib64.conf", "/usr/lib64\n")
    if system.manager == "dnf":
        layer.write("/etc/dnf/plugins/local.conf", "[main]\nenabled = false\n")  # Debian's own default is on
    for name in ("base", system.repository):
        text = REPOSITORY.format(name=name, key=KEY)
        layer.write(f"{REPOSITORY_FOLDERS[system.manager]}/{name}.repo", text)
