"""How it happens: async, against ports only."""

# Whatever logs is on this floor or above it.
from remit.runtime import log_lines as log_lines
