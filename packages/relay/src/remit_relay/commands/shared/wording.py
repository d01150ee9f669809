"""Formats a run of two agents as terminal-safe lines, and as JSON documents without keys, tokens or encrypted text."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal
from unicodedata import east_asian_width

from rich.cells import cell_len

from remit.protocol.errors import Code
from remit.words.terminal import one_line, several_lines
from remit_cli.show.screen import clock_time, cut, spoken
from remit_relay.bridge.ports import Mode
from remit_relay.local_api.views import DeliveryView, EntryView, FileView, QuestionView, SharedRunView, shown_as
from remit_relay.session.moves import Label, SessionState
from remit_relay.session.run import DeliveryState
from remit_server.documents.shared import SharedDelivery, SharedDraft, SharedRun, SharedState, SharedTurn

Connection = Literal["connecting", "connected", "silent", "waiting", "ended"]

SPEAKERS = {"local_agent": "Local agent", "remote_agent": "Remote agent", "user": "You"}
COLOURS = {"local_agent": "cyan", "remote_agent": "magenta", "user": "green"}
LABELS: dict[Label | Literal["rejected"], str] = {
    "auto_sent": "auto-sent",
    "approved": "approved",
    "edited": "edited",
    "yours": "yours",
    "rejected": "rejected",
}
MODES: dict[Mode, str] = {
    "manual": "you review every draft before it is sent",
    "semi_auto": "you review a draft if a rule requires it",
    "full_auto": "drafts are sent without review",
}
CONNECTIONS: dict[Connection, str] = {
    "connecting": "connecting",
    "connected": "connected",
    "silent": "the gateway does not answer",
    "waiting": "no connection, retrying",
    "ended": "disconnected",
}
DELIVERIES: dict[DeliveryState, str] = {
    "waiting": "sent",
    "taken": "taken by the gateway",
    "delivered": "delivered",
    "read": "read",
    "answered": "answered",
    "failed": "not delivered",
}
KEYS = "a approve · e edit · r WHY reject · /help"
_KEYS_AND_CONTROLS = "a approve · e edit · r WHY reject · /pause · /take over · /stop · /help"

# The footer shows as much of a draft as leaves the messages above readable; /show shows all of it.
_SHARE = 3
_FEWEST_ROWS = 2
# The minimum that is useful: which draft, one line of it, and how much more there is.
_FEWEST_ASKED = 3
# A longer objective is cut in the footer; /objective shows all of it.
_MOST_OBJECTIVE = 3
# In a window that is too low, the input line and one line of messages stay visible.
_SPARED = 2
# Makes some terminals show the character before it as an emoji, which takes one more cell.
_EMOJI = "\ufe0f"
# Most answers have arrived by the first time; after the second, the user wonders whether one will come at all.
_SHOWN_MS, _LONG_MS = 5_000, 30_000


# ── above the footer: messages as they arrive ─────────────────────────────────────────────────────────────────────────


def heading(run: SharedRunView, device: str, *, typed: bool = True, pauses: bool = True) -> Iterator[str]:
    """Yield the heading of a chat; *typed* says whether there is keyboard input, *pauses* whether leaving pauses."""
    agent = f" ({one_line(run.agent)})" if run.agent else ""
    yield f"{one_line(run.profile)} works with {one_line(device)}{agent}: run {run.id}"
    yield f"Objective: {one_line(run.objective)}"
    keys = "/help lists commands, Ctrl-C pauses." if typed else "Ctrl-C pauses it and exits."
    if typed and not pauses:
        keys = "/help lists commands, Ctrl-C pauses, /quit leaves the run running."
    yield f"Mode {run.mode}: {MODES[run.mode]}. {keys}"


def entry_lines(entry: EntryView) -> Iterator[str]:
    """Yield a message with its speaker and its approval."""
    label = f", {LABELS[entry.label]}" if entry.label else ""
    turn = f"turn {entry.turn}" if entry.turn else "before the first turn"
    yield f"{clock_time(entry.at_ms)}  {SPEAKERS[entry.role]} ({turn}{label})"
    yield from text_lines(entry.text)
    yield from (f"    {file_line(each)}" for each in entry.files)


def text_lines(text: str) -> Iterator[str]:
    """Yield the lines of a text that somebody wrote, indented."""
    yield from (f"    {line}" for line in several_lines(text).splitlines() or [""])


def file_line(file: FileView) -> str:
    """Return a file in one line."""
    if file.refused:
        return f"File not taken: {one_line(file.refused)}"
    return f"File {one_line(file.name)} ({one_line(file.media_type)}, {file.size:,} bytes)"


def draft_lines(run: SharedRunView) -> Iterator[str]:
    """Yield the whole pending draft and the reasons for its review."""
    assert run.draft is not None, "asked only of a run with a draft"
    yield f"Draft for turn {run.turn + 1}, not sent yet:"
    yield from text_lines(run.draft.text)
    yield from (f"    With it: {file_line(each)}" for each in run.attached)
    yield from why_lines(run)


def why_lines(run: SharedRunView) -> Iterator[str]:
    """Yield each rule that requires a review, with its reason."""
    for review in run.draft.reviews if run.draft else ():
        yield f"  {one_line(review.rule)}: {one_line(review.why)}"


def ending(run: SharedRunView) -> Iterator[str]:
    """Yield the outcome of a run; a reached limit is shown as a banner."""
    if run.banner:
        rule = "═" * min(72, max(20, len(run.banner)))
        yield from (rule, one_line(run.banner), rule)
    elif run.state is SessionState.COMPLETED:
        yield "The objective is met."
    else:
        yield "Stopped."
    if run.result:
        yield from (f"    {line}" for line in several_lines(run.result).splitlines())
    if run.draft is not None:
        yield "A draft was left unsent:"
        yield from (f"    {line}" for line in several_lines(run.draft.text).splitlines())
    yield f"{meters(run)}."


def trouble(run: SharedRunView, device: str = "", *, typed: bool = True) -> Iterator[str]:
    """Yield the failure and the possible commands; *device* is the local name of the other device."""
    why = one_line(run.failure.replace(run.device, device) if device else run.failure)
    yield f"Stopped by an error: {why.removesuffix('.') or 'something failed'}."
    if typed:
        unclear = not run.agent and run.failure.startswith(Code.AGENT_NOT_FOUND)
        again = "/resume AGENT continues with that agent" if unclear else "/resume retries"
        if run.decides == "person":
            again = "/resume lets you write again, /hand back and then /resume lets your agent write"
        else:
            again += ", /take over and then /resume lets you write"
        yield f"→ {again}, /stop ends it."


def writer(run: SharedRunView) -> str:
    """Return who writes the next message, and when."""
    stands = run.state in {SessionState.PAUSED, SessionState.ERROR}
    if run.decides == "person":
        when = "/resume first; then each line" if stands else "each line"
        return f"You write now: {when} that you type is sent. /hand back lets your agent write."
    return "Your agent writes again, once you /resume." if stands else "Your agent writes again."


def permission_lines(question: QuestionView) -> Iterator[str]:
    """Yield a permission request of the local agent and its possible answers."""
    kind = f" ({one_line(question.kind, 40)})" if question.kind else ""
    yield f"Your agent asks for permission{kind}: {one_line(question.title, 300)}"
    if question.details:
        # The whole text of the agent: nobody should approve something that they cannot see.
        yield f"    {one_line(question.details, 2_000)}"
    yield permission_keys(question)


def permission_keys(question: QuestionView) -> str:
    """Return the possible answers."""
    choices = [f"{number} {one_line(each.name, 60)}" for number, each in enumerate(question.choices, 1)]
    return " · ".join([*choices, "n no"])


# ── the footer ────────────────────────────────────────────────────────────────────────────────────────────────────────


def footer(
    run: SharedRunView,
    *,
    connection: Connection,
    question: QuestionView | None,
    now_ms: int,
    width: int,
    height: int,
    device: str = "",
) -> list[str]:
    """Return the footer lines: the objective, the pending question, and the progress.

    In a window that is too low the draft is shortened, then the objective is left out, and only the commands for the
    draft are listed.
    """
    status, meter = f"{_waiting(run, connection, now_ms)} · {run.mode} · {CONNECTIONS[connection]}", meters(run)
    both = f"{status} · {meter}"
    below = [both] if cells(both) <= width else [*folded(status, width), *folded(meter, width)]
    keys = folded(able(run), width) if question is None and able(run) else []
    above = _titled(f"Objective: {one_line(run.objective)}", width, min(_MOST_OBJECTIVE, max(1, height // 10)))
    if height - _SPARED - len((*above, *keys, *below)) < _FEWEST_ASKED:
        above, below = [], [cut(both, width)]
        keys = folded(KEYS, width) if able(run) == _KEYS_AND_CONTROLS and keys else keys
    room = max(_FEWEST_ASKED, height - _SPARED - len((*above, *keys, *below)))
    if question is not None:
        middle = [part for line in permission_lines(question) for part in folded(line, width)]
        if (hidden := len(middle) - room + 1) > 1:
            rest = cut(f"… {hidden} more lines: enlarge the window to see them", width)
            middle = [*middle[: room - 2], rest, middle[-1]]
    elif run.state is SessionState.READY_TO_SEND and run.draft is not None:
        # What the objective and the commands take beyond a line each is taken from the draft.
        rows = height // _SHARE - max(0, len(above) - 1) - max(0, len(keys) - 1)
        middle = _draft(run, width, room, max(_FEWEST_ROWS, rows))
    elif run.state is SessionState.ERROR:
        why, todo = (folded(line, width) for line in trouble(run, device))
        middle = [*why[: max(1, min(height // _SHARE, room - len(todo)))], *todo]
    elif connection == "connected" and _waited_ms(run, now_ms) >= _LONG_MS and not _has_arrived(run):
        middle = folded(
            "Its device may be offline, or may not allow this one. The message waits at the gateway.", width
        )
    else:
        middle = []
    return [*above, *middle[:room], *keys, *below]


def able(run: SharedRunView) -> str:
    """Return the commands that are possible now; nothing if the pending question already lists them."""
    other = "/hand back" if run.decides == "person" else "/take over"
    match run.state:
        case SessionState.READY_TO_SEND if run.draft is not None:
            return _KEYS_AND_CONTROLS
        case SessionState.ERROR | SessionState.COMPLETED | SessionState.STOPPED:
            return ""
        case SessionState.PAUSED:
            return f"/resume · {other} · /stop · Ctrl-C exits · /help"
        case SessionState.PLANNING | SessionState.PROCESSING_REMOTE if run.decides == "person":
            return f"type to send · {other} · /pause · /stop · /help"
        case _:
            return f"/pause · {other} · /stop · /help"


def _draft(run: SharedRunView, width: int, room: int, most: int) -> list[str]:
    """Return a draft in at most that many lines, with the reasons for its review; the text has at most *most*
    of them.
    """
    assert run.draft is not None, "asked only of a run with a draft"
    # Wrapped and not cut: nobody should approve the end of a line that they cannot see.
    whole = several_lines(run.draft.text).expandtabs(4).splitlines() or [""]
    text = [f"  │ {part}" for line in whole for part in folded(line, max(1, width - 4))]
    why = [f"Draft for turn {run.turn + 1}; needs your review because of", *why_lines(run)]
    why = [part for line in why for part in folded(line, width)]
    if len(why) + min(len(text), _FEWEST_ROWS) + 1 > room:
        rules = ", ".join(one_line(review.rule) for review in run.draft.reviews)
        why = [cut(f"Draft for turn {run.turn + 1}; {rules}", width)]
    rows = max(1, min(most, room - len(why)))
    if len(text) <= rows:
        return [*why, *text]
    rows = max(1, min(most, room - len(why) - 1))
    return [*why, *text[:rows], f"  … {len(text) - rows} more lines; /show shows all"]


def _titled(title: str, width: int, most: int) -> list[str]:
    """Return a separator line with a title, which may go on for up to *most* lines."""
    lines = folded(title, max(1, width - 4))
    if len(lines) > most:
        last = f"{lines[most - 1]}…"
        while cells(last) > width - 4:
            last = f"{last[:-2]}…"
        lines = [*lines[: most - 1], last]
    shown = [f"── {lines[0]} ", *(f"   {line} " for line in lines[1:])]
    return [*(line.rstrip(" ") for line in shown[:-1]), shown[-1] + "─" * (width - cells(shown[-1]))]


def folded(line: str, width: int) -> list[str]:
    """Return a line wrapped to at most that many cells, broken between words, each part indented like the first."""
    text = line.lstrip(" ")
    # The widest characters take two cells; next to the indent there is room for one of them.
    indent = " " * min(len(line) - len(text), max(0, width - 2))
    room, parts, part = max(1, width - len(indent)), list[str](), ""
    for word in _words(text):
        if cells(part) + cells(word.rstrip(" ")) <= room:
            part += word
            continue
        if part.strip(" "):
            parts.append(part.rstrip(" "))
        *full, part = _chopped(word, room)
        parts += full
    return [indent + each for each in (*parts, part.rstrip(" "))]


def _chopped(word: str, room: int) -> list[str]:
    """Return a word in parts of at most that many cells; the last part has the trailing spaces."""
    parts, used = [""], 0
    for char in word:
        wide = 0 if char == " " else cells(char)
        if used + wide > room and parts[-1]:
            parts.append("")
            used = 0
        parts[-1] += char
        used += wide
    return parts


def cells(text: str) -> int:
    """Return the maximum width of a text in cells: terminals differ in the width of combined characters."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


