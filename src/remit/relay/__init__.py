"""Shared agents: one person's agent works with another's through a relay that can read nothing."""
