"""Runs in which a local agent works with a shared one: states, rules and storage."""
