"""The execution of delegations: async, and against ports only."""

# Everything that logs is on this floor or above it.
from remit.runtime import log_lines as log_lines
