"""The endpoints of the local API for runs: queries, views, actions, files and the event stream."""

import asyncio
from collections.abc import Callable, Sequence
from inspect import cleandoc
from typing import Any
from urllib.parse import parse_qs, quote, unquote

from msgspec import Struct
from msgspec.structs import asdict, replace
from starlette.routing import Route

from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit.words.file_types import OCTETS
from remit_relay.local_api.access import NO_STORE, VIA, LocalRequest, answering, local_operations
from remit_relay.local_api.changes import DeviceViews, EventStream
from remit_relay.local_api.run_commands import (
    ACTS,
    ActName,
    ReadRequest,
    StartRequest,
    event_of,
    objective_of,
    person_of,
    unknown_act,
)
from remit_relay.local_api.views import (
    DeviceList,
    EntryList,
    FileList,
    FileView,
    Profiles,
    SharedRunList,
    SharedRunView,
    SharedStatus,
    UnreadView,
    entries_of,
    file_view,
)
from remit_relay.run_files import files_of
from remit_relay.session.moves import SessionState
from remit_relay.session.profile import MAX_TOTAL
from remit_relay.session.run import Overlay, Person
from remit_server.bodies import Receive, Scope, Send, headers_of, read_body, send_bytes, send_value
from remit_server.documents.api import EVENTS, ApiOperation, Parameter
from remit_server.operations import Operation, answers, get, parameter, refuse_unknown, sends, wrong_parameter
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
    return RunQuery(
        limit=_limit(scope),
        before=parameter(scope, "before", ""),
        q=parameter(scope, "q", "").casefold(),
        profile=parameter(scope, "profile", ""),
        device=parameter(scope, "device", ""),
        states=_states(scope),
    )


def entry_query(scope: Scope, run: Overlay) -> tuple[int, int | None]:
    """Return the limit of a page of entries, and the number before which it ends; raise a `RemitError` like above."""
    before = parameter(scope, "before", "")
    return _limit(scope), entry_number(run, before, "before") if before else None


def entry_number(run: Overlay, entry: str, name: str) -> int:
    """Return the number in the id of an entry of a run, or raise a `RemitError` about the field *name*."""
    of_run, _, number = entry.rpartition(".e")
    if of_run == run.id and number.isascii() and number.isdecimal() and len(number) < 16:
        place = int(number)
        if 1 <= place <= run.entries:
            return place
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
    page: list[Overlay] = []
    for count, run in enumerate(newest, 1):
        if query.q and count % _TOGETHER == 0:
            await asyncio.sleep(0)
        if not _is_meant(run, query):
            continue
        shown = displayed(run)
        # What is not displayed must not be found either: a search could guess it letter by letter.
        if query.q and not _holds(shown, query.q):
            continue
        if len(page) == query.limit:
            return page, page[-1].id
        page.append(shown)
    return page, None


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


def _states(scope: Scope) -> frozenset[SessionState]:
    known = {str(state): state for state in SessionState}
    if not (given := parameter(scope, "state", "")):
        return frozenset(SessionState)
    for name in (names := given.split(",")):
        if name not in known:
            hint = did_you_mean(name, known) or f"; known states: {', '.join(known)}"
            raise wrong_parameter("state", f"unknown state {name[:100]!r}{hint}")
    return frozenset(known[name] for name in names)


# ── endpoints ─────────────────────────────────────────────────────────────────────────────────────────────────────────


_RUN = "/v1/shared/runs/{run}"
_LIMIT = Parameter(name="limit", kind="integer", meaning=f"The length of a page: 1 to 1,000; {PER_PAGE} without it.")
_BEFORE = Parameter(name="before", meaning="The `next` of the previous page.")
_RUNS = (
    Parameter(name="q", meaning="Only runs whose objective or entries hold this text, in any case."),
    Parameter(name="profile", meaning="Only runs of this profile."),
    Parameter(name="device", meaning="Only runs with this device, by its id."),
    Parameter(name="state", meaning="Only runs in one of these states, separated by commas."),
)
_ONLY = Parameter(name="run", meaning="Only the events of this run.")
_LAST = Parameter(name="Last-Event-ID", place="header", meaning="The last number received, to continue after it.")
_NAME = Parameter(name="name", meaning="The name of the file; the body is its content.", required=True)
_BY = Parameter(name="by", meaning="Who does it, as the record is to name them.")


