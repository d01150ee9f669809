"""What a thread does while it waits."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar

# Its own module: an isolated agent's process needs this, and nothing else of what carries out delegations.
stepping_aside: ContextVar[Callable[[], AbstractContextManager[None]]] = ContextVar(
    "stepping_aside", default=nullcontext
)
"""Whoever owns the thread may let another one work in its place."""
