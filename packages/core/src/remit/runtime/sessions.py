"""The conversations of a hub: what a callee is shown of them, and their notes and state."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from remit.policy.context import check, fit, newest, notes_for, with_findings_that_fit
from remit.policy.reception import is_marked_for_another, named_by_peer, of_callee, of_user, speaker_of
from remit.policy.redaction import strike
from remit.policy.weight import is_light, is_light_request
from remit.ports.agents import Clock, ConversationReader, TokenCounter, Workspace
from remit.ports.store import MOST_NOTES, Archive, RunEpoch, SessionOwner, Store
from remit.protocol.codec import encode, text_of
from remit.protocol.envelope import ContextFilter, Handoff, Handover, Json, Message, Note, Request, Response, View
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.files import texts_of
from remit.protocol.remit import LONGEST_NAME
from remit.runtime.aside import aside
from remit.runtime.frames import Frame, Run

# A sentence or two: longer texts are documents and belong in an answer.
NOTE_LENGTH = 300
# Facts are kept for ever and read whole, so no answer, which may be a stranger's, may fill a user's memory.
MOST_NEW_FACTS = 100
FACT_LENGTH = 1_000
# A question stands at the end of a text.
_QUESTION_LENGTH = 1_000

_LAST_TURN = "turn "


class LastTurn(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the end of a turn leaves for the next one of its conversation."""

    question: str = ""
    """The question to the user, if there is one."""
    in_charge: tuple[Handover, ...] = ()
    """The agents to which the conversation was handed over, one after another."""


_read_turn = msgspec.json.Decoder(LastTurn).decode


class ViewRequest(NamedTuple):
    """A requested view of a conversation, before it is cut to fit."""

    view: View
    last_first: bool