def _post(path: str, **more: Any) -> ApiOperation:
    """Return an operation that changes something; it has the name, the summary and the type of its method."""
    return ApiOperation(method="POST", path=path, name="", summary="", **more)


class SharedEndpoints:
    """What is there, and what can be done."""

    def __init__(self, state: DeviceViews, stream: EventStream) -> None:
        self._state = state
        self._host = state.host
        self._stream = stream

    def operations(self) -> list[Operation]:
        """Return all operations."""
        return [*local_operations(self), *map(self._act_operation, ACTS)]

    def _act_operation(self, name: ActName) -> Operation:
        kind, _ = ACTS[name]

        async def act(request: LocalRequest) -> SharedRunView:
            by = person_of(request.body, request.via)
            run = await self._host.act(request.named("run"), event_of(name, request.body), by=by)
            return self._state.run(run)

        declared = replace(
            _post(f"{_RUN}/{name}", takes=kind, answer=SharedRunView), name=name, summary=cleandoc(kind.__doc__ or "")
        )
        return Operation(endpoint=answering(declared, act), **asdict(declared))

    def unknown_act(self) -> Route:
        """Return the route for all other actions, which answers with the list of actions."""

        async def refuse(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001 - the shape of all
            raise unknown_act(scope["path_params"]["act"])

        return Route(f"{_RUN}/{{act}}", Guarded(refuse), methods=["POST"])

    # ── what is there ─────────────────────────────────────────────────────────────────────────────────────────────────

    @answers(get("/v1/shared/status"))
    async def status(self, _: LocalRequest) -> SharedStatus:
        """This device in short: its connection, what it shares, and counts."""
        return await self._state.status()

    @answers(get("/v1/shared/profiles"))
    async def profiles(self, _: LocalRequest) -> Profiles:
        """The local agents, and what each may do."""
        return Profiles(profiles=tuple(self._state.profiles()))

    @answers(get("/v1/shared/devices"))
    async def devices(self, _: LocalRequest) -> DeviceList:
        """The known devices, their presence, and the agents that they share with this one."""
        return DeviceList(devices=tuple(await self._state.devices()))

    @answers(get("/v1/shared/unread"))
    async def unread(self, _: LocalRequest) -> UnreadView:
        """How many entries the user has not read, by device and by run."""
        return self._state.unread()

    @answers(get("/v1/shared/runs", _LIMIT, _BEFORE, *_RUNS))
    async def runs(self, request: LocalRequest) -> SharedRunList:
        """The runs in a line each, the newest first."""
        page, following = await find_runs(self._host.runs, run_query(request.scope), self._host.displayed)
        return SharedRunList(runs=tuple(map(self._state.line, page)), next=following)

    @answers(get(_RUN))
    async def run(self, request: LocalRequest) -> SharedRunView:
        """One run."""
        return self._state.run(self._find_run(request.named("run")))

    @answers(get(f"{_RUN}/entries", _LIMIT, _BEFORE))
    async def entries(self, request: LocalRequest) -> EntryList:
        """The entries of a run: messages and rejected drafts, the newest page first."""
        run = self._find_run(request.named("run"))
        limit, before = entry_query(request.scope, run)
        entries, earlier = entries_of(self._host.displayed(run), limit, before)
        return EntryList(entries=entries, next=entries[0].id if earlier else None)

    def _find_run(self, run: str) -> Overlay:
        for each in self._host.runs:
            if each.id == run:
                return each
        advice = "Use the id of a run of this device: `GET /v1/shared/runs` lists them."
        raise RemitError(fault(Code.NOT_FOUND, f"run `{run[:100]}` not found on this device", suggestion=advice))

    # ── what is done ──────────────────────────────────────────────────────────────────────────────────────────────────

    @answers(_post("/v1/shared/runs", takes=StartRequest, status=201))
    async def start(self, request: LocalRequest) -> SharedRunView:
        """Start a run."""
        begin: StartRequest = request.body
        run = await self._host.start(
            begin.profile,
            begin.device,
            objective_of(begin),
            mode=begin.mode,
            decides=begin.decides,
            agent=begin.agent or "",
            by=person_of(begin, request.via),
        )
        return self._state.run(run)

    @answers(_post(f"{_RUN}/read", takes=ReadRequest))
    async def read(self, request: LocalRequest) -> SharedRunView:
        """Note that the user has read a run up to an entry."""
        run = self._find_run(request.named("run"))
        return self._state.run(await self._state.read(run, entry_number(run, request.body.entry, "entry")))

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────────────────

    @sends(get("/v1/shared/events", _ONLY, _LAST, media=EVENTS))
    async def events(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Everything that changes, as server-sent events."""
        refuse_unknown(scope, "run")
        only = parameter(scope, "run", "") or None
        if only is not None:
            self._find_run(only)
        await self._stream.serve(scope, receive, send, only)

    # ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    @answers(get(f"{_RUN}/files"))
    async def files(self, request: LocalRequest) -> FileList:
        """The files of a run, and those that the next message will carry."""
        return _files_view(self._find_run(request.named("run")))

    @sends(_post(f"{_RUN}/files", parameters=(_NAME, _BY), answer=FileView, status=201))
    async def attach(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Add a file to the next message."""
        run, headers = self._find_run(scope["path_params"]["run"]), headers_of(scope)
        names = _query(scope).get("name", [])
        if len(names) != 1:
            raise wrong_parameter("name", "expected once, the name of the file")
        given = headers.get("content-type", "").partition(";")[0].strip().lower()
        # What programs send if they do not know the type.
        media_type = "" if given in (OCTETS, "application/x-www-form-urlencoded") else given
        data = await read_body(headers, receive, MAX_TOTAL)
        run = await self._host.files.attach(run.id, names[0], data, media_type=media_type, by=_person(scope))
        await send_value(send, file_view(run.attached[-1]), 201, NO_STORE)

    @sends(get(f"{_RUN}/files/{{file}}"))
    async def download(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """The content of a file, to be saved."""
        path = scope["path_params"]
        file, data = await self._host.files.content(self._find_run(path["run"]).id, unquote(path["file"]))
        saved = f"attachment; filename*=UTF-8''{quote(file.name, safe='')}".encode()
        await send_bytes(send, 200, data, (*_DOWNLOAD, (b"content-disposition", saved)))

    @answers(replace(_post(f"{_RUN}/files/{{file}}", parameters=(_BY,)), method="DELETE"))
    async def detach(self, request: LocalRequest) -> FileList:
        """Remove a file from the next message."""
        run, file = self._find_run(request.named("run")), unquote(request.named("file"))
        return _files_view(await self._host.files.detach(run.id, file, by=_person(request.scope)))


# A file comes from somebody else, and the page of this origin holds the rights of its user: a browser saves it, and
# neither shows nor runs it.
_DOWNLOAD = (
    (b"content-type", OCTETS.encode()),
    (b"content-security-policy", b"sandbox; default-src 'none'"),
    *NO_STORE,
)
_CLIENTS = ("api", "chat")


def _files_view(run: Overlay) -> FileList:
    attached = {each.id for each in run.attached}
    others = [each for each in files_of(run) if each.id not in attached]
    entries = (*run.timeline, *run.kept)
    received = {each for entry in entries if entry.role == "remote_agent" for each in entry.files}
    return FileList(
        attached=tuple(map(file_view, run.attached)),
        received=tuple(file_view(each) for each in others if each in received),
        sent=tuple(file_view(each) for each in others if each not in received),
    )


def _query(scope: Scope) -> dict[str, list[str]]:
    return parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)


def _person(scope: Scope) -> Person:
    """Return who sends a command, as far as the client says, and by which client."""
    query, client = _query(scope), scope[VIA]
    by, via = (query.get(name, [""])[0] for name in ("by", "via"))
    return Person(by[:256] or client, via if client == "api" and via in _CLIENTS else client)
