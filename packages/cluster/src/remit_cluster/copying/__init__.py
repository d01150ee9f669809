"""Copies a store into another one, of the same or of another engine."""
