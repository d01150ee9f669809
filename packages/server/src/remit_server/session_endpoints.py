"""The endpoints of conversations, and the one that erases users."""

from collections.abc import Iterable
from typing import Literal, Protocol, runtime_checkable

from msgspec import Struct

from remit.hub.hub import Hub
from remit.policy.reception import Permission, Sender
from remit.ports import RecordFilter, SessionFilter, SessionSummary
from remit.protocol.codec import text_of
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind, Record, Refusal
from remit_server.access import visible
from remit_server.delegations import Delegations
from remit_server.documents.api import SESSION, SESSIONS, ApiOperation, PageQuery, Parameter, SessionQuery
from remit_server.documents.api_values import SessionLine, SessionList, SessionMessage, SessionView
from remit_server.operations import ApiRequest, answers

_PER_PAGE, _MOST = 50, 200
# A longer text is a document; the run has all of it.
LONGEST_TEXT = 20_000
_MESSAGE_KINDS = frozenset({Kind.STARTED, Kind.DELEGATION, Kind.RESULT, Kind.REFUSED})


class SessionEndpoints:
    """The endpoints of conversations."""

    def __init__(self, delegations: Delegations) -> None:
        self._delegations = delegations
        self._store = delegations.hub.store

    @answers(SESSIONS)
    async def sessions(self, call: ApiRequest) -> SessionList:
        query = call.query(SessionQuery)
        wanted = SessionFilter(
            user=query.get("user"),
            agent=query.get("agent"),
            text=query.get("q", ""),
            since_ms=query.get("since") or None,
            until_ms=query.get("until") or None,
            of=visible(call.sender, call.others),
        )
        limit = min(query.get("limit", _PER_PAGE), _MOST)
        if limit == 0:
            return SessionList(sessions=(), next=None)
        page = await self._store.listings.sessions(wanted, before=query.get("before") or None, limit=limit)
        return SessionList(sessions=tuple(map(_line, page.sessions)), next=page.next)

    @answers(SESSION)
    async def session(self, call: ApiRequest) -> SessionView:
        query, session = call.query(PageQuery), call.named("id")
        user, agent = await self._owner(session, call.sender, call.others)
        before, limit = query.get("before") or None, min(query.get("limit", _PER_PAGE), _MOST)
        wanted = RecordFilter(session=session, kinds=_MESSAGE_KINDS)
        records, following = await self._store.listings.records(wanted, before=before, limit=max(limit, 1))
        return SessionView(
            session=session,
            user=user,
            agent=agent,
            messages=messages_of(reversed(records)),
            next=following,
            notes=tuple(await self._store.notes(session)),
        )

    async def _owner(self, session: str, sender: Sender, others: Permission | None) -> tuple[str, str]:
        """Return the user and the agent of a conversation that a sender may see."""
        of = visible(sender, others)
        sessions = (await self._store.listings.sessions(SessionFilter(session=session, of=of), limit=1)).sessions
        if sessions:
            return sessions[0].user, sessions[0].agent
        # What agents say to each other is for readers of everything.
        begun = await self._store.records(session=session, limit=1) if others in sender.permissions else []
        owner = await self._store.owner(session) if begun else None
        if owner is None or not await self._delegations.visible_runs(sender, {begun[0].run}, others):
            raise RemitError(fault(Code.NOT_FOUND, f"no conversation `{session[:100]}` that {sender.name} may see"))
        return owner


def _line(summary: SessionSummary) -> SessionLine:
    return SessionLine(**summary._asdict())


def messages_of(records: Iterable[Record]) -> tuple[SessionMessage, ...]:
    """Return the messages that records of a conversation hold, in their order.

    A request that a person edited before it began is recorded again; only its last form is a message.
    """
    messages: dict[tuple[str, str], SessionMessage] = {}
    for record in records:
        match record.body:
            case Request() as request:
                message = _user_message(record, request)
            case Response() as response:
                message = _agent_message(record, response)
            case Refusal(response=response):
                message = _agent_message(record, response)
            case _:
                continue
        messages.pop((message.role, message.delegation), None)
        messages[message.role, message.delegation] = message
    return tuple(messages.values())


def _user_message(record: Record, request: Request) -> SessionMessage:
    given = text_of(request.input)
    text = "\n".join(part for part in (request.objective, "" if given == request.objective else given) if part)
    return _message(record, "user", request.origin, text, request.path)


def _agent_message(record: Record, response: Response) -> SessionMessage:
    why = None if response.fault is None else response.fault.outward()
    text = text_of(response.result) if response.result is not None else why.message if why else ""
    # The id of a root request is its sender's choice; the others are paths.
    path = response.id if response.id.startswith(f"{record.run}.") else record.run
    # Whoever the conversation is with has answered, in the session of the agent that handed it over.
    name = response.path[-1] if response.handover and response.path else response.target
    return _message(record, "assistant", name, text, path, response.status, why.code if why else None)


def _message(
    record: Record,
    role: Literal["user", "assistant"],
    name: str,
    text: str,
    path: str,
    status: Status | None = None,
    code: Code | None = None,
) -> SessionMessage:
    return SessionMessage(
        seq=record.seq,
        at_ms=record.at_ms,
        role=role,
        name=name,
        text=text[:LONGEST_TEXT],
        is_cut=len(text) > LONGEST_TEXT,
        run=record.run,
        delegation=path,
        status=status,
        code=code,
    )


class ErasedCounts(Protocol):
    """What a store erased."""

    @property
    def subject(self) -> str: ...

    @property
    def rows(self) -> int: ...

    @property
    def facts(self) -> int: ...

    @property
    def values(self) -> int: ...

    @property
    def refused(self) -> tuple[str, ...]: ...


@runtime_checkable
class ErasesUsers(Protocol):
    """A store that can erase users."""

    async def erase(self, user: str) -> ErasedCounts: ...


class ErasedUser(Struct, frozen=True, kw_only=True):
    """What was erased of a user."""

    subject: str
    """The digest of the user's name under which the erasure is recorded."""
    records: int
    facts: int
    values: int
    """Redacted values."""


_ERASE = ApiOperation(
    method="DELETE",
    path="/v1/users/{user}",
    name="",
    summary="",
    parameters=(Parameter(name="user", place="path", meaning="The user."),),
    needs=Permission.ERASE,
)


class UserEndpoints:
    """The endpoint for users."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    @answers(_ERASE)
    async def erase(self, call: ApiRequest) -> ErasedUser:
        """Erase a user with everything that is kept about them."""
        user = call.named("user")
        store = self._hub.store
        if not isinstance(store, ErasesUsers):
            raise RemitError(fault(Code.STORE_UNAVAILABLE, "the store of this hub cannot erase users"))
        done = await store.erase(user)
        if done.refused:
            message = f"not all of it was erased: {len(done.refused)} parts of the record do not verify"
            raise RemitError(fault(Code.STORE_UNAVAILABLE, message, suggestion="Check it with `remit audit verify`."))
        return ErasedUser(subject=done.subject, records=done.rows, facts=done.facts, values=done.values)
