"""The local API for runs with shared agents: HTTP and server-sent events, for the same user on the same machine.

A client reads the views in `public_runs` and sends the commands in `run_commands`. `check_local` decides who is let in.
Each event of the stream is the whole view of a run, so a client shows the latest event and never has to merge events.
"""

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from hmac import compare_digest
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs

from msgspec import Struct
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route

from remit.protocol.codec import decode, encode
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.relay.session.moves import ENDED
from remit.relay.session.run import Overlay
from remit.relay.session_service import SessionService
from remit.runtime.clock import LoopClock
from remit.server.access import token_in
from remit.server.app import no_such_thing
from remit.server.bodies import (
    Headers,
    Receive,
    Scope,
    Send,
    headers_of,
    read_json,
    read_optional_json,
    send_bytes,
    send_fault,
    send_value,
)
from remit.server.public_runs import DeviceList, Profiles, SharedRunList, device_view, line, profile_view, view
from remit.server.refusals import Endpoint, guarded
from remit.server.run_commands import StartRequest, event_of, kind_of, person_of
from remit.server.run_waiters import DelayedCalls, DisconnectWatcher
from remit.server.server import Server
from remit.server.shared_files import file_routes
from remit.server.streams import KEEP_ALIVE, KEEP_ALIVE_S, STREAM_HEADERS
from remit.transports.credentials.bearer import bearer_of
from remit.transports.listening import listening

_MARK = re.compile(r"([0-9a-f]{8})-([0-9]{1,15})", re.ASCII)


class RunChange(NamedTuple):
    """A run that changed, and the number of its last change."""

    number: int
    run: Overlay


class Changes:
    """The changes of a host's runs, numbered: a `SessionService` calls `changed`, readers follow or reconnect.

    Only the newest state of each run is kept, and it is the whole state: a reader that was away or is slow gets the
    current state of each run and needs none of the states between. So memory grows only with the number of runs, and no
    reader needs a queue.
    """

    def __init__(self) -> None:
        # Numbers start anew in each process; the name says which process a number belongs to.
        self._name = secrets.token_hex(4)
        self._newest: dict[str, RunChange] = {}
        self._readers: set[asyncio.Event] = set()
        self.number = 0

    def changed(self, run: Overlay) -> None:
        """Note that a run changed."""
        self.number += 1
        self._newest.pop(run.id, None)  # keeps the runs in the order of their numbers
        self._newest[run.id] = RunChange(self.number, run)
        self.wake()

    def since(self, number: int) -> list[RunChange]:
        """Return the runs that changed after *number*, in order, each in its current state."""
        found: list[RunChange] = []
        for change in reversed(self._newest.values()):
            if change.number <= number:
                break
            found.append(change)
        return found[::-1]

    def mark(self, number: int) -> str:
        """Return the mark of a number, from which a reader can continue."""
        return f"{self._name}-{number}"

    def number_of(self, mark: str) -> int | None:
        """Return the number of a mark; None if it is invalid or of another process."""
        found = _MARK.fullmatch(mark)
        if found is None or found[1] != self._name or int(found[2]) > self.number:
            return None
        return int(found[2])

    @contextmanager
    def reading(self) -> Generator[asyncio.Event]:
        """Have an event that is set whenever there are changes; the reader clears it before it reads."""
        event = asyncio.Event()
        self._readers.add(event)
        try:
            yield event
        finally:
            self._readers.discard(event)

    @property
    def readers(self) -> int:
        """The number of readers."""
        return len(self._readers)

    def wake(self) -> None:
        """Wake all readers, even if nothing changed."""
        for event in self._readers:
            event.set()


TOKEN_FILE = "shared.token"
HOST = "127.0.0.1"

# A hundred thousand characters in their longest JSON form, and the fields around them.
MOST_BODY = 1_000_000
MOST_RUNS = 1_000
# The clients of one user: some windows, some terminals, each with a stream and a request.
MOST_CONNECTIONS = 64
DRAIN_S = 2.0

_NO_STORE = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_FROM_HERE = "Open the page that this server serves."
_NAMES = ("127.0.0.1", "localhost", "[::1]")


class StreamReady(Struct, frozen=True, kw_only=True):
    """Sent to a reader once it has the current state of everything."""

    resumed: bool
    """Whether it got all changes since its last event. If not, it got the runs that have not ended, and may list the
    others."""


