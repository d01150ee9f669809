"""Upkeep of a store: the removal of what is too old and of what belongs to a user."""