@lru_cache(4_096)  # a line is measured at every redraw, and has few different letters
def _cells_of(char: str) -> int:
    if char == _EMOJI:
        return 1
    return 2 if east_asian_width(char) in "WF" else cell_len(char)


def _words(text: str) -> Iterator[str]:
    """Yield each word with its trailing spaces."""
    start = 0
    for end in range(1, len(text) + 1):
        if end == len(text) or (text[end - 1] == " " and text[end] != " "):
            yield text[start:end]
            start = end


def meters(run: SharedRunView) -> str:
    """Return the usage of each limit."""
    time = spoken(run.active_ms - run.active_ms % 1_000) if run.active_ms >= 1_000 else "0 s"
    turns = run.turn if run.limits is None else run.limits.turns.used
    shown = [f"turn {turns} of {run.max_turns}", f"{time} of {spoken(run.max_duration_ms)}"]
    if run.max_tokens is not None:
        shown.append(f"{run.tokens:,} of {run.max_tokens:,} tokens")
    return " · ".join(shown)


def doing(run: SharedRunView, connection: Connection = "connected") -> str:
    """Return in words what a run is waiting for."""
    match run.state:
        case SessionState.PLANNING | SessionState.PROCESSING_REMOTE if run.decides == "person":
            return "your turn to write"
        case SessionState.IDLE | SessionState.PLANNING | SessionState.PROCESSING_REMOTE | SessionState.WAITING_LOCAL:
            return "your agent is writing"
        case SessionState.READY_TO_SEND:
            return "sending" if run.draft is None else "draft needs review"
        case SessionState.WAITING_REMOTE:
            return _awaited(run, connection)
        case SessionState.PAUSED:
            waits = "; a reply arrived" if run.kept else "; a draft is pending" if run.draft else ""
            return f"paused{waits}{'; you write next' if run.decides == 'person' else ''}"
        case SessionState.ERROR:
            return "stopped by an error"
        case SessionState.COMPLETED | SessionState.STOPPED:
            return "ended"


