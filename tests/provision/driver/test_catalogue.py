"""What is supported, how everything else is refused, and that the packages are those that are published.

`data/published-names.json` has names from published lists, each with its source; `data/available-*.json` are the
packages that apt knew on real Debian systems.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from provision.declaration.fleet.facts.node import OperatingSystem
from provision.declaration.spec.model import Capability, Companion, DriverSource
from provision.planning.driver.packages.catalogue import DISTRIBUTIONS, find_distribution, packages
from provision.planning.driver.packages.distribution import Distribution
from provision.planning.driver.packages.package_request import PackageRequest
from provision.planning.driver.terms import Flavour
from provision.planning.node_plan import Problem
from tests.provision.samples import DATA, available, make_facts, replace

if TYPE_CHECKING:
    from collections.abc import Iterable

NODE = make_facts().node
CUDA = (Capability.COMPUTE, Capability.UTILITY)
UBUNTU_KERNEL, SLES_KERNEL = "6.8.0-139-generic", "6.4.0-150700.53.40-default"
PUBLISHED: dict[str, dict[str, Any]] = msgspec.json.decode(DATA.joinpath("published-names.json").read_bytes())


def distribution(label: str) -> Distribution:
    return next(each for each in DISTRIBUTIONS if f"{each.id} {each.version_id}" == label)


def request(
    label: str,
    source: DriverSource,
    version: str,
    flavour: Flavour,
    *companions: Companion,
    capabilities: Iterable[Capability] = CUDA,
    **choices: Any,
) -> PackageRequest:
    found = packages(distribution(label), source, version, flavour, tuple(capabilities), companions, **choices)
    assert isinstance(found, PackageRequest), found
    return found


@pytest.mark.parametrize(
    ("os_id", "version_id", "label"),
    [
        ("debian", "12", "debian 12 (bookworm)"),
        ("debian", "13", "debian 13 (trixie)"),
        ("ubuntu", "22.04", "ubuntu 22.04 (jammy)"),
        ("ubuntu", "24.04", "ubuntu 24.04 (noble)"),
        ("ubuntu", "26.04", "ubuntu 26.04 (resolute)"),
        ("rhel", "8.10", "rhel 8"),
        ("rocky", "9.7", "rocky 9"),
        ("almalinux", "10.1", "almalinux 10"),
        ("amzn", "2023", "amzn 2023"),
        ("sles", "15.7", "sles 15"),
    ],
)
def test_releases_are_known(os_id: str, version_id: str, label: str) -> None:
    found = find_distribution(replace(NODE, os=OperatingSystem(id=os_id, version_id=version_id)))

    assert isinstance(found, Distribution)
    assert found.label == label


@pytest.mark.parametrize(
    "system",
    [("ubuntu", "20.04"), ("ubuntu", "24"), ("rocky", "7.9"), ("debian", "11"), ("debian", ""), ("sles", "16.0")],
)
def test_other_systems_are_refused_by_name(system: tuple[str, str]) -> None:
    found = find_distribution(replace(NODE, os=OperatingSystem(id=system[0], version_id=system[1])))

    assert isinstance(found, Problem)
    assert found.code == "unsupported-os"
    assert system[0] in found.message
    assert "debian 13 (trixie)" in found.hint


@pytest.mark.parametrize(
    ("system", "reason"),
    [
        (OperatingSystem(id="flatcar", version_id="4230.2.4"), "has no package manager"),
        (
            OperatingSystem(id="rhel", version_id="9.7", image="ostree"),
            "runs rhel 9.7 of ostree, which takes packages from",
        ),
        (
            OperatingSystem(id="sles", version_id="15.6", image="transactional-update"),
            "in a snapshot that it boots next",
        ),
        (OperatingSystem(id="sl-micro", version_id="6.1"), "in a snapshot that it boots next"),
    ],
    ids=lambda each: each.id if isinstance(each, OperatingSystem) else "",
)
def test_systems_that_are_images_are_told_apart(system: OperatingSystem, reason: str) -> None:
    """RHEL in image mode was planned as RHEL with packages: its apply failed at a /usr that is read-only."""
    found = find_distribution(replace(NODE, os=system))

    assert isinstance(found, Problem)
    assert found.code == "image-system"
    assert reason in found.message


def test_every_release_has_evidence_for_every_source() -> None:
    offers = [offer for each in DISTRIBUTIONS for offer in each.offers.values()]

    assert all(offer(580).evidence for offer in offers)


TABLE = {
    "debian 13, its own, open": (
        ("debian 13", DriverSource.DISTRIBUTION, "550.163.01", Flavour.OPEN),
        ("libcuda1", "libnvidia-ml1", "nvidia-smi"),
        ("nvidia-open-kernel-dkms", "nvidia-open-kernel-support"),
        "nvidia-current-open",
        None,
    ),
    "debian 12, its own, proprietary": (
        ("debian 12", DriverSource.DISTRIBUTION, "535.261.03", Flavour.PROPRIETARY),
        ("libcuda1", "libnvidia-ml1", "nvidia-smi"),
        ("nvidia-kernel-dkms", "nvidia-kernel-support"),
        "nvidia-current",
        None,
    ),
    "debian 13, NVIDIA's, open": (
        ("debian 13", DriverSource.NVIDIA, "610.57.04", Flavour.OPEN),
        ("nvidia-driver-cuda",),
        ("nvidia-kernel-open-dkms",),
        "nvidia",
        None,
    ),
    "ubuntu 24.04, NVIDIA's 580, proprietary": (
        ("ubuntu 24.04", DriverSource.NVIDIA, "580.178.04", Flavour.PROPRIETARY),
        ("libnvidia-compute-580", "nvidia-utils-580"),
        ("nvidia-dkms-580",),
        "nvidia",
        None,
    ),
    "ubuntu 26.04, NVIDIA's 595, open": (
        ("ubuntu 26.04", DriverSource.NVIDIA, "595.91.07", Flavour.OPEN),
        ("libnvidia-compute", "nvidia-utils"),
        ("nvidia-dkms-open",),
        "nvidia",
        None,
    ),
    "ubuntu 24.04, its own, open": (
        ("ubuntu 24.04", DriverSource.DISTRIBUTION, "580.178.04", Flavour.OPEN),
        ("libnvidia-compute-580-server", "nvidia-utils-580-server"),
        ("nvidia-dkms-580-server-open",),
        "nvidia-srv",
        None,
    ),
    "rhel 8, open": (
        ("rhel 8", DriverSource.NVIDIA, "570.211.01", Flavour.OPEN),
        ("libnvidia-ml", "nvidia-driver-cuda", "nvidia-driver-cuda-libs"),
        ("kmod-nvidia-open-dkms",),
        "nvidia-open",
        "nvidia-driver:570-open",
    ),
    "rocky 9, proprietary": (
        ("rocky 9", DriverSource.NVIDIA, "580.126.09", Flavour.PROPRIETARY),
        ("libnvidia-ml", "nvidia-driver-cuda", "nvidia-driver-cuda-libs"),
        ("kmod-nvidia-latest-dkms",),
        "nvidia",
        "nvidia-driver:580-dkms",
    ),
    "almalinux 10, open": (
        ("almalinux 10", DriverSource.NVIDIA, "580.126.09", Flavour.OPEN),
        ("libnvidia-ml", "nvidia-driver-cuda", "nvidia-driver-cuda-libs"),
        ("kmod-nvidia-open-dkms",),
        "nvidia",
        None,
    ),
    "amazon linux, user space alone": (
        ("amzn 2023", DriverSource.NVIDIA, "580.126.09", Flavour.NONE),
        ("libnvidia-ml", "nvidia-driver-cuda", "nvidia-driver-cuda-libs"),
        (),
        None,
        "nvidia-driver:580-open",
    ),
}


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_a_driver_is_these_packages(case: tuple[Any, ...]) -> None:
    asked, roots, module_roots, dkms, stream = case

    found = request(*asked)

    assert found.roots == roots
    assert found.module_roots == module_roots
    assert found.dkms_name == dkms
    assert found.module_stream == stream


@pytest.mark.parametrize("codename", ["bookworm", "trixie"])
def test_every_package_of_debian_s_catalogue_exists(codename: str) -> None:
    offer = next(each for each in DISTRIBUTIONS if each.codename == codename).offers[DriverSource.DISTRIBUTION](550)
    named = {name for names in offer.user_space.values() for name in names}
    named |= {name for module in offer.modules.values() for name in module.built}
    named |= {name for each in offer.companions.values() for name in each.packages}

    assert named <= set(available(codename))


NAMED = {
    "amazon-570": (("amzn 2023", DriverSource.DISTRIBUTION, "570"), Companion.GDRCOPY),
    "amazon-580": (("amzn 2023", DriverSource.DISTRIBUTION, "580"), Companion.GDRCOPY),
    "sles-550": (("sles 15", DriverSource.NVIDIA, "550"), None),
    "sles-580": (("sles 15", DriverSource.NVIDIA, "580"), None),
    "sles-595": (("sles 15", DriverSource.NVIDIA, "595"), None),
    "canonical-580": (("ubuntu 24.04", DriverSource.CANONICAL, "580"), Companion.GDRCOPY),
}


@pytest.mark.parametrize("flavour", [Flavour.OPEN, Flavour.PROPRIETARY], ids=lambda each: each.value)
@pytest.mark.parametrize("published", NAMED)
def test_packages_have_the_names_that_are_published(published: str, flavour: Flavour) -> None:
    (label, source, version), unpublished = NAMED[published]
    offer = distribution(label).offers[source](int(version))
    # NSCQ's and persistenced's own packages for Ubuntu are not in the list; neither is gdrcopy anywhere.
    not_listed = {unpublished, *((Companion.NSCQ, Companion.PERSISTENCED) if "canonical" in published else ())}
    companions = [each for each in offer.companions if each not in not_listed]
    kernel = UBUNTU_KERNEL if "canonical" in published else SLES_KERNEL

    found = request(label, source, version, flavour, *companions, kernels=(kernel,))

    assert {*found.roots, *found.module_roots, *found.loose} <= set(PUBLISHED[published]["names"])


@pytest.mark.parametrize(
    ("known", "roots"),
    [
        (None, ("libnvidia-compute", "nvidia-utils")),
        (("libnvidia-compute", "nvidia-utils"), ("libnvidia-compute", "nvidia-utils")),
        (("libnvidia-compute",), ("libnvidia-compute",)),
    ],
    ids=["nothing is known", "a package of its own", "in another one"],
)
def test_of_two_names_the_one_that_exists_is_taken(known: Any, roots: tuple[str, ...]) -> None:
    found = request("ubuntu 26.04", DriverSource.NVIDIA, "595.91.07", Flavour.OPEN, known=known)

    assert found.roots == roots


def test_canonical_s_modules_are_one_package_for_each_kernel() -> None:
    kernels = (UBUNTU_KERNEL, "6.8.0-140-generic")

    found = request("ubuntu 24.04", DriverSource.CANONICAL, "580.178.04", Flavour.PROPRIETARY, kernels=kernels)

    assert found.module_roots == ("nvidia-headless-no-dkms-580-server",)
    assert found.loose == (
        "linux-modules-nvidia-580-server-6.8.0-139-generic",
        "linux-modules-nvidia-580-server-6.8.0-140-generic",
        "linux-objects-nvidia-580-server-6.8.0-139-generic",
        "linux-objects-nvidia-580-server-6.8.0-140-generic",
        "linux-signatures-nvidia-6.8.0-139-generic",
        "linux-signatures-nvidia-6.8.0-140-generic",
    )
    assert found.dkms_name is None


def test_a_kernel_without_a_compiled_module_is_built_for_and_the_plan_can_say_why() -> None:
    known = ["nvidia-headless-no-dkms-580-server-open", "linux-signatures-nvidia-6.8.0-139-generic"]

    found = request(
        "ubuntu 24.04", DriverSource.CANONICAL, "580.178.04", Flavour.OPEN, kernels=(UBUNTU_KERNEL,), known=known
    )

    assert found.module_roots == ("nvidia-dkms-580-server-open",)
    assert found.loose == ()
    assert found.dkms_name == "nvidia-srv"
    assert found.reason == (
        "no compiled module for every kernel: linux-modules-nvidia-580-server-open-6.8.0-139-generic not available"
    )


@pytest.mark.parametrize(
    ("version", "known", "roots", "dkms"),
    [
        ("580.126.09", None, ("nvidia-open-driver-G06-signed-cuda-kmp-default",), None),
        ("580.126.09", (), ("nvidia-open-driver-G06",), "nvidia"),
        ("595.71.05", (), ("nvidia-open-driver-G07-signed-cuda-kmp-default",), None),
        ("570.124.06", (), ("nvidia-open-driver-G06-kmp-default",), None),
    ],
    ids=[
        "SUSE's signed one",
        "built where there is none",
        "never built from 595 on",
        "a package of its own before 575",
    ],
)
def test_suse_s_open_modules(version: str, known: Any, roots: tuple[str, ...], dkms: str | None) -> None:
    found = request("sles 15", DriverSource.NVIDIA, version, Flavour.OPEN, kernels=(SLES_KERNEL,), known=known)

    assert found.module_roots == roots
    assert found.dkms_name == dkms


def test_companions_bring_services_modules_and_packages_of_their_own_version() -> None:
    found = request(
        "debian 13",
        DriverSource.DISTRIBUTION,
        "550.163.01",
        Flavour.NONE,
        Companion.PERSISTENCED,
        Companion.PEERMEM,
        capabilities=[Capability.COMPUTE],
    )

    assert found.roots == ("libcuda1", "libnvidia-cfg1")
    assert found.loose == ("nvidia-persistenced",)
    assert found.services == ("nvidia-persistenced.service",)
    assert found.kernel_modules == ("nvidia-peermem",)


REFUSED = {
    "a source that the system does not have": (
        ("rhel 9", DriverSource.CANONICAL, "580", Flavour.OPEN, CUDA),
        ("unsupported-driver-source", "declare driver.source: nvidia"),
    ),
    "a capability without packages": (
        ("debian 13", DriverSource.DISTRIBUTION, "550", Flavour.NONE, (Capability.COMPAT32,)),
        ("unsupported-capability", "supported capabilities: compute, utility, video, graphics, display, ngx"),
    ),
    "a companion without packages": (
        ("debian 13", DriverSource.DISTRIBUTION, "550", Flavour.OPEN, CUDA, (Companion.FABRICMANAGER,)),
        ("unsupported-companion", "driver.source: nvidia"),
    ),
    "a flavour that the branch does not have": (
        ("rocky 10", DriverSource.NVIDIA, "620.12.04", Flavour.PROPRIETARY, CUDA),
        ("unsupported-kernel-module", "declare driver.kernelModule: open, or another branch"),
    ),
    "modules by kernel, and no kernel": (
        ("sles 15", DriverSource.NVIDIA, "595.71.05", Flavour.OPEN, CUDA),
        ("kernels-unknown", "gather facts again"),
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_exist_is_refused_with_what_does(case: tuple[Any, ...]) -> None:
    (label, *asked), (code, hint) = case

    found = packages(distribution(label), *asked)

    assert isinstance(found, Problem)
    assert found.code == code
    assert hint in found.hint


def test_side_branches_are_another_driver() -> None:
    debian = distribution("debian 13")

    assert debian.is_other_driver_source("nvidia-graphics-drivers-tesla-535")
    assert not debian.is_other_driver_source("nvidia-graphics-drivers")
    assert not debian.is_other_driver_source("containerd")


@pytest.mark.parametrize("flavour", [Flavour.OPEN, Flavour.PROPRIETARY], ids=lambda each: each.value)
@pytest.mark.parametrize("label", [f"{each.id} {each.version_id}" for each in DISTRIBUTIONS])
def test_the_module_stream_is_that_of_nvidia_s_assistant(label: str, flavour: Flavour) -> None:
    """nvidia-driver-assistant 0.23.48.01, `branch_instructions`: dnf modules on Amazon Linux, and on RHEL before 10."""
    modular = {f"{name} {release}" for name in ("rhel", "rocky", "almalinux") for release in "89"} | {"amzn 2023"}
    words = {Flavour.OPEN: "nvidia-driver:BRANCH-open", Flavour.PROPRIETARY: "nvidia-driver:BRANCH-dkms"}

    found = request(label, DriverSource.NVIDIA, "570.211.01", flavour, kernels=(SLES_KERNEL,))

    assert found.module_stream == (words[flavour].replace("BRANCH", "570") if label in modular else None)


OF_RUNFILES = ("nvidia-runfile", "nvidia-runfile-*")


@pytest.mark.parametrize("label", ["debian 12", "debian 13", "ubuntu 22.04", "ubuntu 24.04", "ubuntu 26.04"])
@pytest.mark.parametrize(
    ("flavour", "module"),
    [(Flavour.OPEN, "nvidia-runfile-open-dkms"), (Flavour.PROPRIETARY, "nvidia-runfile-dkms")],
)
def test_a_runfile_has_the_same_packages_on_every_system_with_apt(label: str, flavour: Flavour, module: str) -> None:
    found = request(label, DriverSource.RUNFILE, "550.54.15", flavour)

    assert (found.roots, found.module_roots) == (("nvidia-runfile",), (module,))
    assert found.rivals == tuple({"nvidia-runfile-dkms", "nvidia-runfile-open-dkms"} - {module})


def test_a_module_that_is_made_in_another_way_has_to_go() -> None:
    found = request("ubuntu 24.04", DriverSource.CANONICAL, "580.178.04", Flavour.OPEN, kernels=(UBUNTU_KERNEL,))

    assert found.rivals == (
        "nvidia-dkms-580-server",
        "nvidia-dkms-580-server-open",
        "nvidia-driver-580-server",
        "nvidia-headless-580-server",
        "nvidia-headless-no-dkms-580-server",
        *OF_RUNFILES,
    )
    assert not found.is_rival("nvidia-headless-no-dkms-580-server-open")


def test_without_a_module_of_ours_no_module_has_to_go() -> None:
    assert request("debian 13", DriverSource.DISTRIBUTION, "550.163.01", Flavour.NONE).rivals == OF_RUNFILES
