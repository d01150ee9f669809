"""Where connections to a gateway arrive: those that have not come to the point are few, and not there for long."""

import socket
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from remit.relay.gateway.addresses import Network, counted, is_in
from remit.relay.gateway.limits import GatewayLimits

# So many are turned away before others of the event loop have their turn.
_AT_ONCE = 100


class _Guest(socket.socket):
    """A connection that tells when it is closed, however far it came: asyncio knows nothing of it before TLS is."""

    __slots__ = ("gone",)
    gone: Callable[[int], None]

    def close(self) -> None:
        if self.fileno() >= 0:
            self.gone(self.fileno())
        super().close()


class Doorway(socket.socket):
    """A listening socket that hands out no more connections than may be undecided at once.

    A connection is undecided until it is closed or `seat`ed, as that of somebody who is about to greet. Before, it may
    be silent, or speak TLS and HTTP as slowly as it likes; meanwhile it is a file and up to 300 kB. *is_unwanted* says
    from which addresses none is taken at all. What a proxy passes on counts for nobody here.
    """

    def __init__(
        self,
        bound: socket.socket,
        limits: GatewayLimits,
        *,
        proxies: Sequence[Network],
        is_unwanted: Callable[[str], bool],
        now: Callable[[], float],
    ) -> None:
        super().__init__(bound.family, bound.type, bound.proto, bound.detach())
        self._limits = limits
        self._proxies = proxies
        self._is_unwanted = is_unwanted
        self._now = now
        self._undecided: dict[int, tuple[_Guest, str, float]] = {}
        """By their file numbers, oldest first; a number is used again only after its connection is closed."""
        self._counts: Counter[str] = Counter()
        self._gone = self.seat  # one for all

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection that may come in."""
        for _ in range(_AT_ONCE):
            arrived, peer = super().accept()
            address = "" if is_in(peer[0], self._proxies) else counted(peer[0])
            if address and (
                self._counts[address] >= self._limits.address_unauthenticated or self._is_unwanted(address)
            ):
                arrived.close()
                continue
            guest = _Guest(arrived.family, arrived.type, arrived.proto, arrived.detach())
            guest.gone = self._gone
            self._undecided[guest.fileno()] = guest, address, self._now()
            self._counts[address] += 1
            if len(self._undecided) > self._limits.max_unauthenticated:
                # Whoever means it needs a moment, and is not the one that has taken longest.
                self._show_out(next(iter(self._undecided)))
            return guest, peer
        raise BlockingIOError

    def seat(self, number: int) -> None:
        """Count a connection no more: it is decided, or closed."""
        if found := self._undecided.pop(number, None):
            _, address, _ = found
            self._counts[address] -= 1
            if not self._counts[address]:
                del self._counts[address]

    def show_out(self, since: float) -> None:
        """Hang up on those who came before a time and are still undecided."""
        for number, (_, _, came) in list(self._undecided.items()):
            if came > since:
                return
            self._show_out(number)

    def _show_out(self, number: int) -> None:
        guest, _, _ = self._undecided[number]
        self.seat(number)
        with suppress(OSError):  # it may have left by itself
            guest.shutdown(socket.SHUT_RDWR)
