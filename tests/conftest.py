"""For all tests: Hypothesis measures no time. How long an example takes is the machine's affair."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("zcrawl", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("zcrawl")
