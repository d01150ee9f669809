"""Conversations, state, notes and facts, as an agent uses them through its brief."""

from collections.abc import Iterator

from msgspec.structs import replace

from remit.policy.reception import here, peer_of
from remit.policy.redaction import strike
from remit.policy.weight import is_light
from remit.protocol.codec import checked
from remit.protocol.envelope import ContextFilter, Json, Message, Note, Request, Response
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.records import Record
from remit.runtime.aside import aside
from remit.runtime.brief_rules import MAX_PROGRESS_READ, refuse_if_stopped, revealed
from remit.runtime.context import RuntimeContext
from remit.runtime.frames import Frame
from remit.runtime.sessions import NOTE_LENGTH, resumed, session_of


class ConversationAccess:
    """Reads and stores conversations, state, notes and facts for one delegation's agent."""

    __slots__ = ("_frame", "_parts")

    def __init__(self, parts: RuntimeContext, frame: Frame) -> None:
        self._parts = parts
        self._frame = frame

    async def state(self) -> dict[str, Json]:
        self._frame.note_session_read()
        self._reads_more()
        return revealed(self._frame, await self._parts.sessions.state(self._frame))

    async def change(self, changes: dict[str, Json]) -> dict[str, Json]:
        refuse_if_stopped(self._frame)
        self._frame.note_session_read()  # the result shows the current state
        frame, parts = self._frame, self._parts
        if not is_light(changes):
            return await self._change_much(changes)
        found: dict[str, str | int] = {}
        most = parts.limits.max_result_bytes
        changes = self._keepable(changes)
        if frame.run.sealing is not None:
            changes = strike(changes, frame.run.sealing, found)
        if found:
            parts.redactor.keep(frame.run, found, of_user=True)
        return revealed(self._frame, await parts.sessions.change(frame, changes, most))

    async def _change_much(self, changes: dict[str, Json]) -> dict[str, Json]:
        """Store changes that are too large to redact in the event loop."""
        frame, parts, run = self._frame, self._parts, self._frame.run
        found: dict[str, str | int] = {}
        changes = await aside.run(self._keepable, changes)
        if run.sealing is not None:
            changes = await aside.run(strike, changes, run.sealing, found)
        if found:
            taken = await aside.run(parts.redactor.take, run.scope, found, found, of_user=True)
            parts.redactor.keep_taken(run, found, taken, of_user=True)
        kept = await parts.sessions.change(frame, changes, parts.limits.max_result_bytes)
        return await aside.run(revealed, frame, kept)

    def _keepable(self, changes: dict[str, Json]) -> dict[str, Json]:
        frame = self._frame
        try:
            return checked(changes, max_bytes=self._parts.limits.max_result_bytes)
        except RemitError as error:
            wrong = error.fault
            code = wrong.code if wrong.code is Code.TOO_LARGE else Code.INPUT_VALIDATION_FAILED
            problems = tuple(_unkeepable(changes))
            names = ", ".join(problem.path for problem in problems)
            why = f"{frame.card.name} cannot keep {names}" if names else f"{frame.card.name}: {wrong.message}"
            raise RemitError(fault(code, why, problems=problems)) from error

    async def conversation(self) -> list[Record]:
        self._frame.note_session_read()
        request, store = self._frame.request, self._parts.store
        await store.flush()
        records: list[Record] = []
        while page := await store.records(session=request.session, after=records[-1].seq if records else 0):
            records += page
        return [
            record for record in records if isinstance(record.body, Request | Response) and record.body.id != request.id
        ]

    async def history(self, wanted: ContextFilter, tokens: int, of: str | None) -> list[Message]:
        self._frame.note_session_read()
        if of is None:
            return await self._parts.sessions.history(self._frame, wanted, tokens)
        self._reads_more()
        return await _referred(self._parts, self._frame, of, wanted, tokens)

    def note(self, note: Note) -> None:
        refuse_if_stopped(self._frame)
        run, parts = self._frame.run, self._parts
        found: dict[str, str | int] = {}
        # Redacted before it is cut, as with progress.
        note = checked(Note(note.kind, note.text[:MAX_PROGRESS_READ]))
        if note.kind == "answer":
            raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, "only the hub notes the user's answers"))
        if run.sealing is not None:
            note = strike(note, run.sealing, found)
        if found:
            parts.redactor.keep(run, found, of_user=True)
        parts.sessions.note(run, (Note(note.kind, note.text[:NOTE_LENGTH], self._frame.card.name),))

    async def facts(self) -> tuple[str, ...]:
        parts, user = self._parts, self._frame.request.remit.user
        self._reads_more(of_user=True)
        await parts.store.flush()
        facts = await parts.store.facts(user)
        # Their tokens come from other conversations; from here on they can be restored for the user in this one.
        await parts.redactor.recall_facts(self._frame.run, user, facts)
        return revealed(self._frame, facts)

    def _reads_more(self, *, of_user: bool = False) -> None:
        """Note that an agent reads data beyond its request: its answer and those above it are not cached.

        Data *of_user* is the same for all requests of one user.
        """
        for frame in self._frame.lineage():
            if frame.lookup is not None and (frame.lookup.public or not of_user):
                frame.lookup.own = True


