"""Clients of A2A without a token, for agents that a team publishes to everybody, and what one client may have open."""

import asyncio
import hmac
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.budget import Window, count, wait_ms
from remit.policy.reception import Sender
from remit.protocol.card import Rate
from remit.protocol.envelope import Response
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.submission import Submission
from remit_server.bodies import Headers
from remit_server.transports.credentials.proof import BEARER, PROOF

NAME = "(guest)"
"""The name of every client without a token. No client of a team file can have it."""
RATE = Rate(60, 60)
OPEN = 4
# Beyond this many addresses, the one that was silent the longest is forgotten.
MOST_ADDRESSES = 10_000


class PublicAccess(Struct, frozen=True, kw_only=True):
    """What clients without a token may do, each counted by its address."""

    agents: Collection[str]
    """The agents that they may ask."""
    rate: Rate = RATE
    """How many messages may come from one address."""
    open: int = OPEN
    """How many of its tasks may be at work at once."""
    tokens: int | None = None
    """The tokens of one task; None: as many as the team gives a run."""
    time_ms: int | None = None
    """The time of one task; None: as much as the team gives a run."""


class OpenTasks:
    """Counts the tasks at work by whoever they are counted for."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._at_work: Counter[str] = Counter()

    def admit(self, whom: str, called: str) -> None:
        """Raise a `RemitError` if there are as many tasks at work as there may be; *called* is who has them."""
        if self._at_work[whom] >= self._most:
            why = f"{self._most} tasks from {called} are at work, and no more may be"
            raise RemitError(fault(Code.RATE_LIMITED, why, retry_after_ms=1_000))

    def began(self, whom: str, going: asyncio.Task[Response]) -> None:
        """Count a task until it ends."""
        self._at_work[whom] += 1
        going.add_done_callback(lambda _: self._ended(whom))

    def _ended(self, whom: str) -> None:
        self._at_work[whom] -= 1
        if not self._at_work[whom]:
            del self._at_work[whom]


class Guests:
    """The clients without a token of one server. Each address is a user of its own, and sees its own tasks."""

    def __init__(self, access: PublicAccess, secret: Callable[[], bytes], now: Callable[[], float]) -> None:
        self._access = access
        self._secret = secret
        self._now = now
        self._windows: OrderedDict[str, Window] = OrderedDict()
        self.open = OpenTasks(access.open)

    def may_ask(self, agent: str, headers: Headers) -> bool:
        """Return whether a request has nothing that proves its sender, and needs nothing."""
        return agent in self._access.agents and is_anonymous(headers)

    def sender(self, address: str) -> Sender:
        """Return the client at an address. Its user is named by a digest: an address may tell who somebody is."""
        digest = hmac.new(self._secret(), b"a2a guest " + address.encode(), sha256).hexdigest()
        users = frozenset({f"guest-{digest[:16]}"})
        return Sender(name=NAME, users=users, targets=frozenset(self._access.agents))

    def admit(self, user: str) -> None:
        """Count a message; raise a `RemitError` if its address has sent too many, or has too many tasks at work."""
        window, rate, now = self._windows.pop(user, Window()), self._access.rate, self._now()
        self._windows[user] = window
        if (left_ms := wait_ms(window, rate, now)) > 0:
            why = f"more than {rate.calls} messages in {rate.seconds:g} s from your address"
            raise RemitError(fault(Code.RATE_LIMITED, why, retry_after_ms=left_ms))
        self.open.admit(user, "your address")
        self._windows[user] = count(window, rate, now)
        while len(self._windows) > MOST_ADDRESSES:
            self._windows.popitem(last=False)

    def bounded(self, sent: Submission, user: str) -> Submission:
        """Return a submission within the limits of guests, for the *user* that their address is.

        A hub names the user that it asks for, but without a token it speaks for nobody here.
        """
        return replace(
            sent,
            user=user,
            max_tokens=_least(sent.max_tokens, self._access.tokens),
            deadline_ms=_least(sent.deadline_ms, self._access.time_ms),
        )


def is_anonymous(headers: Headers) -> bool:
    """Return whether a request has nothing that proves its sender."""
    return BEARER.lower() not in headers and PROOF.lower() not in headers


def is_guest(sender: Sender) -> bool:
    """Return whether a sender came without a token."""
    return sender.name == NAME


def _least(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)