@asynccontextmanager
async def serve_shared(
    host: SessionService, changes: Changes, *, token: Path, port: int = 0
) -> AsyncGenerator[str, None]:
    """Serve the runs of an open *host* to clients on this machine while the block lasts; yield the address.

    *changes* is what the host calls as `changed`. Clients must know the token in the file *token*, which is created if
    it does not exist. Without a *port*, a free one is used. Raises a `RemitError` if it cannot listen there, or the
    file is invalid.
    """
    with listening(HOST, port) as bound:
        secret, at = token_in(token), bound.getsockname()[1]
        service = SharedApi(host, changes, token=secret, port=at, now_ms=LoopClock().wall_ms)
        async with Server(service, bound=bound, drain_s=DRAIN_S, connections=MOST_CONNECTIONS) as server:
            yield server.address


class SharedApi:
    """The ASGI application: every request is checked first, even for unknown paths."""

    def __init__(
        self, host: SessionService, changes: Changes, *, token: str, port: int, now_ms: Callable[[], int]
    ) -> None:
        self._host = host
        self._changes = changes
        self._token = token
        self._port = port
        self._now_ms = now_ms
        self._soon = DelayedCalls()
        self.hurried = asyncio.Event()
        self._draining = False
        routes = [
            _route("/v1/shared/profiles", self._profiles),
            _route("/v1/shared/devices", self._devices),
            _route("/v1/shared/runs", self._runs),
            _route("/v1/shared/runs", self._start, "POST"),
            _route("/v1/shared/runs/{run}", self._run),
            *file_routes(host),
            _route("/v1/shared/runs/{run}/{act}", self._act, "POST"),
            _route("/v1/shared/events", self._events),
        ]
        self._app = Starlette(routes=routes, exception_handlers={HTTPException: no_such_thing})
        self._app.router.redirect_slashes = False

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            check_local(headers_of(scope), port=self._port, token=self._token)
        except RemitError as error:
            await send_fault(send, error.fault)
            return
        scope["path"] = scope["raw_path"].decode("ascii")
        await self._app(scope, receive, send)

    async def drain(self, wait_s: float) -> int:  # noqa: ARG002 - nothing here takes long
        """Release all readers; they continue after their last event once the host is back."""
        self._draining = True
        self._changes.wake()
        return 0

    # ── what is there ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _profiles(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/shared/profiles`."""
        profiles = (self._host.profiles[name] for name in sorted(self._host.profiles))
        await send_value(send, Profiles(profiles=tuple(map(profile_view, profiles))), headers=_NO_STORE)

    async def _devices(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/shared/devices`."""
        devices = [device_view(each, await self._host.offers(each.device)) for each in await self._host.devices()]
        await send_value(send, DeviceList(devices=tuple(devices)), headers=_NO_STORE)

    async def _runs(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/shared/runs`."""
        newest = self._host.runs[: -MOST_RUNS - 1 : -1]
        await send_value(
            send, SharedRunList(runs=tuple(line(self._host.displayed(each)) for each in newest)), headers=_NO_STORE
        )

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/shared/runs/{run}`."""
        await self._show(send, self._found(scope["path_params"]["run"]))

    # ── what is done ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _start(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /v1/shared/runs`."""
        begin = decode(await read_json(headers_of(scope), receive, MOST_BODY), StartRequest)
        run = await self._host.start(
            begin.profile,
            begin.device,
            begin.objective,
            mode=begin.mode,
            agent=begin.agent or "",
            by=person_of(begin),
        )
        await self._show(send, run, 201)

    async def _act(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /v1/shared/runs/{run}/{act}`."""
        run, kind = scope["path_params"]["run"], kind_of(scope["path_params"]["act"])
        act = decode(await read_optional_json(headers_of(scope), receive, MOST_BODY) or b"{}", kind)
        await self._show(send, await self._host.act(run, event_of(act), by=person_of(act)))

    async def _show(self, send: Send, run: Overlay, status: int = 200) -> None:
        await send_value(send, view(self._host.displayed(run), self._now_ms()), status, _NO_STORE)

    def _found(self, run: str) -> Overlay:
        for each in self._host.runs:
            if each.id == run:
                return each
        raise RemitError(fault(Code.NOT_FOUND, f"no run `{run[:100]}` on this device"))

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _events(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /v1/shared/events`."""
        only = _only(scope)
        if only is not None:
            self._found(only)
        if scope["method"] == "HEAD":
            await send_bytes(send, 200, b"", (*STREAM_HEADERS, *_NO_STORE))
            return
        after = self._changes.number_of(headers_of(scope).get("last-event-id", "").strip())
        with self._changes.reading() as news:
            gone = asyncio.Event()

            def leave() -> None:
                gone.set()
                news.set()

            leaving = DisconnectWatcher(receive, leave, self._soon)
            try:
                await send({"type": "http.response.start", "status": 200, "headers": [*STREAM_HEADERS, *_NO_STORE]})
                async for frames in self._told(only, after, news, gone):
                    await send({"type": "http.response.body", "body": frames, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
            finally:
                leaving.cancel()

    async def _told(
        self, only: str | None, after: int | None, news: asyncio.Event, gone: asyncio.Event
    ) -> AsyncGenerator[bytes, None]:
        """Yield the state that a reader does not have, then `StreamReady`, then changes."""
        seen = self._changes.number
        if after is None:
            known = [each for each in self._host.runs if each.id == only or (only is None and each.state not in ENDED)]
        else:
            known = [each.run for each in self._changes.since(after) if only in (None, each.run.id)]
        # Without numbers: a reader that loses the connection between them gets all of them again.
        yield b"".join(self._frame(run) for run in known) + _ready(self._changes.mark(seen), resumed=after is not None)
        while not (gone.is_set() or self._draining):
            news.clear()
            changes = [each for each in self._changes.since(seen) if only in (None, each.run.id)]
            seen = self._changes.number
            if changes:
                yield b"".join(map(self._numbered, changes))
                continue
            try:
                async with asyncio.timeout(KEEP_ALIVE_S):
                    await news.wait()
            except TimeoutError:
                yield KEEP_ALIVE

    def _numbered(self, change: RunChange) -> bytes:
        return f"id: {self._changes.mark(change.number)}\n".encode() + self._frame(change.run)

    def _frame(self, run: Overlay) -> bytes:
        return b"event: run\ndata: " + encode(view(self._host.displayed(run), self._now_ms())) + b"\n\n"


def _ready(mark: str, *, resumed: bool) -> bytes:
    return f"id: {mark}\nevent: ready\ndata: ".encode() + encode(StreamReady(resumed=resumed)) + b"\n\n"


def _only(scope: Scope) -> str | None:
    """Return the run that the query names, if it names one."""
    given = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True).get("run", [])
    if len(given) > 1:
        problem = Problem("run", "is given more than once")
        raise RemitError(fault(Code.MALFORMED_ENVELOPE, "invalid parameter `run`", problems=(problem,)))
    return given[0] if given else None


def check_local(headers: Headers, *, port: int, token: str) -> None:
    """Raise a `RemitError` unless a request uses a local host name, comes from no other origin, and holds *token*.

    A page in the user's browser can reach every port of this machine. A page whose host name resolves to this machine
    (DNS rebinding) is detected by its `Host`, a page of another site by its `Origin`; neither knows the token.
    """
    names = [f"{name}:{port}" for name in _NAMES]
    host = headers.get("host", "").lower()
    if host not in names:
        why = "this server accepts requests to local host names only"
        raise RemitError(fault(Code.PERMISSION_DENIED, why, suggestion=f"Use http://{names[0]}."))
    # Two host names are two origins, even if both lead here.
    if headers.get("origin", f"http://{host}").lower() != f"http://{host}":
        raise RemitError(fault(Code.PERMISSION_DENIED, "cross-origin requests are not allowed", suggestion=_FROM_HERE))
    if headers.get("sec-fetch-site", "none").lower() not in ("none", "same-origin"):
        raise RemitError(fault(Code.PERMISSION_DENIED, "cross-origin requests are not allowed", suggestion=_FROM_HERE))
    shown = bearer_of(headers.get("authorization", ""))
    if shown is None or not compare_digest(shown.encode(), token.encode()):
        why = "invalid or missing token; its file is readable by the owner of this server"
        raise RemitError(fault(Code.UNAUTHENTICATED, why, suggestion="Send it as `Authorization: Bearer …`."))


def _route(path: str, endpoint: Endpoint, method: str = "GET") -> Route:
    return Route(path, guarded(endpoint), methods=[method])
