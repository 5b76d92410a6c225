"""Resolves the exact packages of a declared driver: what is asked for, and what it needs of the same sources.

Packages of the driver need each other at exactly one version, and apt finds that version by itself only while it is its
candidate. So all of them are named with their version, which resolves whatever the node's other pins are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from provision.driver.debian_version import DebianVersion
from provision.driver_change import PackageVersion
from provision.fleet.facts import AvailablePackage, InstalledPackage
from provision.node_plan import Problem

if TYPE_CHECKING:
    from provision.driver.catalogue import Distribution

Available = Mapping[str, tuple[AvailablePackage, ...]]
_NEAREST = 5


@dataclass(frozen=True)
class DriverPackages:
    """A driver as packages: the closure to install, and what of the same sources cannot stay beside it."""

    version: str
    packages: tuple[PackageVersion, ...]
    remove: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the closure, sorted."""
        return tuple(package.name for package in self.packages)


def resolve_driver(
    *,
    wanted: str,
    roots: Sequence[str],
    distribution: Distribution,
    available: Available,
    installed: Mapping[str, InstalledPackage],
) -> DriverPackages | Problem:
    """Return the closure of ``roots`` at ``wanted``: an upstream version (newest revision of it), or a full one.

    Packages of the same sources that are installed besides join it; those that do not exist at that version are to
    be removed.
    """
    pool = _of_sources(available, distribution.sources)
    candidates = _candidates(pool, roots, wanted)
    if not candidates:
        return _not_available(wanted, pool, roots)
    missing: dict[str, list[str]] = {}
    for version in candidates:
        closure = _close(pool, roots, version)
        if not isinstance(closure, str):
            return _with_installed(pool, closure, version, _installed_of(installed, distribution.sources))
        missing.setdefault(closure, []).append(version)
    reasons = "; ".join(f"{name} at {', '.join(versions)}" for name, versions in missing.items())
    return Problem(
        code="driver-closure-incomplete",
        message=f"driver {wanted} is not complete in the node's package sources: no {reasons}",
        hint="a package source may be missing one of its components (contrib, non-free), or be mirrored incompletely",
    )


def _of_sources(available: Available, sources: Sequence[str]) -> dict[str, dict[str, AvailablePackage]]:
    """Return the packages of the driver's sources: by name, then by version of the source."""
    pool = {
        name: {DebianVersion(each.version).source: each for each in versions if each.source in sources}
        for name, versions in available.items()
    }
    return {name: versions for name, versions in pool.items() if versions}


def _installed_of(installed: Mapping[str, InstalledPackage], sources: Sequence[str]) -> list[str]:
    return sorted(name for name, package in installed.items() if package.source in sources)


def _candidates(pool: Mapping[str, Mapping[str, AvailablePackage]], roots: Sequence[str], wanted: str) -> list[str]:
    """Return the full versions that ``wanted`` may mean, newest first."""
    versions = {version for root in roots for version in pool.get(root, {})}
    return sorted(
        (version for version in versions if wanted in {version, DebianVersion(version).upstream}),
        key=DebianVersion,
        reverse=True,
    )


def _close(
    pool: Mapping[str, Mapping[str, AvailablePackage]], roots: Iterable[str], version: str
) -> dict[str, AvailablePackage] | str:
    """Return the closure of ``roots`` at one version, or the name of the first package that is not there."""
    closure: dict[str, AvailablePackage] = {}
    queue = list(roots)
    while queue:
        name = queue.pop(0)
        if name in closure:
            continue
        package = pool.get(name, {}).get(version)
        if package is None:
            return name
        closure[name] = package
        queue.extend(each for each in package.depends if each in pool)
    return closure


def _with_installed(
    pool: Mapping[str, Mapping[str, AvailablePackage]],
    closure: dict[str, AvailablePackage],
    version: str,
    installed: Iterable[str],
) -> DriverPackages:
    remove = []
    for name in installed:
        extra = _close(pool, [name], version)
        if isinstance(extra, str):
            remove.append(name)
        else:
            closure |= extra
    packages = sorted(PackageVersion(name, package.version) for name, package in closure.items())
    return DriverPackages(version=version, packages=tuple(packages), remove=tuple(remove))


def _not_available(wanted: str, pool: Mapping[str, Mapping[str, AvailablePackage]], roots: Sequence[str]) -> Problem:
    exist = {DebianVersion(version).upstream for root in roots for version in pool.get(root, {})}
    if not exist:
        return Problem(
            code="version-not-available",
            message=f"driver {wanted} is not available: no package source of the node has {', '.join(roots)} at all",
            hint="enable a package source with the driver (debian: component non-free), then plan again",
        )
    nearest = ", ".join(sorted(exist, key=lambda version: _distance(version, wanted))[:_NEAREST])
    return Problem(
        code="version-not-available",
        message=f"driver {wanted} is in no package source of the node; nearest: {nearest}",
        hint="declare one of these versions, or add a package source that has the declared one",
    )


def _distance(version: str, wanted: str) -> tuple[int, list[int]]:
    """Return how far a version is from another: branch first, then within a branch, newest first in another one."""
    (branch, *rest), (wanted_branch, *wanted_rest) = _numbers(version), _numbers(wanted)
    if branch != wanted_branch:
        return abs(branch - wanted_branch), [-each for each in rest]
    return 0, [abs(mine - theirs) for mine, theirs in zip(rest, wanted_rest, strict=True)]


def _numbers(version: str) -> list[int]:
    """Return the numbers of an upstream version, three of them."""
    parts = DebianVersion(version).upstream.split(".")
    return [int(part) if part.isdecimal() else 0 for part in [*parts, "0", "0"][:3]]
