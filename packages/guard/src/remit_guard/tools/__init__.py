"""The coding tools that the guard knows: how it gets into each of them, and how it answers it."""
