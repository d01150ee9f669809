"""The writes that are common enough to be written many at a time."""

from typing import NamedTuple

from remit.protocol.envelope import Request, Response


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


class Take(NamedTuple):
    """A claim on a request that has not begun."""

    run: str
    worker: str
    lease_ms: int
    begin: bool


class Begin(NamedTuple):
    """The beginning of a request that waited."""

    run: str
    epoch: int
    request: Request


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


Write = Submit | Take | Begin | Finish | JournalWrite
"""A write that can be collected with others."""