def _unkeepable(changes: dict[str, Json]) -> Iterator[Problem]:
    """Yield what is wrong with each value that cannot be stored."""
    for name, value in changes.items():
        try:
            checked({name: value})
        except RemitError as error:
            yield from (Problem(name, problem.message) for problem in error.fault.problems)


async def _referred(
    parts: RuntimeContext, frame: Frame, reference: str, wanted: ContextFilter, tokens: int
) -> list[Message]:
    """Return the messages of a conversation that a callee was given a reference to (`handoff.history`).

    A reference is a claim. It opens only what the caller could have shown: its own conversation, one with an agent that
    it asked itself, or one that it was given a reference to. A user may name any of their own conversations, and a peer
    any of its own. All of them belong to the user of the request. Any other reference raises a `RemitError`.
    """
    name, user = frame.card.name, frame.request.remit.user
    if not _is_given(frame, reference):
        raise RemitError(
            fault(
                Code.PERMISSION_DENIED,
                f"{name} was given no reference to the conversation `{reference[:100]}`",
                suggestion="Read `brief.handoff.history`; a caller can give its own session, or one of its callees'.",
            )
        )
    session = await _named_here(parts, frame, reference)
    await parts.store.flush()
    named, (session, owner) = session, await session_of(parts.store, session, user)
    owner = owner or await parts.store.owner(named)
    if owner is None:
        why = f"the conversation `{reference[:100]}` is not stored here"
        raise RemitError(fault(Code.NOT_FOUND, why, suggestion=""))
    if owner.user != user:
        why = f"User ID mismatch - security violation: the conversation `{reference[:100]}` is another user's"
        raise RemitError(fault(Code.USER_MISMATCH, why))
    return await parts.sessions.said_in(frame, session, wanted, tokens)


def _is_given(frame: Frame, reference: str) -> bool:
    """Return whether a callee was given a reference by a caller that could have shown that conversation."""
    handoff, caller = frame.request.handoff, frame.parent
    if handoff is None or handoff.history != reference:
        return False
    if caller is None:
        return True
    own = caller.request.session or caller.path
    return reference == own or reference.startswith(f"{caller.path}.") or _is_given(caller, reference)


async def _named_here(parts: RuntimeContext, frame: Frame, reference: str) -> str:
    """Return this hub's name of the session: a reference from a peer names one of the peer's sessions."""
    root = frame.run.request
    peer = peer_of(root)
    if peer is None or root.handoff is None or root.handoff.history != reference:
        return reference
    asked = replace(root, session=here(reference, peer))
    return (await resumed(asked, parts.store)).session or reference
