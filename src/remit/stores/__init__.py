"""Where a hub remembers."""
