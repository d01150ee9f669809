"""What a thread does while it waits."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar

# Its own module: an isolated agent's process needs this and nothing else of the delegation code.
stepping_aside: ContextVar[Callable[[], AbstractContextManager[None]]] = ContextVar(
    "stepping_aside", default=nullcontext
)
"""The owner of a thread may let another thread work while this one waits."""