class Sessions:
    """The conversations of one hub, as its agents see them.

    *reader* is called when a conversation is first summarized or continued, *recall_facts* to be able to restore what
    facts about a user contain.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        count: TokenCounter,
        reader: Callable[[], ConversationReader],
        recall_facts: Callable[[Run, str, Iterable[str]], Awaitable[None]],
        workspace: Workspace | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._count = count
        self._counts = False
        self._workspace = workspace
        self._reader = reader
        self._recall_facts = recall_facts

    # ── what is shown ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def show(
        self, request: Request, *, of: str, frame: Frame | None, run: Run, to: str | None, room: int
    ) -> ViewRequest | None:
        """Return the part of session *of* that *request* asks for; None if it asks for nothing.

        *to* is the callee's session, if it is not new: messages that were shown there are not shown again. *frame* is
        the caller, which pays for a model's summary. Raises a `RemitError` for an invalid filter.
        """
        wanted, known = request.context, _notes_for(request, frame, run)
        if not known and (wanted is None or wanted == ContextFilter(last_messages=0, known=wanted.known)):
            return None  # without an await: calls that begin together share what is left
        if frame is not None:
            frame.note_session_read()
        await self._learn_to_count()
        if wanted is not None and wanted.include_facts:
            known = (*await self._saved_facts(run, request.remit.user, known), *known)
        if wanted is None:
            return ViewRequest(View(known=known), last_first=False)
        if (wrong := check(wanted)) is not None:
            raise RemitError(wrong)
        if run.sealing is not None and wanted.keywords:
            # Messages hold tokens, so the keywords are redacted too.
            light, sealing = is_light(wanted.keywords), run.sealing
            keywords = (
                strike(wanted.keywords, sealing, {}) if light else await aside.run(strike, wanted.keywords, sealing, {})
            )
            wanted = replace(wanted, keywords=keywords)
        messages = [] if wanted.last_messages == 0 else await self._earlier_messages(request, wanted, of, tokens=room)
        if request.handover is not None and to is not None and messages:
            messages = await self._new_to(request, messages, to, room)
        seen: frozenset[int] = frozenset()
        if to is not None and to != of and messages:
            seen = await self._store.seen(to, [message.seq for message in messages])
        view = View(
            messages=tuple(message for message in without_findings(messages) if message.seq not in seen),
            summary=await self._reader().summary(of, frame) if wanted.include_summary else "",
            workspace=await self._described(wanted, room),
            known=known,
            seen=tuple(sorted(seen)),
        )
        return ViewRequest(view, last_first=wanted.last_messages is not None)

    async def _saved_facts(self, run: Run, user: str, known: Iterable[Note]) -> list[Note]:
        """Return the facts about a user that the notes of the conversation do not have."""
        await self._store.flush()
        facts, noted = await self._store.facts(user), {note.text for note in known}
        await self._recall_facts(run, user, facts)
        return [Note("fact", fact) for fact in facts if fact[:NOTE_LENGTH] not in noted]

    async def _new_to(self, request: Request, messages: list[Message], to: str, room: int) -> list[Message]:
        """Return those of a caller's messages that are not in the session of the agent that takes over from it.

        The turns in which that agent was in charge are in both conversations; the words of this turn are its task.
        """
        theirs = await self._store.messages(to, ContextFilter(), now_ms=self._clock.wall_ms(), tokens=room)
        known = Counter((each.role, each.text) for each in theirs)
        new: list[Message] = []
        for each in reversed(messages):
            if known[each.role, each.text]:
                known[each.role, each.text] -= 1
            elif each.delegation != request.parent:
                new.append(each)
        return new[::-1]

    async def brought(self, view: View, shown: ViewRequest | None) -> ViewRequest:
        """Return a sender's view of a conversation elsewhere, counted here, with the view of one here."""
        await self._learn_to_count()
        here = View() if shown is None else shown.view
        return await aside.run(self._brought, view, here) if not is_light(view) else self._brought(view, here)

    def _brought(self, view: View, here: View) -> ViewRequest:
        elsewhere = (each for each in view.messages if not each.seq)
        view = replace(
            view,
            messages=(*(replace(each, tokens=self._count(each.text)) for each in elsewhere), *here.messages),
            known=tuple(dict.fromkeys((*view.known, *here.known))),
        )
        return ViewRequest(view, last_first=True)

    async def shown_aside(self, request: Request, shown: ViewRequest) -> Request:
        """Return the same as `shown`, counted outside the event loop if it is large."""
        if is_light(shown.view) and is_light_request(request):
            return self.shown(request, shown)
        return await aside.run(self.shown, request, shown)

    def shown(self, request: Request, shown: ViewRequest) -> Request:
        """Return the request with as much of the view as its remit has room for."""
        room = request.remit.context_tokens
        # Counted each time: a person may have edited the task.
        task = self._tokens_of(request)
        view = fit(shown.view, task=task, room=room, count=self._count, last_first=shown.last_first)
        return replace(request, view=view)

    async def history(self, frame: Frame, wanted: ContextFilter, tokens: int) -> list[Message]:
        """Return earlier messages of a callee's own session: the newest that fit, oldest first."""
        if (wrong := check(wanted)) is not None:
            raise RemitError(wrong)
        request = frame.request
        if request.session is None or request.session == request.path:
            return []  # it has just begun
        await self._learn_to_count()
        shown = (request.view or View()).messages
        messages = await self._earlier_messages(frame.recorded or request, wanted, request.session, tokens, shown)
        if not any(each.findings for each in messages):
            return messages
        room = tokens - sum(each.tokens for each in messages)
        own = partial(with_findings_that_fit, messages, frame.card.name, room, self._count)
        messages = own() if is_light(*messages) else await aside.run(own)
        hidden = {token for each in messages for finding in each.findings for token in finding.hidden}
        if known := {token: raw for token, raw in frame.run.known.items() if token in hidden}:
            frame.hidden = {**(frame.hidden or {}), **known}
        return messages

    async def messages_of(self, frame: Frame, session: str, wanted: ContextFilter, tokens: int) -> list[Message]:
        """Return messages of a session that is not the callee's own: the newest that fit, oldest first."""
        if (wrong := check(wanted)) is not None:
            raise RemitError(wrong)
        await self._learn_to_count()
        messages = await self._earlier_messages(frame.recorded or frame.request, wanted, session, tokens)
        return without_findings(messages)

    async def _earlier_messages(
        self, request: Request, wanted: ContextFilter, session: str, tokens: int, shown: Sequence[Message] = ()
    ) -> list[Message]:
        """Return the messages that a filter selects in a session, without *request* and what it shows."""
        texts = (request.objective, text_of(request.input or ""))
        counted = map(self._count, texts) if is_light(*texts) else await aside.run(lambda: [*map(self._count, texts)])
        room = tokens + sum(counted)
        room += sum(each.tokens for each in shown)
        last = wanted.last_messages
        if last:
            wanted = replace(wanted, last_messages=last + 1 + len(shown))
        await self._store.flush()
        messages = await self._store.messages(session, wanted, now_ms=self._clock.wall_ms(), tokens=room)
        besides = {each.seq for each in shown}
        messages = [each for each in messages if each.delegation != request.path and each.seq not in besides]
        return newest(reversed(messages), last=last, tokens=tokens)

    async def _learn_to_count(self) -> None:
        """Let a tokenizer read its vocabulary in a thread: in the event loop everybody would notice the delay."""
        if not self._counts:
            await asyncio.to_thread(self._count, "tokens")
            self._counts = True

    def _tokens_of(self, request: Request) -> int:
        texts = [request.objective, *request.hints]
        if request.input is not None:
            texts.append(text_of(request.input))
        if request.handoff is not None:
            texts.append(encode(request.handoff).decode())
        texts += texts_of(request.files)
        return sum(map(self._count, texts))

    async def _described(self, wanted: ContextFilter, room: int) -> str:
        if self._workspace is None or not (wanted.include_workspace or wanted.include_contents):
            return ""
        return await asyncio.to_thread(
            self._workspace.describe,
            wanted.workspace_files,
            contents=wanted.include_contents,
            room=room,
            count=self._count,
        )

    # ── what is known ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def recall(self, run: Run) -> None:
        """Load the notes of the conversation that a run continues."""
        run.notes = (await self._store.notes(run.scope))[-MOST_NOTES:]
        kept = await self._store.get(_LAST_TURN + run.scope)
        if kept is not None:
            last = _read_turn(kept[1])
            run.open_question, run.in_charge = last.question, last.in_charge

    def notes_of_user(self, run: Run, request: Request) -> list[Note]:
        """Return what the user of a run, whose request is redacted, decides, demands, and answers.

        A peer's agent is not the user, whatever it says in the user's name. It takes long at first, because it loads
        what reads texts, so it is not called in the event loop.
        """
        by = speaker_of(request)
        notes = self._reader().notes(request.objective or text_of(request.input or ""), run.open_question)
        return [replace(note, by=by) for note in notes] if by else notes

    async def end_turn(self, run: Run, response: Response) -> None:
        """Store who is in charge of a conversation from now on, and the question to a user who was asked back."""
        answer = text_of(response.result) if response.ok and response.result is not None else ""
        question = answer[-_QUESTION_LENGTH:] if response.requires_followup or answer.rstrip().endswith("?") else ""
        in_charge = response.handover if response.ok else run.in_charge
        if (question, in_charge) != (run.open_question, run.in_charge):
            key, last = _LAST_TURN + run.scope, LastTurn(question, in_charge)
            kept = await self._store.get(key)
            # If two runs of one conversation end at once, either may have the last word.
            await self._store.cas(key, 0 if kept is None else kept[0], encode(last))

    def note(self, run: Run, notes: Iterable[Note]) -> None:
        """Store notes for all agents that are asked later in the conversation.

        A known note is stored again, as the newest, if others of its kind came after it: a limit may return to an
        earlier value. A fact that is found again is nothing new.
        """
        fresh = _not_current(list(dict.fromkeys(notes)), run.notes)
        if fresh:
            again = {(note.kind, note.text) for note in fresh}
            before = [note for note in run.notes if (note.kind, note.text) not in again]
            run.notes = [*before, *fresh][-MOST_NOTES:]  # no older ones are ever passed on
            self._store.note(run.scope, fresh, RunEpoch(run.id, run.epoch))

    def note_facts(self, run: Run, facts: Iterable[str], by: str) -> None:
        """Note what a callee found out."""
        self.note(run, [Note("fact", fact[:NOTE_LENGTH], by) for fact in facts])

    def note_handoff(self, run: Run, handoff: Handoff, caller: str) -> None:
        """Note the decisions and constraints that a caller passes on."""
        constraints = (f"{name}: {text_of(value)}" for name, value in handoff.constraints.items())
        decided = [Note("decision", text[:NOTE_LENGTH], caller) for text in handoff.decisions]
        self.note(run, [*decided, *(Note("constraint", text[:NOTE_LENGTH], caller) for text in constraints)])

    # ── what agents keep ──────────────────────────────────────────────────────────────────────────────────────────────

    async def state(self, frame: Frame) -> dict[str, Json]:
        """Return an agent's state in its conversation."""
        frame.kept = await self._load_state(frame)
        return _read_state(frame.kept[1])

    async def change(self, frame: Frame, changes: dict[str, Json], most_bytes: int) -> dict[str, Json]:
        """Store values without overwriting those that others have changed since they were read.

        After a conflict, every further change conflicts until the agent has read the current state.
        """
        frame.kept = frame.kept or await self._load_state(frame)
        revision, raw = frame.kept
        base = _read_state(raw)
        while True:
            now = _read_state(raw)
            # Compared as JSON: in Python, 1 equals true.
            if lost := sorted(name for name in changes if encode(now.get(name)) != encode(base.get(name))):
                why = f"another run of this session has changed {', '.join(lost)}"
                raise RemitError(fault(Code.STATE_CONFLICT, why))
            made = encode({name: value for name, value in (now | changes).items() if value is not None})
            if len(made) > most_bytes:
                why = f"{frame.card.name} would store {len(made)} bytes; the limit is {most_bytes}"
                less = "Store less, or a reference to the data."
                raise RemitError(fault(Code.TOO_LARGE, why, suggestion=less))
            written = await self._store.cas(_state_key(frame), revision, made)
            if written is not None:
                # Of several concurrent changes by one agent, the newest is what it knows.
                frame.kept = max(frame.kept, (written, made))
                return _read_state(made)
            revision, raw = await self._load_state(frame)

    async def _load_state(self, frame: Frame) -> tuple[int, bytes]:
        return await self._store.get(_state_key(frame)) or (0, b"{}")


