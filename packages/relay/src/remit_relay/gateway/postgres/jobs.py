"""What a gateway asks of its database, each kind as a value; many of them are carried out in one transaction."""

from collections.abc import Callable
from typing import Any, NamedTuple

from remit_relay.gateway.ports import RateAllowance, SentMessage
from remit_relay.wire import AllowSenders, Fetch, Publish


class Entering(NamedTuple):
    """A device connects."""

    device: str
    may_be_new: bool


class Leaving(NamedTuple):
    """A connection has ended."""

    key: int
    session: int
    allowance: RateAllowance | None


class Acknowledging(NamedTuple):
    """A receiver has acknowledged everything up to a place."""

    receiver: int
    place: int


class Publishing(NamedTuple):
    """A device publishes keys."""

    device: int
    asked: Publish


class Fetching(NamedTuple):
    """A device asks for the keys of another."""

    sender: str
    asked: Fetch


class Allowing(NamedTuple):
    """A device says who may send to it."""

    device: int
    asked: AllowSenders


Work = Entering | Leaving | SentMessage | Acknowledging | Publishing | Fetching | Allowing


class StoreJob(NamedTuple):
    """Some work, and a callback for its result once that is durable."""

    work: Work
    then: Callable[[Any], None]


class GatewayNotice(NamedTuple):
    """What another gateway should hear after the commit."""

    gateway: int
    text: str
