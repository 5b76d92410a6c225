"""Finds what would make a driver change fail on a node, or leave it without a driver, before it is made. Pure.

Facts in, findings out. What is not known leads to no finding, or to one that says so. Errors become problems of a plan,
warnings are shown with it, and `grapnel doctor` shows all of them for a fleet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.planning.driver.preflight.codes import CODES, Code, Finding, Severity
from provision.planning.driver.preflight.modules import find_mismatch, find_modules
from provision.planning.driver.preflight.others import find_foreign_driver, find_last_run, find_nouveau, find_use
from provision.planning.driver.preflight.packages import find_packages
from provision.planning.driver.preflight.signatures import find_signatures
from provision.planning.driver.preflight.situation import Situation
from provision.planning.driver.preflight.space import find_space

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import Driver
    from provision.planning.driver_change import DriverChange

__all__ = ["CODES", "Code", "Finding", "Severity", "findings"]

_RULES = (
    find_packages,
    find_foreign_driver,
    find_nouveau,
    find_modules,
    find_signatures,
    find_space,
    find_mismatch,
    find_last_run,
    find_use,
)


def findings(facts: NodeFacts, driver: Driver, change: DriverChange | None) -> tuple[Finding, ...]:
    """Return what is found on a node, errors first; nothing where the driver is not managed.

    ``change`` is what would be carried out, None where nothing has to change or nothing could be planned: what a change
    alone could be at fault for is then left out.
    """
    if not driver.enabled:
        return ()
    situation = Situation(facts, driver, change)
    found = [finding for rule in _RULES for finding in rule(situation)]
    order = list(Severity)
    return tuple(sorted(found, key=lambda finding: order.index(finding.severity)))
