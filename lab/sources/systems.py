"""Lists the systems that a node can say it is, other than Debian: what its os-release says, its kernel, its packages.

Kernel releases are those that the vendors published; ``versions`` are driver versions that NVIDIA published for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.machine.errors import SiteError

BASE_SUITE = "bookworm"  # dnf 4.14, rpm 4.18, zypper 1.14: those of RHEL 9 and SLES 15, or close to them


@dataclass(frozen=True)
class System:
    """A distribution; ``table`` names the file with its driver packages, ``dist`` is what their releases end with.

    ``engines`` are versions of containerd that Docker's repository has for it, and ``crio`` one of CRI-O that its own
    has; a node does not know these repositories. ``docker`` is the version of Debian's that is packed as docker-ce is.
    ``own_engine`` is the containerd of the system itself.
    """

    name: str
    manager: str
    table: str
    kernel_release: str
    os_release: tuple[tuple[str, str], ...]
    versions: tuple[str, ...]
    dist: str = ""
    repository: str = ""
    is_modular: bool = False
    other_kernel: str = ""
    engines: tuple[str, ...] = ()
    docker: str = ""
    own_engine: str = ""
    crio: str = ""

    @property
    def kernels(self) -> tuple[str, ...]:
        """The running kernel, and the other one that the table has modules for where they are packed by kernel."""
        return (self.kernel_release, self.other_kernel) if self.other_kernel else (self.kernel_release,)

    @property
    def kernel_packages(self) -> tuple[str, ...]:
        """The packages of the running kernel; the last one has its files."""
        return {"zypper": ("kernel-default",), "dnf": ("kernel", "kernel-core")}.get(self.manager, ())

    def kernel_version(self, release: str) -> str:
        """Return a kernel's version as the version of a kernel module package carries it."""
        version = release.removesuffix("-default").removesuffix("-generic")
        return version if self.manager == "apt" else version.replace("-", "_")


def _os(identity: str, version: str, name: str, like: str = "", codename: str = "") -> tuple[tuple[str, str], ...]:
    values = {"NAME": name, "VERSION_ID": version, "ID": identity, "ID_LIKE": like, "VERSION_CODENAME": codename}
    values["PRETTY_NAME"] = f"{name} {version}"
    if "rhel" in like or identity == "rhel":
        values["PLATFORM_ID"] = f"platform:el{version.partition('.')[0]}"
    if identity == "amzn":
        values["PLATFORM_ID"] = f"platform:al{version}"
    return tuple((key, value) for key, value in values.items() if value)


EL_VERSIONS = ("570.133.20", "580.95.05", "580.126.09")
RHEL_LIKE = "rhel centos fedora"
DOCKERS = "docker-ce"  # Docker's repository, in the folder of all
CRIOS = "cri-o"  # CRI-O's, with a folder for each form of packages

SYSTEMS = {
    system.name: system
    for system in (
        System(
            "rocky9", "dnf", "el", "5.14.0-570.17.1.el9_6.x86_64", _os("rocky", "9.6", "Rocky Linux", RHEL_LIKE),
            EL_VERSIONS, dist="el9", repository="cuda-rhel9-x86_64", is_modular=True, engines=("2.2.1", "2.4.2"),
            docker="26.1.5", crio="1.36.3",
        ),
        System(
            "rhel8", "dnf", "el", "4.18.0-553.el8_10.x86_64", _os("rhel", "8.10", "Red Hat Enterprise Linux", "fedora"),
            EL_VERSIONS, dist="el8", repository="cuda-rhel8-x86_64", is_modular=True,
        ),
        System(
            "rocky10", "dnf", "el", "6.12.0-55.9.1.el10_0.x86_64", _os("rocky", "10.0", "Rocky Linux", RHEL_LIKE),
            EL_VERSIONS[1:], dist="el10", repository="cuda-rhel10-x86_64", engines=("2.2.1",),
        ),
        System(
            "al2023", "dnf", "el", "6.1.134-150.224.amzn2023.x86_64", _os("amzn", "2023", "Amazon Linux", "fedora"),
            EL_VERSIONS[1:], dist="amzn2023", repository="cuda-amzn2023-x86_64", is_modular=True,
            own_engine="2.2.1",
        ),
        System(
            "sles15", "zypper", "sles", "6.4.0-150600.23.53-default", _os("sles", "15.6", "SLES", "suse"),
            ("570.133.20", "580.65.06"), repository="cuda-sles15-x86_64", own_engine="2.2.1", crio="1.36.3",
        ),
        System(
            "ubuntu2404", "apt", "ubuntu", "6.8.0-60-generic",
            _os("ubuntu", "24.04", "Ubuntu", "debian", codename="noble"),
            ("570.133.20", "580.159.03", "580.173.02"), repository="noble", other_kernel="6.8.0-63-generic",
            engines=("2.2.1", "2.4.2"), own_engine="2.2.1", crio="1.36.3",
        ),
    )
}  # fmt: skip


def find_system(name: str) -> System:
    """Return the system called ``name``."""
    if name not in SYSTEMS:
        raise SiteError(f"no system {name!r}", hint=f"systems: {', '.join(SYSTEMS)}")
    return SYSTEMS[name]
