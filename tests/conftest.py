"""For all tests: how long hypothesis looks."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# It judges what is found, never how long a busy machine took to find it.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("patient"), max_examples=5)
settings.load_profile("patient")