def without_findings(messages: Iterable[Message]) -> list[Message]:
    """Return messages as anybody but the agent that wrote them may see them."""
    return [replace(each, findings=()) if each.findings else each for each in messages]


def memorable(facts: Sequence[str]) -> tuple[str, ...]:
    """Return the facts of one answer that are stored: the first ones, and none that is a document."""
    return tuple(fact for fact in facts if len(fact) <= FACT_LENGTH)[:MOST_NEW_FACTS]


async def resumed(request: Request, store: Store) -> Request:
    """Return a peer's request in the session that it names, if this hub began that session for the peer.

    Such a session has the id of its first run; all other sessions that a peer names are the peer's own.
    """
    if (name := named_by_peer(request)) is None:
        return request
    for known in await store.runs(run=name, limit=1):
        # The guards judge whose session it is: another user's is refused.
        if known.run == name == known.session and known.via == request.via:
            return replace(request, session=name)
    return request


async def session_of(store: Archive, name: str, user: str) -> tuple[str, SessionOwner | None]:
    """Return the session that a name stands for when *user* says it, and its owner if it has begun.

    Users choose names independently: for the second one, `support` stands for a session of their own. An id that the
    hub made is not a name: used by anybody else, it stays what it is, and the guards refuse it.
    """
    own = of_user(name, user)
    if is_marked_for_another(name, user):
        return own, await store.owner(own)
    owner = await store.owner(name)
    if own == name or len(own) > LONGEST_NAME or (owner is not None and owner.user == user):
        return name, owner
    second = await store.owner(own)
    if owner is None:  # the name may be free again after the first user was erased
        return (name, None) if second is None else (own, second)
    for first in await store.records(session=name, limit=1):
        if isinstance(first.body, Request) and first.body.path == name:
            return name, owner
    return own, second