def last_delivery(run: SharedRunView) -> DeliveryView | None:
    """Return how far the last message that was sent has come."""
    sent = next((entry for entry in reversed(run.timeline) if entry.role != "remote_agent"), None)
    return None if sent is None else sent.delivery


def _awaited(run: SharedRunView, connection: Connection) -> str:
    """Return how far the message has come for which a run waits."""
    delivery = last_delivery(run)
    if delivery is not None and (delivery.state != "waiting" or connection == "connected"):
        return f"waiting for the other agent ({DELIVERIES[delivery.state]})"
    return "waiting for the other agent" if connection == "connected" else "waiting to be sent"


def _waiting(run: SharedRunView, connection: Connection, now_ms: int) -> str:
    """Return what a run is waiting for, and for how long, if that is long."""
    waited_ms = _waited_ms(run, now_ms)
    status = doing(run, connection)
    return f"{status} for {spoken(waited_ms)}" if waited_ms >= _SHOWN_MS and connection == "connected" else status


def _has_arrived(run: SharedRunView) -> bool:
    delivery = last_delivery(run)
    return delivery is not None and delivery.state in ("delivered", "read")


def _waited_ms(run: SharedRunView, now_ms: int) -> int:
    """Return how long the last message has been without a reply."""
    if run.state is not SessionState.WAITING_REMOTE:
        return 0
    return max((now_ms - each.at_ms for each in run.timeline[-1:]), default=0)


