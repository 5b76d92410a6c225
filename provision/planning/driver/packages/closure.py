"""Resolves the exact packages of a declared driver: what is asked for, and what it needs of the same driver.

Packages of a driver need each other at exactly one version, and a package manager finds that version by itself only
while it is its candidate. So all of them are named with their version, which resolves whatever the node's other pins
are. Linear in what the node's package manager knows: facts may hold thousands of packages that need one another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from provision.declaration.fleet.facts.node import AvailablePackage, InstalledPackage
from provision.planning.driver_change import PackageVersion
from provision.planning.node_plan import Problem

if TYPE_CHECKING:
    from provision.planning.driver.packages.package_request import PackageRequest
    from provision.planning.driver.versions.scheme import VersionScheme

Available = Mapping[str, tuple[AvailablePackage, ...]]
_NEAREST = 5
_REMEMBERED = 8  # a machine with NVIDIA's repository knows 200 packages in 30 versions each


@dataclass(frozen=True)
class DriverPackages:
    """A driver as packages: the closure to install, and what of the same driver cannot stay beside it."""

    version: str
    packages: tuple[PackageVersion, ...]
    remove: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the closure, sorted."""
        return tuple(package.name for package in self.packages)


def resolve_driver(
    *, wanted: str, request: PackageRequest, available: Available, installed: Mapping[str, InstalledPackage]
) -> DriverPackages | Problem:
    """Return the closure of a request at ``wanted``: a branch, an upstream version, or a full one; the newest of it.

    Packages of the same driver that are installed besides join it; those that do not exist at that version are to be
    removed. What was found is remembered for nodes that know and have the same packages, as most of a fleet do.
    """
    return _resolve(wanted, request, tuple(available.items()), tuple(installed.items()))


@lru_cache(maxsize=_REMEMBERED)
def _resolve(
    wanted: str,
    request: PackageRequest,
    known: tuple[tuple[str, tuple[AvailablePackage, ...]], ...],
    present: tuple[tuple[str, InstalledPackage], ...],
) -> DriverPackages | Problem:
    available, installed = dict(known), dict(present)
    pool = _Pool(available, request)
    roots = (*request.roots, *request.module_roots)
    candidates = pool.candidates(roots, wanted)
    if not candidates:
        return _not_available(wanted, pool, roots, _under_its_names(wanted, request, available))
    missing: dict[str, list[str]] = {}
    for level in candidates:
        closure = pool.close(roots, level)
        if not isinstance(closure, str):
            return _complete(pool, closure, level, request=request, available=available, installed=installed)
        missing.setdefault(closure, []).append(level)
    if missing.keys() <= set(request.module_roots):
        return _no_module_package(wanted, pool, sorted(missing))
    reasons = "; ".join(f"{name} at {', '.join(versions)}" for name, versions in missing.items())
    return Problem(
        code="driver-closure-incomplete",
        message=f"driver {wanted} is not complete in the node's package sources: no {reasons}",
        hint="a package source may be missing one of its components (contrib, non-free), or be mirrored incompletely",
    )


def upstream_versions(request: PackageRequest, available: Available) -> frozenset[str]:
    """Return the driver versions that a node can have: those of everything that is asked for by name."""
    pool = _Pool(available, request)
    having = [frozenset(map(pool.upstream, pool.levels(root))) for root in (*request.roots, *request.module_roots)]
    return frozenset.intersection(*having) if having else frozenset()


class _Pool:
    """The packages of the driver: by name, then by the version that they must share."""

    def __init__(self, available: Available, request: PackageRequest) -> None:
        self._scheme: VersionScheme = request.scheme
        self._levels: dict[str, dict[str, AvailablePackage]] = {}
        for name, versions in available.items():
            # Never a rival: nothing that is asked for, and nothing that is installed besides, may bring it.
            for each in () if request.is_rival(name) else versions:
                self._add(name, each, request)

    def _add(self, name: str, package: AvailablePackage, request: PackageRequest) -> None:
        version = self._scheme(package.version)
        # A package is in several of dnf's streams (580, 580-dkms, 580-open, ...), and facts name one of them. Name and
        # version say as much: the stream that is asked for has all versions of its branch.
        if not request.members.has(name, package.source, version):
            return
        level = request.members.level(package.source, version)
        levels = self._levels.setdefault(name, {})
        present = levels.get(level)
        if present is None or self._scheme(present.version) < version:
            levels[level] = package

    def __contains__(self, name: str) -> bool:
        return name in self._levels

    def levels(self, name: str) -> Iterable[str]:
        return self._levels.get(name, {})

    def upstream(self, level: str) -> str:
        return self._scheme(level).upstream

    def at(self, name: str, level: str) -> AvailablePackage | None:
        """Return a package at a full version, or at its upstream version where it is not bound to a full one."""
        levels = self._levels.get(name, {})
        return levels.get(level) or levels.get(self.upstream(level))

    def candidates(self, roots: Sequence[str], wanted: str) -> list[str]:
        """Return the versions that ``wanted`` may mean, newest first."""
        levels = {level for root in roots for level in self.levels(root) if self._means(level, wanted)}
        full = {self.upstream(level) for level in levels if level != self.upstream(level)}
        return sorted((level for level in levels if level not in full), key=self._scheme, reverse=True)

    def _means(self, level: str, wanted: str) -> bool:
        upstream = self.upstream(level)
        return wanted in {level, upstream} or (wanted.isdecimal() and upstream.startswith(f"{wanted}."))

    def close(self, roots: Iterable[str], level: str) -> dict[str, AvailablePackage] | str:
        """Return the closure of ``roots`` at one version, or the name of the first package that is not there."""
        closure: dict[str, AvailablePackage] = {}
        queue = deque(roots)
        while queue:
            name = queue.popleft()
            if name in closure:
                continue
            package = self.at(name, level)
            if package is None:
                return name
            closure[name] = package
            queue.extend(each for each in package.depends if each in self and each not in closure)
        return closure

    def broken(self, level: str) -> frozenset[str]:
        """Return the packages that cannot be had at a version, because they or something they need is not there."""
        needed_by: dict[str, list[str]] = {}
        queue: deque[str] = deque()
        for name in self._levels:
            package = self.at(name, level)
            if package is None:
                queue.append(name)
                continue
            for each in package.depends:
                needed_by.setdefault(each, []).append(name)
        broken = set(queue)
        while queue:
            for name in needed_by.get(queue.popleft(), ()):
                if name not in broken:
                    broken.add(name)
                    queue.append(name)
        return frozenset(broken)


