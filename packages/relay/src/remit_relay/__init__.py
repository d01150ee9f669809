"""Shared agents: one person's agent works with another's over an end-to-end encrypted relay."""