async def session_of_callee(store: Archive, name: str, caller: Request) -> tuple[str, SessionOwner | None]:
    """Return the session that an agent means by a name, and its owner: within its own one, unless the hub made the id.

    *caller* is the request to the agent.
    """
    user, session = caller.remit.user, of_callee(caller.session or caller.path, name)
    if session != name:
        for first in await store.records(session=name, limit=1):
            if isinstance(first.body, Request) and first.body.path == name:
                session = name  # the guards judge whose it is
    session, owner = await session_of(store, session, user)
    # Agents of two users that begin it at the same time must not share it.
    return session if owner is not None else of_user(session, user), owner


def _notes_for(request: Request, caller: Frame | None, run: Run) -> tuple[Note, ...]:
    """Return the notes of a run's conversation that the callee of a request may see."""
    above = [] if caller is None else [frame.request.context for frame in caller.lineage()]
    return notes_for(run.notes, [request.context, *above])[-MOST_NOTES:] if run.notes else ()


def _not_current(notes: Sequence[Note], known: Sequence[Note]) -> list[Note]:
    """Return those of some notes that are not known, or that newer notes of their kind have replaced."""
    current: set[tuple[str, str]] = set()
    for kind in {note.kind for note in notes} if known else ():
        texts = [note.text for note in known if note.kind == kind]
        # Several that are noted together do not replace each other.
        together = len(texts) if kind == "fact" else sum(note.kind == kind for note in notes)
        current.update((kind, text) for text in texts[-together:])
    return [note for note in notes if (note.kind, note.text) not in current]


def _state_key(frame: Frame) -> str:
    return f"state {frame.run.scope} {frame.card.name}"  # agent names have no spaces, so keys are unambiguous


_read_state = msgspec.json.Decoder(dict[str, Json]).decode