def _complete(
    pool: _Pool,
    closure: dict[str, AvailablePackage],
    level: str,
    *,
    request: PackageRequest,
    available: Available,
    installed: Mapping[str, InstalledPackage],
) -> DriverPackages | Problem:
    """Return the closure with what is installed besides, and with packages that have versions of their own."""
    present = sorted(name for name, package in installed.items() if _is_member(name, package, request))
    broken = pool.broken(level)
    remove = tuple(name for name in present if name in broken or name not in pool)
    extra = pool.close([name for name in present if name in pool and name not in broken], level)
    if not isinstance(extra, str):
        closure |= extra
    packages = {PackageVersion(name, package.version) for name, package in closure.items()}
    for name in request.loose:
        version = _loose(available.get(name, ()), pool.upstream(level), request.scheme)
        if version is None:
            return _no_loose_package(name, level)
        packages.add(PackageVersion(name, version))
    return DriverPackages(version=level, packages=tuple(sorted(packages)), remove=remove)


def _is_member(name: str, package: InstalledPackage, request: PackageRequest) -> bool:
    if name in request.loose:
        return False
    if request.is_rival(name):
        return True
    version = request.scheme(package.version)
    return request.members.has(name, package.source, version) or request.members.replaces(name, package.source, version)


def _loose(versions: Iterable[AvailablePackage], upstream: str, scheme: VersionScheme) -> str | None:
    """Return the version nearest to the driver's: the same, else the newest of its branch, else the newest."""
    branch = upstream.partition(".")[0]
    known = sorted({each.version for each in versions}, key=scheme)
    same = [text for text in known if scheme(text).upstream == upstream]
    near = [text for text in known if scheme(text).upstream.partition(".")[0] == branch]
    return next((group[-1] for group in (same, near, known) if group), None)


def _no_module_package(wanted: str, pool: _Pool, names: Sequence[str]) -> Problem:
    """Return that a source has the driver without the module of this flavour, and where it has that."""
    versions = sorted({pool.upstream(level) for name in names for level in pool.levels(name)}, key=_numbers)
    has = f", which there is for {', '.join(versions)}" if versions else ""
    return Problem(
        code="driver-closure-incomplete",
        message=f"driver {wanted} has no {', '.join(names)} in the node's package sources{has}",
        hint="declare another driver.kernelModule or driver version, or add a package source that has both",
    )


def _no_loose_package(name: str, level: str) -> Problem:
    return Problem(
        code="driver-closure-incomplete",
        message=f"driver {level} needs {name}, which no package source of the node has",
        hint="add the package source that has it, or leave the companion or capability that needs it out",
    )


def _under_its_names(wanted: str, request: PackageRequest, available: Available) -> dict[str, str]:
    """Return which packages that are named after the wanted branch are of another driver, and of which one.

    Ubuntu ends a branch that way: packages of 535 become those of 580, whose upgrade brings the next driver.
    """
    branch = wanted.partition(".")[0]
    named = [name for name in request.roots if f"-{branch}" in name]
    versions = {name: request.scheme(each.version).upstream for name in named for each in available.get(name, ())}
    return {name: version for name, version in versions.items() if version.partition(".")[0] != branch}


def _not_available(wanted: str, pool: _Pool, roots: Sequence[str], others: Mapping[str, str]) -> Problem:
    exist = {pool.upstream(level) for root in roots for level in pool.levels(root)}
    if not exist and others:
        name, version = next(iter(others.items()))
        return Problem(
            code="version-not-available",
            message=f"driver {wanted} is not available: {name} is driver {version} in the node's package "
            "sources, which have ended its branch",
            hint=f"declare driver {version} or its branch, or add a package source that still has {wanted}",
        )
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
    parts = version.partition("-")[0].split(".")
    return [int(part) if part.isdecimal() else 0 for part in [*parts, "0", "0"][:3]]
