"""The stored history of a conversation: messages, calls and costs."""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from remit.protocol.envelope import VERSION, ContextFilter, Message, Request, Response, Usage
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Record
from remit.runtime.ports import Store
from remit.runtime.redactor import Redactor
from remit.runtime.run_tree import Tree
from remit.runtime.sessions import session_of
from remit_cli.show.report import delegation
from remit_cli.show.screen import now_ms
from remit_server.documents.runs import DelegationLine

# As many as anybody would read again; the limits of a model do not matter here.
_TOKENS = 10_000_000


class ConversationUsage(NamedTuple):
    """The usage of all requests in a conversation so far."""

    requests: int
    usage: Usage
    duration_ms: int


class ConversationHistory:
    """One session of a store, as its user may see it."""

    def __init__(self, store: Store, session: str, user: str, agent: str, key: bytes | None) -> None:
        self._store = store
        self._session = session
        self._user = user
        self._agent = agent
        self._redactor = Redactor(None, key)

    async def check(self) -> None:
        """Find the user's session of this name; raise a `RemitError` if it is somebody else's or another agent's."""
        name = self._session
        self._session, owner = await session_of(self._store, name, self._user)
        if owner is None or owner == (self._user, self._agent):
            return
        # Another user's conversation reveals not even its agent.
        whose = f"with {owner.agent}, not with {self._agent}" if owner.user == self._user else "of another user"
        other = f"`remit chat {owner.agent}` continues it" if owner.user == self._user else "--user sets the user"
        code = Code.PERMISSION_DENIED if owner.user == self._user else Code.USER_MISMATCH
        raise RemitError(
            fault(
                code,
                f"session {name} belongs to a conversation {whose}",
                suggestion=f"Leave out --session to start a new one; {other}.",
            )
        )

    async def messages(self, last: int) -> list[Message]:
        """Return the last messages, oldest first, with their original values as far as these are still stored."""
        wanted = ContextFilter(last_messages=last)
        found = await self._store.messages(self._session, wanted, now_ms=now_ms(), tokens=_TOKENS)
        texts = await self._as_typed([message.text for message in found])
        return [replace(message, text=text) for message, text in zip(found, texts, strict=True)]

    async def calls(self) -> list[DelegationLine]:
        """Return the calls of sub-agents, oldest first."""
        found: list[DelegationLine] = []
        for run in await self._runs():
            tree = Tree()
            async for record in self._records(run=run):
                tree.feed(record)
            found += [delegation(node, now_ms()) for node in tree.nodes.values() if node.parent is not None]
        return found

    async def spent(self) -> ConversationUsage:
        """Return the usage so far."""
        requests, usage, duration_ms = set[str](), Usage(), 0
        async for record in self._records(session=self._session):
            match record.body:
                case Request(parent=None) as request:
                    requests.add(request.id)
                case Response() as response if response.id in requests:
                    usage += response.usage
                    duration_ms += response.duration_ms
                case _:
                    pass
        return ConversationUsage(len(requests), usage, duration_ms)

    async def _runs(self) -> Sequence[str]:
        return list(dict.fromkeys([record.run async for record in self._records(session=self._session)]))

    async def _records(self, *, run: str | None = None, session: str | None = None) -> AsyncIterator[Record]:
        after = 0
        while page := await self._store.records(run=run, session=session, after=after):
            for record in page:
                yield record
            after = page[-1].seq

    async def _as_typed(self, texts: list[str]) -> list[str]:
        """Return texts with the original values that came from this user."""
        self._redactor.open(self._store)
        whole = Response(
            version=VERSION,
            id=self._session,
            target=self._agent,
            status=Status.SUCCESS,
            session=self._session,
            result=texts,
        )
        return (await self._redactor.for_user(self._session, whole)).result
