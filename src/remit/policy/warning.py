"""Warnings of the hub about a delegation."""

from typing import NamedTuple


class HubWarning(NamedTuple):
    """A warning in a sentence for users, and with its details for operators."""

    text: str
    """For the response: without names of agents, tools, fields and settings."""
    details: str
    """For the record."""
