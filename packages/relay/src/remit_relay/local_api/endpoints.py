"""The endpoints of the local API."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct
from starlette.routing import Route

from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit_relay.local_api.access import Via
from remit_relay.local_api.public_devices import DeviceList, Profiles, SharedStatus
from remit_relay.local_api.public_runs import EntryList, SharedRunList, SharedRunView, UnreadView, entries_of
from remit_relay.local_api.routes import VIA, read_body, send_view
from remit_relay.local_api.run_commands import (
    ACTS,
    Act,
    ActName,
    ReadRequest,
    StartRequest,
    event_of,
    kind_of,
    objective_of,
    person_of,
)
from remit_relay.local_api.state import DeviceViews
from remit_relay.local_api.stream import EventStream
from remit_relay.session.moves import SessionState
from remit_relay.session.run import Overlay
from remit_server.bodies import Receive, Scope, Send
from remit_server.documents.api import EVENTS, Parameter
from remit_server.operations import Operation, parameter, refuse_unknown, wrong_parameter
from remit_server.refusals import Guarded

# ── the parameters of queries ─────────────────────────────────────────────────────────────────────────────────────────

PER_PAGE = 100
MOST_PER_PAGE = 1_000
# While texts are searched, others get their turn after this many runs.
_TOGETHER = 50


class RunQuery(Struct, frozen=True, kw_only=True):
    """Which runs are asked for."""

    limit: int = PER_PAGE
    before: str = ""
    """The run after which the page begins; empty: it begins with the newest."""
    q: str = ""
    """A text that occurs in the objective or in an entry; upper and lower case are the same."""
    profile: str = ""
    device: str = ""
    states: frozenset[SessionState] = frozenset(SessionState)


def run_query(scope: Scope) -> RunQuery:
    """Return the query of a request, or raise a `RemitError` that names the wrong parameter."""
    refuse_unknown(scope, "limit", "before", "q", "profile", "device", "state")
    return RunQuery(
        limit=_limit(scope),
        before=parameter(scope, "before", ""),
        q=parameter(scope, "q", "").casefold(),
        profile=parameter(scope, "profile", ""),
        device=parameter(scope, "device", ""),
        states=_states(parameter(scope, "state", "")),
    )


class EntryQuery(Struct, frozen=True, kw_only=True):
    """Which entries of a run are asked for."""

    limit: int = PER_PAGE
    before: int | None = None
    """Only entries with a lower number."""


def entry_query(scope: Scope, run: Overlay) -> EntryQuery:
    """Return the query of a request, or raise a `RemitError` that names the wrong parameter."""
    refuse_unknown(scope, "limit", "before")
    before = parameter(scope, "before", "")
    return EntryQuery(limit=_limit(scope), before=entry_number(run, before, "before") if before else None)


def entry_number(run: Overlay, entry: str, name: str) -> int:
    """Return the number in the id of an entry of a run, or raise a `RemitError` about the field *name*."""
    of_run, _, number = entry.rpartition(".e")
    if of_run == run.id and number.isascii() and number.isdecimal() and len(number) < 16:
        found = int(number)
        if 1 <= found <= run.entries:
            return found
    raise wrong_parameter(name, f"{entry[:100]!r} is not the id of an entry of this run")


async def find_runs(
    runs: Sequence[Overlay], query: RunQuery, displayed: Callable[[Overlay], Overlay]
) -> tuple[list[Overlay], str | None]:
    """Return a page of *runs* (oldest first) as they are displayed, newest first, and the `before` of the next page."""
    newest = runs[::-1]
    if query.before:
        place = next((place for place, run in enumerate(newest) if run.id == query.before), None)
        if place is None:
            raise wrong_parameter("before", f"no run {query.before[:100]!r} on this device")
        newest = newest[place + 1 :]
    found: list[Overlay] = []
    for count, run in enumerate(newest, 1):
        if query.q and count % _TOGETHER == 0:
            await asyncio.sleep(0)
        if not _is_meant(run, query):
            continue
        shown = displayed(run)
        # What is not displayed must not be found either: a search could guess it letter by letter.
        if query.q and not _holds(shown, query.q):
            continue
        if len(found) == query.limit:
            return found, found[-1].id
        found.append(shown)
    return found, None


def _is_meant(run: Overlay, query: RunQuery) -> bool:
    return (
        run.state in query.states
        and query.profile in ("", run.profile)
        and query.device in ("", run.device)
        and (not query.q or _holds(run, query.q))
    )


def _holds(run: Overlay, text: str) -> bool:
    if text in run.objective.casefold() or text in run.result.casefold():
        return True
    return any(text in each.text.casefold() or text in each.original.casefold() for each in run.timeline) or any(
        text in each.text.casefold() or text in each.reason.casefold() for each in run.rejected
    )


def _limit(scope: Scope) -> int:
    limit = parameter(scope, "limit", PER_PAGE)
    if not 1 <= limit <= MOST_PER_PAGE:
        raise wrong_parameter("limit", f"{limit} is not a number from 1 to {MOST_PER_PAGE}")
    return limit


def _states(given: str) -> frozenset[SessionState]:
    if not given:
        return frozenset(SessionState)
    known = {str(state): state for state in SessionState}
    names = given.split(",")
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or f"; known states: {', '.join(known)}"
            raise wrong_parameter("state", f"unknown state {name[:100]!r}{hint}")
    return frozenset(known[name] for name in names)


# ── endpoints ─────────────────────────────────────────────────────────────────────────────────────────────────────────


_RUN = "/v1/shared/runs/{run}"
_LIMIT = Parameter(name="limit", kind="integer", meaning=f"The length of a page: 1 to 1,000; {PER_PAGE} without it.")
_BEFORE = Parameter(name="before", meaning="The `next` of the previous page.")
_RUNS = (
    _LIMIT,
    _BEFORE,
    Parameter(name="q", meaning="Only runs whose objective or entries hold this text, in any case."),
    Parameter(name="profile", meaning="Only runs of this profile."),
    Parameter(name="device", meaning="Only runs with this device, by its id."),
    Parameter(name="state", meaning="Only runs in one of these states, separated by commas."),
)


class SharedEndpoints:
    """What is there, and what can be done."""

    def __init__(self, state: DeviceViews, stream: EventStream) -> None:
        self._state = state
        self._host = state.host
        self._stream = stream

    def routes(self) -> list[Operation]:
        """Return all routes."""
        get = partial(Operation, method="GET")
        post = partial(Operation, method="POST")
        only = Parameter(name="run", meaning="Only the events of this run.")
        last = Parameter(
            name="Last-Event-ID", place="header", meaning="The last number received, to continue after it."
        )
        return [
            get(
                path="/v1/shared/status",
                endpoint=self._status,
                name="status",
                summary="This device in short: its connection, what it shares, and counts.",
                answer=SharedStatus,
            ),
            get(
                path="/v1/shared/profiles",
                endpoint=self._profiles,
                name="profiles",
                summary="The local agents, and what each may do.",
                answer=Profiles,
            ),
            get(
                path="/v1/shared/devices",
                endpoint=self._devices,
                name="devices",
                summary="The known devices, their presence, and the agents that they share with this one.",
                answer=DeviceList,
            ),
            get(
                path="/v1/shared/unread",
                endpoint=self._unread,
                name="unread",
                summary="How many entries the user has not read, by device and by run.",
                answer=UnreadView,
            ),
            get(
                path="/v1/shared/runs",
                endpoint=self._runs,
                name="runs",
                summary="The runs in a line each, the newest first.",
                answer=SharedRunList,
                parameters=_RUNS,
            ),
            post(
                path="/v1/shared/runs",
                endpoint=self._start,
                name="start",
                summary="Start a run.",
                takes=StartRequest,
                answer=SharedRunView,
                status=201,
            ),
            get(path=_RUN, endpoint=self._run, name="run", summary="One run.", answer=SharedRunView),
            get(
                path=f"{_RUN}/entries",
                endpoint=self._entries,
                name="entries",
                summary="The entries of a run: messages and rejected drafts, the newest page first.",
                answer=EntryList,
                parameters=(_LIMIT, _BEFORE),
            ),
            post(
                path=f"{_RUN}/read",
                endpoint=self._read,
                name="read",
                summary="Note that the user has read a run up to an entry.",
                takes=ReadRequest,
                answer=SharedRunView,
            ),
            *(self._act_route(name, kind) for name, (kind, _) in ACTS.items()),
            get(
                path="/v1/shared/events",
                endpoint=self._events,
                name="events",
                summary="Everything that changes, as server-sent events.",
                parameters=(only, last),
                media=EVENTS,
            ),
        ]

    def _act_route(self, name: ActName, kind: type[Act]) -> Operation:
        async def act(scope: Scope, receive: Receive, send: Send) -> None:
            await self._act(kind, scope, receive, send)

        summary = (kind.__doc__ or "").strip()
        return Operation(
            method="POST",
            path=f"{_RUN}/{name}",
            endpoint=act,
            name=name,
            summary=summary,
            takes=kind,
            answer=SharedRunView,
        )

    def unknown_act(self) -> Route:
        """Return the route for all other actions, which answers with the list of actions."""

        async def refuse(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001 - the shape of all
            kind_of(scope["path_params"]["act"])

        return Route(f"{_RUN}/{{act}}", Guarded(refuse), methods=["POST"])

    # ── what is there ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _status(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/shared/status`."""
        await send_view(send, await self._state.status())

    async def _profiles(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/shared/profiles`."""
        await send_view(send, Profiles(profiles=tuple(self._state.profiles())))

    async def _devices(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/shared/devices`."""
        await send_view(send, DeviceList(devices=tuple(await self._state.devices())))

    async def _unread(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/shared/unread`."""
        await send_view(send, self._state.unread())

    async def _runs(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/shared/runs`."""
        found, following = await find_runs(self._host.runs, run_query(scope), self._host.displayed)
        await send_view(send, SharedRunList(runs=tuple(map(self._state.line, found)), next=following))

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/shared/runs/{run}`."""
        await self._show(send, self._found(scope))

    async def _entries(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/shared/runs/{run}/entries`."""
        run = self._found(scope)
        query = entry_query(scope, run)
        entries, earlier = entries_of(self._host.displayed(run), query.limit, query.before)
        await send_view(send, EntryList(entries=entries, next=entries[0].id if earlier else None))

    # ── what is done ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _start(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /v1/shared/runs`."""
        begin: StartRequest = await read_body(scope, receive, StartRequest)
        run = await self._host.start(
            begin.profile,
            begin.device,
            objective_of(begin),
            mode=begin.mode,
            decides=begin.decides,
            agent=begin.agent or "",
            by=person_of(begin, _via(scope)),
        )
        await self._show(send, run, 201)

    async def _act(self, kind: type[Act], scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /v1/shared/runs/{run}/{act}`."""
        act: Act = await read_body(scope, receive, kind)
        by = person_of(act, _via(scope))
        await self._show(send, await self._host.act(scope["path_params"]["run"], event_of(act), by=by))

    async def _read(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /v1/shared/runs/{run}/read`."""
        read: ReadRequest = await read_body(scope, receive, ReadRequest)
        run = self._found(scope)
        await self._show(send, await self._state.read(run, entry_number(run, read.entry, "entry")))

    async def _show(self, send: Send, run: Overlay, status: int = 200) -> None:
        await send_view(send, self._state.run(run), status)

    def _found(self, scope: Scope) -> Overlay:
        return self._named(scope["path_params"]["run"])

    def _named(self, run: str) -> Overlay:
        for each in self._host.runs:
            if each.id == run:
                return each
        advice = "Use the id of a run of this device: `GET /v1/shared/runs` lists them."
        raise RemitError(fault(Code.NOT_FOUND, f"run `{run[:100]}` not found on this device", suggestion=advice))

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _events(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /v1/shared/events`."""
        refuse_unknown(scope, "run")
        only = parameter(scope, "run", "") or None
        if only is not None:
            self._named(only)
        await self._stream.serve(scope, receive, send, only)


def _via(scope: Scope) -> Via:
    return scope[VIA]
