"""Plans drivers that come from a runfile: what it offers follows from the declaration, before anybody has opened it.

Afterwards the plan is compared with the file itself: what it lacks is a problem of the plan.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from provision.declaration.fleet.facts.node import AvailablePackage
from provision.declaration.spec.model import DriverSource
from provision.planning.driver.packages.distributions import runfile as names
from provision.planning.node_plan import Problem
from provision.planning.supply.runfile.errors import RunfileError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import Driver
    from provision.planning.driver.packages.package_request import PackageRequest
    from provision.planning.driver.terms import Flavour
    from provision.planning.driver_change import DriverChange
    from provision.planning.supply.runfile.store import Converted, MadePackage

NOT_USABLE = "runfile-not-usable"


def with_runfile(facts: NodeFacts, declared: Driver) -> NodeFacts:
    """Return facts in which a declared runfile's packages can be had: grapnel makes them and hands them over."""
    if declared.source is not DriverSource.RUNFILE or declared.runfile is None or declared.version is None:
        return facts
    version = names.package_version(declared.version, declared.runfile.sha256)
    offered = {name: (_offered(name, version),) for name in names.ALL}
    return msgspec.structs.replace(facts, available={**facts.available, **offered})


def _offered(name: str, version: str) -> AvailablePackage:
    depends = tuple(each.partition(" ")[0] for each in names.depends_of(name, version))
    return AvailablePackage(version=version, source=names.SOURCE, depends=depends)


def of_this_file(request: PackageRequest, flavour: Flavour, declared: Driver) -> PackageRequest:
    """Return a request whose module has the name that DKMS gives that of the declared file."""
    if declared.runfile is None or request.dkms_name is None:
        return request
    return replace(request, dkms_name=names.dkms_name(flavour, declared.runfile.sha256))


def choose_packages(
    change: DriverChange, declared: Driver, converted: Converted, architecture: str
) -> tuple[MadePackage, ...]:
    """Return the packages of a change that were made of the runfile; raises `RunfileError` for what it lacks."""
    if converted.architecture != architecture:
        raise RunfileError(
            f"the declared runfile is for {converted.architecture}, and the node has {architecture}",
            hint=f"declare the file NVIDIA-Linux-{architecture}-{declared.version}.run for a group of such nodes",
        )
    if converted.driver_version != declared.version:
        raise RunfileError(
            f"the declared runfile is driver {converted.driver_version}, and driver.version is {declared.version}",
            hint=f"declare the version {converted.driver_version}, or the file of the other one",
        )
    made = {(each.name, each.version): each for each in converted.packages}
    wanted = [each for each in change.packages if each.name in names.ALL]
    lacking = [each.name for each in wanted if (each.name, each.version) not in made]
    if lacking:
        raise _lacks(lacking, converted)
    return tuple(made[each.name, each.version] for each in wanted)


def _lacks(lacking: Iterable[str], converted: Converted) -> RunfileError:
    flavours = ", ".join(sorted(each.value for each in converted.flavours))
    if names.PERSISTENCED in lacking:
        return RunfileError(
            f"the declared runfile ({converted.driver_version}) has no persistence daemon",
            hint="declare driver.companions without persistenced",
        )
    wanted = next(flavour for flavour, name in names.MODULES.items() if name in lacking)
    return RunfileError(
        f"the declared runfile ({converted.driver_version}) has no {wanted.value} kernel module; it has: {flavours}",
        hint=f"declare driver.kernelModule: {flavours}, where the node's GPUs run that, or another file",
    )


def as_problem(error: RunfileError) -> Problem:
    """Return what is wrong with a runfile as a problem of the plan."""
    return Problem(code=NOT_USABLE, message=error.message, hint=error.hint)
