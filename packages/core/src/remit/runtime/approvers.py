"""Approvers: nobody, a list, or a person in another process."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TypeVar

from msgspec.structs import replace

from remit.policy.restoring import restore, tokens_in
from remit.policy.weight import is_light_request
from remit.ports import Approver, Decision, Inbox, Question, Store, StoreError
from remit.protocol.codec import checked, encode
from remit.protocol.envelope import Call, Json, Request
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.files import texts_of
from remit.protocol.forms import filled_fields
from remit.protocol.records import Kind, Notice
from remit.runtime.aside import aside
from remit.runtime.redactor import Redactor
from remit.runtime.schemas import misfits

log = logging.getLogger("remit")

T = TypeVar("T")

# A person takes seconds to decide; a tenth of a second more for the answer to arrive is not noticed.
POLL_S = 0.1
# While the store is away, each pause is twice the last one, up to this: an answer then arrives soon after the outage.
MOST_PAUSE_S = 2.0

# The fields of a request that a person may edit: route and remit are not theirs to widen.
EDITABLE = frozenset({"objective", "input"})
# After this many polls the question is added again, in case it is gone.
PUT_AGAIN = 50


NOBODY_ASKED = Decision(agreed=False, by="the team", reason="nobody is asked in this team")


async def deny(_: Question) -> Decision:
    """Refuse everything: the approver of a team in which nobody is asked."""
    return NOBODY_ASKED


class AllowList:
    """Approves the calls that are listed: `to`, or `from -> to`, where `*` matches anything.

    It leaves the rest to others, and all uses of tools: a rule that allows them reads their arguments.
    """

    def __init__(self, entries: Collection[str]) -> None:
        self._entries = [(entry, *_ends(entry)) for entry in entries]

    async def __call__(self, question: Question) -> Decision | None:
        entry = self.entry_for(question.request)
        return None if entry is None else Decision(agreed=True, by="the allow-list", reason=f"`{entry}` is on it")

    def entry_for(self, request: Request) -> str | None:
        """Return the entry that approves a request; None if the list leaves it to others."""
        for entry, origin, target in self._entries if request.act == "call" else ():
            if fnmatchcase(request.origin, origin) and fnmatchcase(request.target, target):
                return entry
        return None


def _ends(entry: str) -> tuple[str, str]:
    origin, arrow, target = entry.partition("->")
    return (origin.strip(), target.strip()) if arrow else ("*", entry.strip())


class InboxApprover:
    """Leaves the question in a store's inbox until someone answers it there, in this process or another.

    While the store is away, the question is kept here, and goes on once the store is back.
    """

    def __init__(self, inbox: Inbox, wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._inbox = inbox
        self._wall_ms = wall_ms

    async def __call__(self, question: Question) -> Decision:
        # A question from before a restart has less time left than a new one would.
        kept = await outlasting(lambda: self._put(question), question.id)
        async with asyncio.timeout(max(0, kept.expires_ms - self._wall_ms()) / 1_000):
            while True:
                for _ in range(PUT_AGAIN):
                    decision = await outlasting(lambda: self._inbox.decision(kept.id), kept.id)
                    if decision is not None:
                        return decision
                    await asyncio.sleep(POLL_S)
                # A hub that lost this run without knowing it may have withdrawn the question.
                await outlasting(lambda: self._inbox.put(kept), kept.id)

    async def _put(self, question: Question) -> Question:
        """Put a question into the inbox, also if its time ends meanwhile: a restart then finds that it is over."""
        putting = asyncio.ensure_future(self._inbox.put(question))
        try:
            return await asyncio.shield(putting)
        except asyncio.CancelledError:
            with suppress(Exception):  # whoever cancelled it learns of the store's error by themselves
                await putting
            raise


async def outlasting(act: Callable[[], Awaitable[T]], question: str) -> T:
    """Return the result of *act*, tried again for as long as the store is away; the caller bounds the time."""
    pause_s = POLL_S
    while True:
        try:
            return await act()
        except StoreError as error:
            if error.fault.code is not Code.STORE_UNAVAILABLE:
                raise
            if pause_s == POLL_S:
                log.warning("question %s waits for the store: %s", question, error.fault.message)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, MOST_PAUSE_S)


def first_of(approvers: Sequence[Approver]) -> Approver:
    """Return an approver that asks each in turn until one answers."""

    async def ask(question: Question) -> Decision | bool | None:
        for approver in approvers:
            if (decision := await approver(question)) is not None:
                return decision
        return None

    return ask


async def decide(inbox: Inbox, name: str, decision: Decision) -> Question:
    """Answer the pending question whose id equals, begins or ends with *name*; raise a `RemitError` if that fails.

    Return the answered question.
    """
    decision = checked(decision)
    pending = await inbox.pending()
    if all(each.id != name for each in pending) and (before := await inbox.decision(name)) is not None:
        raise _not_there(f"question {name} was answered before by {before.by}: {'yes' if before.agreed else 'no'}")
    question = find(pending, name)
    if not await answer(inbox, question, decision):
        raise _not_there(f"question {question.id} was answered, withdrawn or expired meanwhile")
    return question


async def answer(inbox: Inbox, question: Question, decision: Decision) -> bool:
    """Answer a question; False: somebody else was faster, or nobody needs the answer any more.

    Raises a `RemitError` for edits that the guard did not allow, and for a form that is not filled in.
    """
    check_edits(question, decision.edits)
    if decision.agreed:
        check_form(question, decision.edits)
    return await inbox.decide(question.id, decision)


def find(pending: Sequence[Question], name: str) -> Question:
    """Return the one question that *name* means; `last` means the only pending one."""
    if name == "last" and len(pending) == 1:
        return pending[0]
    fitting = [each for each in pending if each.id == name] or [
        # An empty name, from a shell variable that was never set, would match every id; it matches none.
        each
        for each in pending
        if name and (each.id.startswith(name) or each.id.endswith(name))
    ]
    if len(fitting) > 1:
        ids = ", ".join(each.id for each in fitting)
        raise _not_there(f"ambiguous id `{name}`: {ids}", suggestion="Type more characters.")
    if not fitting:
        raise _not_there(f"no question `{name}` is pending")
    return fitting[0]


async def reveal(store: Store, redactor: Redactor, question: Question, by: str) -> Question:
    """Return a question with the raw values that are kept for its tokens; who reads which of them is recorded first."""
    request = question.request
    summary = next((each for each in await store.runs(run=request.run, limit=1) if each.run == request.run), None)
    scope = summary.session if summary is not None else request.session or request.run
    texts = (encode(question).decode(), *texts_of(request.files))
    values = await redactor.values_of(scope, request.run, {token for text in texts for _, token in tokens_in(text)})
    if not values:
        return question
    text = f"{by} revealed {', '.join(sorted(values))} of {request.remit.user} in question {question.id}"
    notice = Notice(delegation=request.path, agent=request.target, text=text)
    store.append(Kind.NOTICE, time.time_ns() // 1_000_000, request.run, scope, notice)
    await store.flush()
    clear = restore(request, values) if is_light_request(request) else await aside.run(restore, request, values)
    return replace(question, request=clear, text=restore(question.text, values), form=restore(question.form, values))


def check_edits(question: Question, edits: dict[str, Json]) -> dict[str, Json]:
    """Return a copy of the edits; refuse edits that the guard did not allow or that do not fit a call."""
    problems = [
        Problem(field, f"may not be changed; {_allowed(question.editable)}")
        for field in edits
        if field not in question.editable
    ]
    if problems:
        raise RemitError(
            fault(Code.INPUT_VALIDATION_FAILED, "the edit is not allowed by the guard", problems=tuple(problems))
        )
    call = checked(Call(**edits))
    return {field: getattr(call, field) for field in edits}


def check_form(question: Question, edits: dict[str, Json]) -> None:
    """Raise a `RemitError` that names the fields of the question's form that are not filled in, or wrongly."""
    if question.form is None:
        return
    given = filled_fields(question.form, edits.get("input", question.request.input))
    # A token is a text, whatever it stands for; the value itself is checked where it is known.
    withheld = {_field_of(place) for place, _ in tokens_in(given)}
    problems = misfits(question.form, given)
    if problems := tuple(each for each in problems if _field_of(each.path.removeprefix("$.")) not in withheld):
        named = ", ".join(problem.path.removeprefix("$.") for problem in problems)
        why = f"the form is not filled in: {named}"
        how = "Edit `input` before you approve."
        raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, why, problems=problems, suggestion=how))


def _field_of(place: str) -> str:
    return place.split(".", 1)[0].split("[", 1)[0]


def _allowed(editable: frozenset[str]) -> str:
    return f"these may: {', '.join(sorted(editable))}" if editable else "this request can only be approved as it is"


def _not_there(message: str, suggestion: str = "See what is pending with `remit pending list`.") -> RemitError:
    return RemitError(fault(Code.INPUT_VALIDATION_FAILED, message, suggestion=suggestion))
