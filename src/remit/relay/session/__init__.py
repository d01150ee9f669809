"""A run in which a local agent works with a shared one: its states, its rules and where it is stored."""
