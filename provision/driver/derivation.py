"""Says what a declaration leaves to be derived for each node, and from what, before any node is asked. Pure.

What is then derived, and the reason for this very node, stands in the node's plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.driver.wanted import follows_branch
from provision.spec.model import DriverSource, KernelModule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.spec.model import Driver

OPEN_SINCE: Final = 560  # the first branch whose installer recommends the open module
_REPOSITORIES: Final = {
    DriverSource.NVIDIA: "NVIDIA's repository for the node's distribution and architecture",
    DriverSource.CANONICAL: "the archive of the node's Ubuntu release",
}
_KEYS: Final = {DriverSource.NVIDIA: "NVIDIA's key", DriverSource.CANONICAL: "the key of Ubuntu's archive"}


@dataclass(frozen=True)
class Derivation:
    """A dotted key that the declaration leaves open, and how its value comes about."""

    key: str
    rule: str


def derive(driver: Driver) -> tuple[Derivation, ...]:
    """Return what is left open, in the order of the keys."""
    return tuple(Derivation(f"driver.{key}", rule) for key, rule in _rules(driver)) if driver.enabled else ()


def _rules(driver: Driver) -> Iterator[tuple[str, str]]:
    if driver.source is DriverSource.NONE:
        if driver.kernel_module is KernelModule.AUTO:
            yield "kernelModule", "something else provides it: with source: none no packages are installed"
        return
    if driver.source in _REPOSITORIES:
        if driver.repository is None:
            yield "repository", _REPOSITORIES[driver.source]
        elif driver.repository.key is None:
            yield "repository.key", f"{_KEYS[driver.source]}, as the repository is a mirror"
    if follows_branch(driver):
        yield "version", f"the newest of branch {driver.branch} that all nodes with the same declaration can have"
    if driver.kernel_module is KernelModule.AUTO:
        yield "kernelModule", _flavour(driver)
    if driver.companions is None:
        yield "companions", "from the node's hardware: what its NVSwitches, NVLink domain and network need"
    if driver.kernel_module is not KernelModule.NONE and driver.signing is None:
        yield "signing", "the key of the node's DKMS, where the node builds a module"


def _flavour(driver: Driver) -> str:
    branch = int((driver.version or driver.branch or "0").partition(".")[0])
    if branch >= OPEN_SINCE:
        usual, other = "open where all of them support it", "proprietary otherwise"
        return f"from the node's GPUs: {usual}, as NVIDIA recommends from branch {OPEN_SINCE} on; {other}"
    usual, other = "proprietary", "open where one of them runs with no other"
    return f"from the node's GPUs: {usual}, as NVIDIA recommends before branch {OPEN_SINCE}; {other}"
