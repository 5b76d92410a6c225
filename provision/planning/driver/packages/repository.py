"""Renders the files that make a node's package manager know a repository with driver packages, and its key.

Pure. The role writes them before anything is resolved; they are no part of a driver change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import DriverSource
from provision.planning.architecture import ARCHITECTURES
from provision.planning.driver.terms import Manager
from provision.planning.node_plan import FileContent, Problem
from provision.planning.render.package_source import (
    apt_key_path,
    apt_source_path,
    render_deb822,
    render_repo,
    repo_path,
    rpm_key_path,
)

if TYPE_CHECKING:
    from provision.declaration.spec.model import Repository
    from provision.planning.driver.packages.distribution import Distribution

# Where NVIDIA publishes its packages (Driver Installation Guide, "Network repository"): product data, as package names
# are. Mirrors are declared (`driver.repository.url`), and none has its name here.
NVIDIA_ROOT: Final = "https://developer.download.nvidia.com/compute/cuda/repos"
# Names of the key files in NVIDIA's folders, for people: the last eight digits of each key's fingerprint
# (EB693B3035CD5710E231E123A4B469963BF863CC and 610C7B14E068A878070DA4E99CD0A493D42D0685 for the first two).
_NVIDIA_KEYS: Final = {
    "debian12": "3bf863cc.pub",
    "debian13": "8793F200.pub",
    "ubuntu2204": "3bf863cc.pub",
    "ubuntu2404": "3bf863cc.pub",
    "rhel8": "D42D0685.pub",
    "rhel9": "D42D0685.pub",
    "rhel10": "CDF6BA43.pub",
    "amzn2023": "D42D0685.pub",
    "sles15": "D42D0685.pub",
}
_NAME: Final = "nvidia"
_UBUNTU_KEYRING: Final = "/usr/share/keyrings/ubuntu-archive-keyring.gpg"
_APT_KEY: Final = apt_key_path(_NAME)


def render(
    distribution: Distribution, source: DriverSource, declared: Repository | None
) -> tuple[FileContent, ...] | Problem:
    """Return the repository file and the key file for a source, none where the node's own sources are used.

    A bundle in a folder of the controller reaches nodes by other ways, and is no repository here.
    """
    if source not in distribution.offers or source is DriverSource.RUNFILE:
        return ()
    url = declared.url if declared is not None else None
    key = declared.key if declared is not None else None
    if source is DriverSource.NVIDIA:
        if declared is not None and declared.folder is not None:
            return ()
        if key is None:
            return _no_key(distribution)
        return _other_architecture(distribution, url) or _nvidia(distribution, url or _folder(distribution), key)
    if url is None:
        return ()
    if distribution.manager is not Manager.APT:
        return _nvidia(distribution, url, key) if key is not None else _no_key(distribution)
    return _archive(distribution, url, key)


def _nvidia(distribution: Distribution, url: str, key: str) -> tuple[FileContent, ...]:
    if distribution.manager is Manager.APT:
        # A flat repository: its suite is the folder itself, and it has no components (sources.list(5)).
        return (FileContent(_APT_KEY, key), _apt_source(url, "/", "", _APT_KEY))
    repo = render_repo(distribution.manager, _NAME, "NVIDIA driver", url)
    return (FileContent(rpm_key_path(_NAME), key), FileContent(repo_path(distribution.manager, _NAME), repo))


def _archive(distribution: Distribution, url: str, key: str | None) -> tuple[FileContent, ...]:
    """Return a mirror of the distribution's own archive, whose key the node has unless another is declared."""
    own = _UBUNTU_KEYRING if distribution.id == "ubuntu" else "/usr/share/keyrings/debian-archive-keyring.gpg"
    name = distribution.codename
    if distribution.id == "ubuntu":
        suites, components = f"{name} {name}-updates {name}-security", "main restricted universe multiverse"
    else:
        suites, components = f"{name} {name}-updates", "main contrib non-free non-free-firmware"
    file = _apt_source(url, suites, components, own if key is None else _APT_KEY)
    return (file,) if key is None else (FileContent(_APT_KEY, key), file)


def _apt_source(url: str, suites: str, components: str, key_path: str) -> FileContent:
    text = render_deb822(url=url, suites=suites, components=components, key_path=key_path)
    return FileContent(apt_source_path(_NAME), text)


def _other_architecture(distribution: Distribution, url: str | None) -> Problem | None:
    """Return that a mirror's folder is called as NVIDIA calls that of another architecture."""
    own, last = distribution.architecture, (url or "").rstrip("/").rpartition("/")[2]
    named = next((each for each in ARCHITECTURES.values() if each.nvidia == last), own)
    if named is own:
        return None
    return Problem(
        code="repository-of-other-architecture",
        message=f"driver.repository.url ends with {last}, the folder of {named.name}, and the node has {own.name}",
        hint=f"declare the mirror's folder {distribution.repository}/{own.nvidia} for a group of such nodes",
    )


def _folder(distribution: Distribution) -> str:
    return f"{NVIDIA_ROOT}/{distribution.repository}/{distribution.architecture.nvidia}/"


def _no_key(distribution: Distribution) -> Problem:
    name = _NVIDIA_KEYS.get(distribution.repository)
    where = _folder(distribution)
    file = f"the text of {where}{name}" if name else "the text of the key file there"
    return Problem(
        code="repository-key-missing",
        message="driver.source is nvidia, and the key that signs its packages is not declared",
        hint=f"declare driver.repository, url: {where} and key: {file}; or both of a mirror",
    )
