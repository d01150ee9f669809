"""Settings that every test shares."""

import os

from hypothesis import settings

# Timing belongs to bench/, and a slow machine is no counterexample. What is looked for anew each time on a desk is the
# same each time in CI: a change is not to be turned down for what another has done.
settings.register_profile("remit", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("remit")
# A team file that others can write is refused, and tests make such files with whatever mask they are started with.
os.umask(0o022)