# ── as documents ──────────────────────────────────────────────────────────────────────────────────────────────────────


def turn_document(run: SharedRunView, entry: EntryView) -> SharedTurn:
    """Return one message."""
    return shown_as(
        SharedTurn,
        entry,
        run=run.id,
        speaker=entry.role,
        label=None if entry.label == "rejected" else entry.label,
        delivery=None if entry.delivery is None else entry.delivery.state,
    )


def delivery_document(run: SharedRunView, turn: int, progress: DeliveryView) -> SharedDelivery:
    """Return the new state of the message of a turn."""
    return shown_as(SharedDelivery, progress, run=run.id, turn=turn)


def draft_document(run: SharedRunView, device_name: str) -> SharedDraft | None:
    """Return the pending draft, or the one that was unsent at the end."""
    if run.draft is None:
        return None
    return shown_as(
        SharedDraft,
        run,
        draft=run.draft.id,
        run=run.id,
        device_name=device_name,
        turn=run.turn + 1,
        text=run.draft.text,
        reviews=run.draft.reviews,
        paused=run.state in {SessionState.PAUSED, SessionState.ERROR},
    )


def state_document(run: SharedRunView, connection: Connection) -> SharedState:
    """Return the state of a run."""
    return shown_as(SharedState, run, run=run.id, connection=connection)


def whole_document(run: SharedRunView, connection: Connection, device_name: str) -> SharedRun:
    """Return a run with all messages."""
    turns = [turn_document(run, each) for each in (*run.timeline, *run.kept_replies)]
    draft = draft_document(run, device_name)
    return shown_as(SharedRun, run, run=run.id, connection=connection, draft=draft, turns=turns)
