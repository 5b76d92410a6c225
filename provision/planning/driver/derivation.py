"""Says what a declaration leaves to be derived for each node, and from what, before any node is asked. Pure.

What is then derived, and the reason for this very node, stands in the node's plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import Build, DriverSource, KernelModule, Repository
from provision.planning.driver.terms import OPEN_BY_DEFAULT, WITHOUT_PROPRIETARY, branch_of
from provision.planning.driver.wanted import follows_branch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.declaration.spec.model import Driver

_REPOSITORIES: Final = {
    DriverSource.NVIDIA: "NVIDIA's own, for the node's distribution and architecture",
    DriverSource.CANONICAL: "Ubuntu's archive, as the node has it configured",
}
_WITHOUT_GPU: Final = "none where there is no GPU"


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
    yield from _packages(driver, driver.repository or Repository())
    if follows_branch(driver):
        yield "version", f"the newest of branch {driver.branch} that all nodes with the same declaration can have"
    if driver.kernel_module is KernelModule.AUTO:
        yield "kernelModule", _flavour(driver)
    if driver.companions is None:
        yield "companions", "from the node's hardware: fabricmanager and nscq where it has NVSwitches"
    if driver.kernel_module is not KernelModule.NONE and driver.signing is None:
        yield "signing", "the key of the node's DKMS, where the node builds a module"
    if driver.kernel_module is not KernelModule.NONE and driver.build is Build.ONCE and driver.builder is None:
        yield "builder", "two nodes of a kind, drawn by chance, that have built the same, where DKMS builds the module"


def _packages(driver: Driver, repository: Repository) -> Iterator[tuple[str, str]]:
    if driver.source is DriverSource.BUNDLE:
        yield "packages", "those of the first source of the node's distribution whose packages are all in the bundle"
    if driver.source in _REPOSITORIES and repository.url is None:
        yield "repository.url", _REPOSITORIES[driver.source]
    if driver.source is DriverSource.CANONICAL and repository.url is not None and repository.key is None:
        yield "repository.key", "the key of Ubuntu's archive that the node has"


def _flavour(driver: Driver) -> str:
    """Say in one sentence what `provision.planning.driver.flavour` does with the GPUs of a node."""
    branch = branch_of(driver.version or driver.branch or "0")
    if branch >= WITHOUT_PROPRIETARY:
        return f"from the node's GPUs: open, as there is no other from branch {WITHOUT_PROPRIETARY} on; {_WITHOUT_GPU}"
    if branch >= OPEN_BY_DEFAULT:
        usual = f"open, as is NVIDIA's default from branch {OPEN_BY_DEFAULT} on"
        return f"from the node's GPUs: {usual}; proprietary where one is older than Turing; {_WITHOUT_GPU}"
    usual = f"proprietary, as is NVIDIA's default before branch {OPEN_BY_DEFAULT}"
    return f"from the node's GPUs: {usual}; open where one runs with no other; {_WITHOUT_GPU}"
