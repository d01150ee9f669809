"""Executing and controlling runs: in the foreground, in the background, and from other processes."""
