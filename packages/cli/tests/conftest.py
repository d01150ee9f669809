"""The fixtures of these tests."""

from office_folder import folder

__all__ = ["folder"]
