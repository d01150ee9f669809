"""The endpoints of the local API."""

from functools import partial

from starlette.routing import Route

from remit.protocol.errors import Code, RemitError, fault
from remit.relay.session.run import Overlay
from remit.server.bodies import Receive, Scope, Send
from remit.server.parameters import parameter, refuse_unknown
from remit.server.public_devices import DeviceList, Profiles, SharedStatus
from remit.server.public_runs import EntryList, SharedRunList, SharedRunView, UnreadView, entries_of
from remit.server.refusals import guarded
from remit.server.run_commands import (
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
from remit.server.shared_access import Via
from remit.server.shared_queries import PER_PAGE, entry_number, entry_query, find_runs, run_query
from remit.server.shared_routes import VIA, QueryParameter, SharedRoute, read_body, send_view
from remit.server.shared_state import DeviceViews
from remit.server.shared_stream import EventStream

_RUN = "/v1/shared/runs/{run}"
_LIMIT = QueryParameter(
    name="limit", kind="integer", meaning=f"The length of a page: 1 to 1,000; {PER_PAGE} without it."
)
_BEFORE = QueryParameter(name="before", meaning="The `next` of the previous page.")
_RUNS = (
    _LIMIT,
    _BEFORE,
    QueryParameter(name="q", meaning="Only runs whose objective or entries hold this text, in any case."),
    QueryParameter(name="profile", meaning="Only runs of this profile."),
    QueryParameter(name="device", meaning="Only runs with this device, by its id."),
    QueryParameter(name="state", meaning="Only runs in one of these states, separated by commas."),
)


class SharedEndpoints:
    """What is there, and what can be done."""

    def __init__(self, state: DeviceViews, stream: EventStream) -> None:
        self._state = state
        self._host = state.host
        self._stream = stream

    def routes(self) -> list[SharedRoute]:
        """Return all routes."""
        get = partial(SharedRoute, method="GET")
        post = partial(SharedRoute, method="POST")
        only = QueryParameter(name="run", meaning="Only the events of this run.")
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
                parameters=(only,),
                stream=True,
            ),
        ]

    def _act_route(self, name: ActName, kind: type[Act]) -> SharedRoute:
        async def act(scope: Scope, receive: Receive, send: Send) -> None:
            await self._act(kind, scope, receive, send)

        summary = (kind.__doc__ or "").strip()
        return SharedRoute(
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

        return Route(f"{_RUN}/{{act}}", guarded(refuse), methods=["POST"])

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
