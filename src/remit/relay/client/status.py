"""The state of a device's connection to its gateway: since when, and why."""

import time
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

State = Literal["connecting", "connected", "silent", "waiting", "ended"]
"""`silent`: connected, and the gateway has not answered for a while. `waiting`: for the next attempt to connect."""

# A connection that is lost alternates between these two until the gateway answers.
_APART = frozenset[State]({"connecting", "waiting"})


class ConnectionStatus(Struct, frozen=True, kw_only=True):
    """The state of a connection."""

    state: State
    since_ms: int
    """Since when it is connected, silent, ended, or without a connection; a failed attempt does not change this.
    A gateway is silent since it was last heard from."""
    why: str
    """A sentence for people."""


Hear = Callable[[ConnectionStatus], None]


class StatusListeners:
    """The current status, and those who want to hear of each change."""

    def __init__(self, *, wall_s: Callable[[], float] = time.time) -> None:
        self._wall_s = wall_s
        self._listeners: list[Hear] = []
        self.now = ConnectionStatus(state="connecting", since_ms=round(wall_s() * 1_000), why="")

    def listen(self, hear: Hear) -> Callable[[], None]:
        """Call *hear* with each change from now on; return how to stop that."""
        self._listeners.append(hear)
        return lambda: self._listeners.remove(hear)

    def become(self, state: State, why: str, *, ago_s: float = 0.0) -> None:
        """Change the state, which began *ago_s* ago, and tell all listeners."""
        stays = state == self.now.state or {state, self.now.state} <= _APART
        since_ms = self.now.since_ms if stays else round((self._wall_s() - ago_s) * 1_000)
        self.now = ConnectionStatus(state=state, since_ms=since_ms, why=why)
        for hear in tuple(self._listeners):
            hear(self.now)
