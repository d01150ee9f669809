"""The team file: its sections, its loader, and the messages about errors in it."""
