"""Reads the tables of published driver packages and fills in a system's values: plain values, nothing is built here."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.sources.systems import System

TABLES = Path(__file__).with_name("tables")
_NO_BRANCH = 9999  # higher than any


@dataclass(frozen=True)
class Package:
    """One package to build: every text is final.

    ``upstream`` is the driver version that its content has, ``kernel`` the release that its modules are for.
    """

    name: str
    source: str
    version: str
    release: str
    epoch: int = 0
    upstream: str = ""
    arch: str = "x86_64"
    requires: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    obsoletes: tuple[str, ...] = ()
    content: tuple[str, ...] = ()
    kernel: str = ""

    @property
    def evr(self) -> str:
        """Epoch (unless it is 0), version and release."""
        return f"{f'{self.epoch}:' if self.epoch else ''}{self.version}-{self.release}"

    @property
    def nevra(self) -> str:
        """The full name in a module's list of packages, where the epoch is always said."""
        return f"{self.name}-{self.epoch}:{self.version}-{self.release}.{self.arch}"


def driver_packages(system: System) -> list[Package]:
    """Return the driver packages of every version that ``system`` offers."""
    table = tomllib.loads((TABLES / f"{system.table}.toml").read_text())
    return [
        _package(row, table, system, version, kernel)
        for version in system.versions
        for row in table["package"]
        for kernel in (system.kernels if "{kernel}" in row["name"] else system.kernels[:1])
        if row.get("from_branch", 0) <= int(version.partition(".")[0]) <= row.get("until_branch", _NO_BRANCH)
    ]


def _package(row: dict[str, Any], table: dict[str, Any], system: System, version: str, kernel: str) -> Package:
    release = table["release"].format(dist=system.dist)
    epoch = table["epoch"]
    values = {
        "version": version,
        "branch": version.partition(".")[0],
        "epoch": epoch,
        "evr": f"{f'{epoch}:' if epoch else ''}{version}-{release}",
        "kernel": kernel,
        "kernel_version": system.kernel_version(kernel),
    }
    lists = ("requires", "provides", "conflicts", "content")
    return Package(
        name=row["name"].format(**values),
        source=row.get("source", row["name"]).format(**values),
        version=row.get("version", "{version}").format(**values),
        release=release,
        epoch=epoch,
        upstream=version,
        arch=row.get("arch", "x86_64"),
        kernel=kernel,
        **{key: tuple(text.format(**values) for text in row.get(key, ())) for key in lists},
    )


def docker_packages(system: System) -> list[Package]:
    """Return what of Docker's repository the lab has: every version of containerd.io for ``system``, and Docker.

    Relations: docker/containerd-packaging, rpm/containerd.spec and debian/control; docker/docker-ce-packaging,
    rpm/SPECS.
    """
    is_apt = system.manager == "apt"
    release = f"1~ubuntu.24.04~{system.repository}" if is_apt else f"1.{system.dist}"
    replaced = ("containerd", "runc")
    containerds = [
        Package(
            "containerd.io",
            "containerd.io",
            version,
            release,
            requires=() if is_apt else ("container-selinux",),
            provides=replaced if is_apt else ("containerd",),
            conflicts=replaced,
            obsoletes=replaced,
            content=(f"containerd {version} docker",),
        )
        for version in system.engines
    ]
    if not system.docker:
        return containerds
    engine = Package(
        "docker-ce",
        "docker-ce",
        system.docker,
        release,
        epoch=3,
        requires=("containerd.io", "docker-ce-cli", "container-selinux"),
        conflicts=("docker",),
        content=("docker",),
    )
    client = Package("docker-ce-cli", "docker-ce-cli", system.docker, release, epoch=1, content=("docker-cli",))
    return [*containerds, engine, client]


def crio_packages(system: System) -> list[Package]:
    """Return what CRI-O's own repository has; names and files: cri-o/packaging, templates/latest."""
    return [Package("cri-o", "cri-o", system.crio, "1.1", content=(f"crio {system.crio}",))] if system.crio else []


def own_packages(system: System) -> list[Package]:
    """Return the containerd of the system itself; of SUSE without its client, which has another name there."""
    version = system.own_engine
    if not version:
        return []
    release = {"zypper": "150000.123.1", "apt": "0ubuntu1~24.04.3"}.get(system.manager, f"1.{system.dist}")
    content = {"zypper": "suse", "apt": "ubuntu"}.get(system.manager, "amazon")
    containerd = Package(
        "containerd", "containerd", version, release, requires=("runc",), content=(f"containerd {version} {content}",)
    )
    if system.manager == "apt":  # its runc is Debian's
        return [containerd]
    packages = [containerd, Package("runc", "runc", "1.3.6", release, content=("runc",))]
    if system.manager == "zypper":
        needs = (f"containerd = {version}",)
        packages.append(
            Package("containerd-ctr", "containerd", version, release, requires=needs, content=(f"ctr {version}",))
        )
    return packages


def first_packages(system: System) -> list[str]:
    """Return the names of the packages that a node has from the start."""
    return [] if system.manager == "apt" else [*system.kernel_packages, *(each.name for each in _identity(system))]


def base_packages(system: System) -> list[Package]:
    """Return what of the system itself the driver needs: packages without a content, but for the kernel's own."""
    if system.manager == "apt":
        return []
    kernel, _, release = system.kernel_release.removesuffix(".x86_64").removesuffix("-default").partition("-")
    kernels = [
        Package(
            name,
            "kernel",
            kernel,
            release,
            content=("kernel",) if name == system.kernel_packages[-1] else (),
            kernel=system.kernel_release,
        )
        for name in system.kernel_packages
    ]
    devel = Package("kernel-devel", "kernel", kernel, release, content=("headers",), kernel=system.kernel_release)
    names = ("grubby", "ocl-icd", "gcc", "make")
    rest = [Package(name, name, "1.0", f"1.{system.dist}".rstrip(".")) for name in names]
    # EPEL's wants the headers of the kernel and a compiler to be there before it.
    dkms = Package("dkms", "dkms", "3.2.1", f"1.{system.dist}".rstrip("."), requires=("kernel-devel", "gcc", "make"))
    return [
        *kernels,
        devel,
        *_identity(system),
        dkms,
        *rest,
        *(_runtimes(system) if system.engines else ()),
        *own_packages(system),
    ]


def _runtimes(system: System) -> list[Package]:
    """Return what a system has of containers itself: Podman, and one of the runtimes that it takes.

    RHEL 10 has no runc any more.
    """
    release = f"1.{system.dist}"
    if system.dist == "el10":
        runtime = Package("crun", "crun", "1.23", release, provides=("oci-runtime",))
    else:
        runtime = Package("runc", "runc", "1.3.6", release, epoch=4, provides=("oci-runtime",), content=("runc",))
    return [
        Package("container-selinux", "container-selinux", "2.235.0", release),
        Package("podman", "podman", "5.4.0", release, epoch=4, requires=("oci-runtime",), content=("podman 5.4.0",)),
        runtime,
    ]


def _identity(system: System) -> list[Package]:
    """Return the packages that a system has from the start besides its kernel: its release, and a shell."""
    values = dict(system.os_release)
    major = values["VERSION_ID"].partition(".")[0]
    release = (f"system-release = {values['VERSION_ID']}", f"system-release(releasever) = {major}")
    return [
        Package(f"{values['ID']}-release", f"{values['ID']}-release", values["VERSION_ID"], "1", provides=release),
        Package("bash", "bash", "5.1.8", f"9.{system.dist}".rstrip("."), provides=("/bin/sh",)),
    ]
