"""Old names of the public API: they still work, with a `DeprecationWarning` that says the new name."""

import warnings
from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def warn(old: str, new: str, *, stacklevel: int = 2) -> None:
    """Warn the caller of whoever calls this that *old* is now called *new*."""
    warnings.warn(f"`{old}` is deprecated: use `{new}`", DeprecationWarning, stacklevel=stacklevel + 1)


class Renamed:
    """The old name of a method or property, as a member of its class: `figures = Renamed("metrics")`."""

    def __init__(self, new: str) -> None:
        self._old, self._new = "", new

    def __set_name__(self, owner: type, name: str) -> None:
        self._old = name

    def __get__(self, instance: object, owner: type) -> Any:
        warn(f"{owner.__name__}.{self._old}", f"{owner.__name__}.{self._new}")
        return getattr(owner if instance is None else instance, self._new)


def with_new_name(value: T, *, old: str, new: str) -> T:
    """Return an object of the caller's own class, whose method *old* is now called *new*, with the new name."""
    if hasattr(value, new) or not hasattr(value, old):
        return value
    name = type(value).__name__
    warn(f"{name}.{old}", f"{name}.{new}")
    return cast("T", SimpleNamespace(**{new: getattr(value, old)}))


def renamed_arguments(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function take keyword arguments also under their old names: `@renamed_arguments(old="new")`."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for old in names.keys() & kwargs.keys():
                if names[old] in kwargs:
                    raise TypeError(f"{function.__qualname__}() got both `{names[old]}` and its old name `{old}`")
                warn(f"{function.__qualname__}({old}=…)", f"{names[old]}=…")
                kwargs[names[old]] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return decorate
