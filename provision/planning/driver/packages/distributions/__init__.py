"""Holds the supported distributions: one file of data for each family.

A family says which sources of packages it has, and what these call the parts of a driver branch. Every table names
where it was read; what could not be verified stands in ``docs/drivers/catalogue.md``. A release is listed once for each
architecture, with the sources that are known to have packages for it.
"""

from __future__ import annotations

from typing import Final

from provision.planning.driver.packages.distributions import amazon, debian, rhel, sles, ubuntu

DISTRIBUTIONS: Final = (
    *debian.RELEASES,
    *ubuntu.RELEASES,
    *rhel.RELEASES,
    *amazon.RELEASES,
    *sles.RELEASES,
)
