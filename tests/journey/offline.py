"""The systems of nodes without a network: how their nodes are made and cut off, what they declare and are to have."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lab import modules, sources
from lab.nodes import NodeSpec
from lab.sources.content import BUILDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.nodes import Node

NAME, COLLECTOR = "offline", "connected"
PROGRAM = "/usr/lib/grapnel/driver/grapnel-driver"
DEBIAN_PACKAGES = ("libcuda1", "libnvidia-ml1", "nvidia-kernel-dkms", "nvidia-kernel-support", "nvidia-smi")


@dataclass(frozen=True)
class Debian:
    """Debian, whose node has dkms for nothing but the archives of modules that were built beforehand."""

    suite: str
    distribution: str
    versions: tuple[str, str]
    flavour = "proprietary"
    asks_sources = ("apt-get", "-q", "update")

    @property
    def name(self) -> str:
        return self.suite

    def spec(self) -> NodeSpec:
        return NodeSpec(NAME, suite=self.suite, gpus=2, builder=True)

    def collector(self) -> NodeSpec:
        return NodeSpec(COLLECTOR, suite=self.suite, gpus=0)

    def furnish(self, node: Node) -> None:
        """Leave a kernel, and no initramfs: rebuilding it after each change would take longer than they do."""
        node.run(["sh", "-c", "rm -f /boot/initrd.img-* && dpkg --purge dkms"])

    def declared(self) -> dict[str, Any]:
        return {}

    def collecting(self, kernel: str) -> list[str]:
        """Return the words by which a bundle gets modules that were built beforehand, by the same dkms."""
        files = [modules.archive(version, self.flavour, kernel) for version in self.versions]
        return [word for file in files for word in ("--modules", str(file))]

    def cut_off(self, node: Node, address: str) -> None:
        source = f"deb [trusted=yes] http://{address}:9/ ./\n"
        gone = "rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin && rm -f /etc/apt/sources.list.d/*"
        node.run(["sh", "-c", f"umount /srv/bundle && {gone} && cat > /etc/apt/sources.list"], input_text=source)

    def assert_installed(self, node: Node, version: str) -> None:
        form = "${db:Status-Abbrev}${source:Upstream-Version}\n"
        shown = node.run(["dpkg-query", "--show", "--showformat", form, *DEBIAN_PACKAGES]).stdout.splitlines()
        built = node.run(["dkms", "status"]).stdout.splitlines()
        assert shown == [f"hi {version}"] * len(DEBIAN_PACKAGES)
        smi = node.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]).stdout.split()
        assert built == [f"nvidia-current/{version}, {node.kernel_release}, x86_64: installed"]
        assert smi == [version] * len(node.gpus)


@dataclass(frozen=True)
class RpmSystem:
    """A system with dnf or zypper: the collecting node builds the modules, or has them as packages."""

    name: str
    distribution: str
    versions: tuple[str, str]
    packages: tuple[str, ...]
    dkms: str
    repositories: str
    cache: str
    locked: str
    asks_sources: tuple[str, ...]
    flavour = "open"

    @property
    def system(self) -> sources.System:
        return sources.find_system(self.name)

    def spec(self) -> NodeSpec:
        return NodeSpec(NAME, suite=sources.BASE_SUITE, gpus=2, system=self.name)

    def collector(self) -> NodeSpec:
        return NodeSpec(COLLECTOR, suite=sources.BASE_SUITE, gpus=0, system=self.name)

    def furnish(self, node: Node) -> None:
        """Leave it as bare as it comes."""

    def declared(self) -> dict[str, Any]:
        repository = {
            "url": f"file:///srv/bundle/{self.system.repository}",
            "key": sources.ensure(self.name).public_key.read_text(),
        }
        return {"source": "nvidia", "repository": repository}

    def collecting(self, kernel: str) -> list[str]:  # noqa: ARG002 - as for Debian
        return []

    def cut_off(self, node: Node, address: str) -> None:
        unreached = f"s,^baseurl=.*,baseurl=http://{address}:9/,"
        script = f"umount /srv/bundle && rm -rf {self.cache}/* && sed -i '{unreached}' {self.repositories}/*.repo"
        node.run(["sh", "-c", script])

    def assert_installed(self, node: Node, version: str) -> None:
        """Hold it to its packages, their locks, and a module that it did not compile; it knows no package source."""
        shown = node.run(["rpm", "-q", "--qf", "%{VERSION}\n", *self.packages]).stdout.splitlines()
        locked = node.run(["sh", "-c", self.locked]).stdout
        built = node.run(["sh", "-c", "dkms status 2>/dev/null || :"]).stdout.splitlines()
        assert [one.partition("_")[0] for one in shown] == [version] * len(self.packages)
        assert [name for name in self.packages if name not in locked] == []
        assert built == ([f"{self.dkms}/{version}, {node.kernel_release}, x86_64: installed"] if self.dkms else [])
        node.run(["sh", "-c", f"! test -e {BUILDS}"])
        assert "grapnel" not in node.run(["ls", self.repositories]).stdout


SYSTEMS: Sequence[Debian | RpmSystem] = (
    Debian("trixie", "debian-13", ("535.309.01", "550.163.01")),
    RpmSystem(
        "rocky9", "rocky-9", ("580.95.05", "580.126.09"),
        ("nvidia-driver-cuda", "nvidia-driver-cuda-libs", "libnvidia-ml", "kmod-nvidia-open-dkms"), "nvidia",
        "/etc/yum.repos.d", "/var/cache/dnf", "cat /etc/dnf/plugins/versionlock.list", ("dnf", "-q", "makecache"),
    ),
    Debian("bookworm", "debian-12", ("535.261.03", "535.309.01")),
    RpmSystem(
        "sles15", "sles-15", ("570.133.20", "580.65.06"),
        ("nvidia-compute-G06", "nvidia-compute-utils-G06", "nvidia-open-driver-G06-signed-cuda-kmp-default"), "",
        "/etc/zypp/repos.d", "/var/cache/zypp", "cat /etc/zypp/locks", ("zypper", "-n", "refresh"),
    ),
)  # fmt: skip
ALWAYS = ("trixie", "rocky9")


def status(node: Node) -> dict[str, Any]:
    """Return what the program on the node says of its driver."""
    found: dict[str, Any] = json.loads(node.run([PROGRAM, "status"]).stdout)
    return found
