"""The access log: one line of JSON for each request, without anything that a client chose or must not be read."""

import logging
import os
import secrets
import sys
import time
from collections.abc import MutableMapping
from contextlib import suppress
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any

from msgspec import Struct

from remit.protocol.codec import encode
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.trace import place_of
from remit_server.bodies import Headers, Receive, Scope, Send, headers_of
from remit_server.refusals import PLACE, REFUSALS, SENDER, Endpoint, Refusals

REQUEST_ID = b"x-request-id"
"""The header of a response with the `id` of its line."""

# The status for a client that left before there was a response; nginx has it, and so has a cancelled delegation.
GONE = 499

log = logging.getLogger("remit")


class AccessLine(Struct, frozen=True, kw_only=True):
    """One request."""

    time: str
    """When it arrived, in UTC."""
    id: str
    """Made here, and sent back in the header `x-request-id`."""
    method: str
    path: str | None
    """The path with names in place of ids, such as `/v1/runs/{run}`; null for an address that is not served."""
    status: int
    """The status of the response; 499 if the client left before there was one."""
    ms: float
    """From the headers of the request to the end of the response; for a stream, how long it was read."""
    bytes: int
    """Size of the response body, as sent."""
    complete: bool
    """Whether the whole response was sent."""
    client: str | None
    """The client or peer in the team file; null if the sender is not authenticated."""
    address: str
    """Where it comes from: an IPv4 address, or the /64 of an IPv6 address."""
    trace: str | None
    """The trace id in the `traceparent` of the request."""


class AccessLog:
    """Writes a line for each request, to standard error or to a file."""

    def __init__(self, path: Path | None = None) -> None:
        """Open the file, if there is one; raise a `RemitError` if it cannot be written."""
        try:
            self._handler = logging.StreamHandler(sys.stderr) if path is None else _LogFile(path)
        except OSError as error:
            why = f"the access log {path} cannot be written: {error.strerror}"
            raise RemitError(
                fault(Code.TEAM_INVALID, why, suggestion="Name another file in `access_log` of `[serve]`.")
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._handler.close()

    async def logged(self, app: Endpoint, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request with *app*, and write its line when the response has ended, however it ends."""
        begun, at = time.perf_counter(), datetime.now(UTC)
        name = secrets.token_hex(8)
        status, size, complete, left = GONE, 0, False, False

        async def receiving() -> MutableMapping[str, Any]:
            nonlocal left
            message = await receive()
            left = left or (message["type"] == "http.disconnect" and not complete)
            return message

        async def sending(message: MutableMapping[str, Any]) -> None:
            nonlocal status, size, complete
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), (REQUEST_ID, name.encode())]}
                await send(message)
                return
            await send(message)
            size += 0 if scope["method"] == "HEAD" else len(message.get("body", b""))
            complete = not message.get("more_body", False) and not left

        try:
            await app(scope, receiving, sending)
        except Exception:
            status = 500 if status == GONE else status  # as the connection answers
            raise
        finally:
            self._write(
                AccessLine(
                    time=at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                    id=name,
                    method=scope["method"],
                    path=scope.get(PLACE),
                    status=status,
                    ms=round((time.perf_counter() - begun) * 1_000, 1),
                    bytes=size,
                    complete=complete,
                    client=scope.get(SENDER),
                    **_origin(scope),
                )
            )

    def _write(self, line: AccessLine) -> None:
        record = logging.LogRecord("remit.access", logging.INFO, "", 0, encode(line).decode(), None, None)
        self._handler.handle(record)


def _origin(scope: Scope) -> dict[str, Any]:
    """Return the address and the trace of a request."""
    refusals: Refusals = scope[REFUSALS]
    headers: Headers = {}
    with suppress(RemitError):  # a header that is sent twice
        headers = headers_of(scope)
    trace = place_of(headers.get("traceparent"))
    return {"address": refusals.address_of(scope, headers), "trace": None if trace is None else trace.trace}


class _LogFile(WatchedFileHandler):
    """A file that others may move away, as logrotate does; then a new one is made. Only its owner can read it."""

    def __init__(self, path: Path) -> None:
        self._failed = False
        super().__init__(path, encoding="utf-8")

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:  # from looking whether the file was moved
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002 - the shape of logging
        """Say once that lines are lost: requests are answered all the same."""
        if not self._failed:
            self._failed = True
            log.warning("the access log %s cannot be written: %s", self.baseFilename, type(sys.exception()).__name__)
