"""For all tests: how long hypothesis looks, and which tests of booted nodes stay together."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# It judges what is found, never how long a busy machine took to find it.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("patient"), max_examples=5)
settings.load_profile("patient")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests of the same nodes in one worker: nodes are booted once for a file, one of them for several files."""
    for item in items:
        if item.get_closest_marker("nodes"):
            together = "gpu_node" if "gpu_node" in getattr(item, "fixturenames", ()) else item.location[0]
            item.add_marker(pytest.mark.xdist_group(together))
