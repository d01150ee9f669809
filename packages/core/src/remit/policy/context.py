"""What a callee may see of a conversation: its messages, the filter, and how much fits."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Generic, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from remit.protocol.codec import text_of
from remit.protocol.envelope import (
    PREVIEW_LENGTH,
    ContextFilter,
    Known,
    Message,
    Note,
    Request,
    Response,
    ToolFinding,
    View,
)
from remit.protocol.errors import Code, Fault, Problem, fault
from remit.protocol.problems import did_you_mean
from remit.protocol.records import Record

Count = Callable[[str], int]
"""Counts the tokens of a text."""

# A caller's system prompt is its own: a filter may name the role, but no message has it.
ROLES = ("user", "assistant", "system")


class TokenCount(Protocol):
    """Something with its token count."""

    @property
    def tokens(self) -> int: ...


C = TypeVar("C", bound=TokenCount)
T = TypeVar("T")


# ── messages of a conversation ────────────────────────────────────────────────────────────────────────────────────────


def message_of(record: Record, count: Count) -> Message | None:
    """Return the message that a record adds to a conversation; None for events inside an agent."""
    findings: tuple[ToolFinding, ...] = ()
    match record.body:
        case Request() as request:
            objective, given = request.objective, text_of(request.input)
            text = "\n".join(part for part in (objective, "" if given == objective else given) if part)
            role, name, delegation = "user", request.origin, request.path
        case Response(result=result) as response if result is not None:
            text, role, name, delegation = text_of(result), "assistant", response.target, response.id
            findings = response.findings
        case _:
            return None
    return Message(
        role=role,
        text=text,
        name=name,
        tokens=count(text),
        at_ms=record.at_ms,
        seq=record.seq,
        delegation=delegation,
        findings=findings,
    )


# ── what tools returned ───────────────────────────────────────────────────────────────────────────────────────────────


def with_findings_that_fit(messages: Sequence[Message], agent: str, room: int, count: Count) -> list[Message]:
    """Return an agent's own history with what its tools returned, the newest first, as far as *room* tokens allow.

    What does not fit as a whole is shortened to its beginning, or left out; all of others is.
    """
    shown: list[Message] = []
    for message in reversed(messages):
        kept: list[ToolFinding] = []
        for each in reversed(message.findings if message.name == agent else ()):
            for length in (len(each.result), PREVIEW_LENGTH):
                finding = each if length >= len(each.result) else replace(each, result=f"{each.result[:length]}{_CUT}")
                if (tokens := count(text_of(finding.arguments)) + count(finding.result)) <= room:
                    room -= tokens
                    kept.append(finding)
                    break
        shown.append(replace(message, findings=tuple(reversed(kept))) if message.findings else message)
    return shown[::-1]


class RecordedMessages(NamedTuple):
    """The messages that records add to a conversation."""

    messages: list[Message]
    replaced: set[int]
    """Numbers of messages that were in it before and no longer are."""


def messages_from_records(
    records: Iterable[Record],
    *,
    original: Callable[[int], Record | None],
    count: Count,
    last_forms: Mapping[str, int] | None = None,
) -> RecordedMessages:
    """Return what *records* of a session, oldest first, add to its conversation, each message once.

    What a request shows its callee stands before it; *original* finds the record of such a message. A request that was
    recorded again, as it finally began, replaces its first form: *last_forms* maps each delegation to the message of
    its last form.
    """
    messages: dict[int, Message] = {}
    replaced: set[int] = set()
    forms = dict(last_forms or {})
    for record in records:
        request = record.body
        if isinstance(request, Request):
            for shown in request.view.messages if request.view else ():
                source = None if shown.seq in messages else original(shown.seq)
                # It was counted when it was said.
                message = None if source is None else message_of(source, lambda _, tokens=shown.tokens: tokens)
                if message is not None:
                    messages[message.seq] = message
            if request.path in forms:
                replaced.add(forms[request.path])
                messages.pop(forms[request.path], None)
            forms[request.path] = record.seq
        message = message_of(record, count)
        if message is not None:
            messages[message.seq] = message
    return RecordedMessages(list(messages.values()), replaced)


# ── the filter ────────────────────────────────────────────────────────────────────────────────────────────────────────


def check(wanted: ContextFilter) -> Fault | None:
    """Return what is wrong with a filter; None if it is valid."""
    unknown = sorted((wanted.roles or frozenset()).difference(ROLES))
    problems = tuple(Problem("context.roles", _objection(role)) for role in unknown)
    return fault(Code.INPUT_VALIDATION_FAILED, problems[0].message, problems=problems) if problems else None


def _objection(role: str) -> str:
    if role == "tool":
        return "tool messages are never passed on: a callee sees neither its caller's tool calls nor their results"
    hint = did_you_mean(role, ROLES) or f"; known roles: {', '.join(ROLES)}"
    return f"there is no role `{role}`{hint}"


def reads_conversation(wanted: ContextFilter) -> bool:
    """Return whether a filter names something that only a conversation can have."""
    chooses = (wanted.roles, wanted.keywords, wanted.max_age_seconds)
    return wanted.include_summary or bool(wanted.last_messages) or any(each is not None for each in chooses)


def matches(message: Message, wanted: ContextFilter, now_ms: int) -> bool:
    """Return whether a message is new enough, has a wanted role, and contains one of the keywords, ignoring case."""
    if wanted.max_age_seconds is not None and message.at_ms <= now_ms - wanted.max_age_seconds * 1_000:
        return False
    if wanted.roles is not None and message.role not in wanted.roles:
        return False
    if wanted.keywords is None:
        return True
    text = message.text.casefold()
    return any(keyword.casefold() in text for keyword in wanted.keywords)


def newest(backwards: Iterable[C], *, last: int | None, tokens: int) -> list[C]:
    """Return, oldest first, as many of the newest as are wanted and fit; no more are examined than necessary."""
    kept: list[C] = []
    for each in islice(backwards, last):
        tokens -= each.tokens
        if tokens < 0:
            break
        kept.append(each)
    kept.reverse()
    return kept


def select(messages: Iterable[Message], wanted: ContextFilter, *, now_ms: int, tokens: int) -> list[Message]:
    """Return the *messages*, oldest first, that a filter selects: the newest that fit into *tokens*, oldest first."""
    passed = [message for message in messages if matches(message, wanted, now_ms)]
    return newest(reversed(passed), last=wanted.last_messages, tokens=tokens)


# ── notes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

PASSED_NOTES: Mapping[Known, frozenset[str]] = {
    "none": frozenset(),
    "decisions": frozenset({"decision", "constraint"}),
    "all": frozenset({"fact", "decision", "constraint", "answer"}),
}
"""The kinds of notes that each setting passes on."""


def notes_for(notes: Iterable[Note], callers: Sequence[ContextFilter | None]) -> tuple[Note, ...]:
    """Return the notes of a conversation that a callee may see.

    *callers* are the filters of its own request and of those above it, the user's last. Each can only narrow what the
    one above allowed. An agent without a filter passes on none; the agent that the user talks to has all, unless the
    user says otherwise.
    """
    *delegated, nearest = callers
    passed = _passed(nearest, "all")
    for each in delegated:
        passed &= _passed(each, "none")
    return tuple(note for note in notes if note.kind in passed)


def _passed(wanted: ContextFilter | None, default: Known) -> frozenset[str]:
    return PASSED_NOTES[wanted.known or default] if wanted is not None else PASSED_NOTES[default]


# ── the token limit ───────────────────────────────────────────────────────────────────────────────────────────────────


def fit(view: View, *, task: int, room: int, count: Count, last_first: bool) -> View:
    """Return as much of a view as fits into *room* tokens, of which the task itself takes *task*.

    Notes come first, up to a quarter of what the task leaves. With *last_first* the messages take what they need, and
    summary and workspace are trimmed to the rest; otherwise those two may keep half, and more if the messages do not
    need it. Of notes and messages the newest stay.
    """
    left = room - task
    if left < 0:
        return replace(view, messages=(), summary="", workspace="", known=(), tokens=task)
    known = newest([_Priced(note, count(note.text)) for note in reversed(view.known)], last=None, tokens=left // 4)
    rest = left - _total(known)
    messages = newest(reversed(view.messages), last=None, tokens=rest) if last_first else list(view.messages)
    most = max(rest - _total(messages), 0 if last_first else left // 2)
    summary = _trim(view.summary, most, count)
    workspace = _trim(view.workspace, most - summary.tokens, count)
    rest -= summary.tokens + workspace.tokens
    messages = newest(reversed(messages), last=None, tokens=rest)
    return replace(
        view,
        messages=tuple(messages),
        summary=summary.value,
        workspace=workspace.value,
        known=tuple(note.value for note in known),
        tokens=room - rest + _total(messages),
    )


class _Priced(NamedTuple, Generic[T]):
    """A text, or a value with one, and its token count."""

    value: T
    tokens: int


def _total(counted: Iterable[TokenCount]) -> int:
    return sum(each.tokens for each in counted)


def _trim(text: str, room: int, count: Count) -> _Priced[str]:
    """Return as much of the beginning of a text as fits into *room* tokens."""
    if not text:
        return _Priced("", 0)
    if (tokens := count(text)) <= room:
        return _Priced(text, tokens)
    fits, fails = 0, len(text)
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if count(text[:middle] + _CUT) <= room:
            fits = middle
        else:
            fails = middle
    while fits:
        end = _end(text, fits)
        piece = text[:end].rstrip() + _CUT
        # A shorter text does not always have fewer tokens.
        if (tokens := count(piece)) <= room:
            return _Priced(piece, tokens)
        fits = end - 1
    return _Priced("", 0)


_CUT = "…"


def _end(text: str, most: int) -> int:
    """Return where to cut a text to at most *most* characters: at a line or word end, if one is near enough."""
    # Giving up half of what fits is too much: some texts are one line, and some languages have no spaces.
    for end in "\n", " ":
        if (at := text.rfind(end, most // 2 + 1, most + 1)) > 0:
            return at
    return most
