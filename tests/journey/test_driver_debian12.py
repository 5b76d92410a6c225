"""A driver with a module of DKMS on Debian 12, from Debian's packages: it comes and goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.journey.conftest import OLD_VERSION, VERSION
from tests.journey.dkms import Operator, operating, removal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.nodes import Site

# With --all-systems two drivers, one after the other.
pytestmark = [pytest.mark.nodes, pytest.mark.long, pytest.mark.timeout(1200)]

BOOKWORM_VERSION = "535.261.03"


@pytest.fixture
def operator(site: Site, tmp_path: Path) -> Iterator[Operator]:
    """Who changes the driver of a Debian 12."""
    with operating(site, "bookworm", tmp_path) as made:
        yield made


def test_on_debian_12_a_driver_comes_and_goes(operator: Operator, pytestconfig: pytest.Config) -> None:
    """Debian 12 has dkms 3.0, which signs nothing, and drivers of one branch.

    With ``--all-systems`` it changes as well, between two drivers whose modules take ten minutes of CPU each to build.
    """
    before = operator.state()
    if pytestconfig.getoption("--all-systems"):
        operator.prepare(BOOKWORM_VERSION)
        operator.assert_applied(BOOKWORM_VERSION)

    operator.declare(VERSION)
    operator.assert_refused(f"driver {VERSION} is in no package source of the node; nearest: {OLD_VERSION}")
    operator.prepare(OLD_VERSION)
    operator.assert_applied(OLD_VERSION)

    removal(operator, before)
