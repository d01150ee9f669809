"""How many tokens the requests under one credential were given, so that they never get more than it grants."""

from collections.abc import Awaitable, Callable
from heapq import heappop, heappush

from msgspec import Struct

from remit.protocol.errors import Code, Fault, fault
from remit_server.transports.credentials.hops import Verified
from remit_server.transports.credentials.proof import WINDOW_MS

Count = Callable[[str, int, int], Awaitable[int]]
"""`incr` of a store: add to the counter of a key, within a window of that many milliseconds, and return its total."""

# Credentials live for minutes: this many at once, of 200 bytes each, are an attack.
MAX_COUNTERS = 100_000


class Counter(Struct, frozen=True):
    """A counter, and when it ends.

    Counted from 1970, a window that is as long as the expiry time ends when the credential does, and none begins
    before.
    """

    key: str
    until_ms: int


class Share(Struct, frozen=True, kw_only=True):
    """What one request was given, to be settled when it has ended."""

    tokens: int
    counters: tuple[Counter, ...] = ()
    once: Counter | None = None


class Spending:
    """Counts what is spent under each block of a credential that others can add blocks to.

    *count* is the `incr` of the hub's store, if several processes share one; else this process counts alone.
    """

    def __init__(self, count: Count | None = None, *, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._memory = _Counters(self._wall_ms)
        self._incr = count or self._memory.incr

    async def reserve(self, verified: Verified, tokens: int, sender: str = "") -> Share | Fault:
        """Reserve as many of *tokens* as the credential has left; none left is a fault.

        A repeated request of the same *sender* is counted once: it runs once.
        """
        wanted = min(tokens, verified.grant.tokens)
        # The last block is for one request, and limits that alone; those before may have been passed on many times.
        hops, ids = verified.chain.hops[:-1], verified.chain.ids[:-1]
        if not hops:
            return Share(tokens=wanted)
        ends = [min(hop.until_ms for hop in hops[: number + 1]) + WINDOW_MS for number in range(len(hops))]
        counters = tuple(Counter(f"credential:{id}", end + 1) for id, end in zip(ids, ends, strict=True))
        request = verified.chain.hops[-1].request.hex()
        once = Counter(f"{counters[-1].key}:{request}:{sender}", counters[-1].until_ms)
        if not self._memory.has_room(len(counters) + 1):
            return fault(Code.OVERLOADED, "too many credentials in use at once", retry_after_ms=WINDOW_MS)
        if await self._add(once, 1) > 1:
            return Share(tokens=wanted)
        share = Share(
            tokens=await self._take(wanted, [hop.tokens for hop in hops], counters), counters=counters, once=once
        )
        if share.tokens == 0 < tokens:
            await self.settle(share, 0)
            return fault(Code.TOKEN_BUDGET_EXCEEDED, "all tokens that the credential grants are spent or reserved")
        return share

    async def settle(self, share: Share, used: int) -> None:
        """Give back what a request was given and has not used."""
        unused = share.tokens - min(used, share.tokens)
        for counter in share.counters if unused else ():
            await self._add(counter, -unused)
        if used == 0 and share.once is not None:
            # It may not even have started, and then be sent again.
            await self._add(share.once, -1)

    async def _take(self, wanted: int, limits: list[int], counters: tuple[Counter, ...]) -> int:
        """Return how many of *wanted* fit under each limit, and count them."""
        taken: list[int] = []
        for limit, counter in zip(limits, counters, strict=True):
            over = await self._add(counter, wanted) - limit
            taken.append(wanted)
            wanted -= min(max(over, 0), wanted)
        for amount, counter in zip(taken, counters, strict=True):
            if amount > wanted:
                await self._add(counter, wanted - amount)
        return wanted

    async def _add(self, counter: Counter, amount: int) -> int:
        # After its end a counter may be gone; what is given back then has no use.
        return await self._incr(counter.key, amount, counter.until_ms) if self._wall_ms() < counter.until_ms else 0


class _Counters:
    """Counters in memory, each dropped when its window ends and not before."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._totals: dict[str, int] = {}
        self._ends: list[tuple[int, str]] = []

    def has_room(self, more: int) -> bool:
        """Return whether this many more can be counted."""
        now_ms = self._wall_ms()
        while self._ends and self._ends[0][0] <= now_ms:
            del self._totals[heappop(self._ends)[1]]
        return len(self._totals) + more <= MAX_COUNTERS

    async def incr(self, key: str, n: int, window_ms: int) -> int:
        if key not in self._totals:
            heappush(self._ends, (window_ms, key))
        self._totals[key] = total = self._totals.get(key, 0) + n
        return total
