"""The hub that a Python program opens."""
