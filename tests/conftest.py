"""Settings that every test shares."""

from hypothesis import settings

# Timing belongs to bench/, and a slow machine is no counterexample.
settings.register_profile("remit", deadline=None)
settings.load_profile("remit")
