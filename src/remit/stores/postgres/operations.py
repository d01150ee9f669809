"""The writes that are common enough to be written many at a time."""

from typing import NamedTuple

from remit.protocol.envelope import Request, Response
from remit.protocol.records import Body, Kind

Entry = tuple[Kind, int, str, str, Body]
"""A record before it has a number: kind, at_ms, run, session, body."""


class Submit(NamedTuple):
    """A new request."""

    request: Request
    digest: bytes
    worker: str
    lease_ms: int
    waiting: bool = False

    @property
    def run(self) -> str:
        return self.request.run


class Finish(NamedTuple):
    """The outcome of a run."""

    run: str
    epoch: int
    response: Response
    at_ms: int
    keep: bool = True


class JournalWrite(NamedTuple):
    """A finished step of a run."""

    run: str
    epoch: int
    step: str
    value: bytes
