"""How a run of two agents reads in a terminal: pure, from the run to lines that are safe to show."""

from collections.abc import Iterator
from typing import Literal

from rich.cells import chop_cells

from remit.faces.cli.show.screen import clock_time, cut, spoken
from remit.faces.safe_text import one_line, several_lines
from remit.relay.bridge.permissions import Permission
from remit.relay.frames import Mode
from remit.relay.moves import Label, State
from remit.relay.run import Entry, Overlay

Connection = Literal["connecting", "connected", "waiting", "ended"]

SPEAKERS = {"local_agent": "Local agent", "remote_agent": "Remote agent", "user": "You"}
LABELS: dict[Label, str] = {"auto_sent": "auto-sent", "approved": "approved", "edited": "edited", "yours": "yours"}
MODES: dict[Mode, str] = {
    "manual": "you see every draft before it is sent",
    "semi_auto": "you see a draft first if a rule asks for it",
    "full_auto": "drafts are sent without asking you",
}
CONNECTIONS: dict[Connection, str] = {
    "connecting": "connecting",
    "connected": "connected",
    "waiting": "no connection, trying again",
    "ended": "disconnected",
}
KEYS = "a approve · e edit · r WHY reject · /help"

# Of a draft the footer shows as much as leaves the talk above it readable; /show shows all of it.
_SHARE = 3
_FEWEST_ROWS = 2


# ── above: what was said, as it comes ─────────────────────────────────────────────────────────────────────────────────


def heading(run: Overlay, device: str) -> Iterator[str]:
    """Yield what a chat begins with."""
    yield f"{one_line(run.profile)} works with {one_line(device)}: run {run.id}"
    yield f"Objective: {one_line(run.objective)}"
    yield f"Mode {run.mode}: {MODES[run.mode]}. /help explains, Ctrl-C pauses."


def entry_lines(entry: Entry) -> Iterator[str]:
    """Yield something that was said, below who said it and who let it go."""
    label = f", {LABELS[entry.label]}" if entry.label else ""
    turn = f"turn {entry.turn}" if entry.turn else "before the first turn"
    yield f"{clock_time(entry.at_ms)}  {SPEAKERS[entry.role]} ({turn}{label})"
    yield from (f"    {line}" for line in several_lines(entry.text).splitlines() or [""])


def draft_lines(run: Overlay) -> Iterator[str]:
    """Yield the draft that waits, whole, and why a person is asked."""
    assert run.pending is not None, "asked only of a run with a draft"
    yield f"Draft for turn {run.turn + 1}, not sent yet:"
    yield from (f"    {line}" for line in several_lines(run.pending.text).splitlines() or [""])
    yield from why_lines(run)


def why_lines(run: Overlay) -> Iterator[str]:
    """Yield each rule that wants a person to see the draft, with its reason."""
    for review in run.pending.reviews if run.pending else ():
        yield f"  {one_line(review.rule)}: {one_line(review.why)}"


def ending(run: Overlay) -> Iterator[str]:
    """Yield how a run ended; at a limit, as a banner."""
    if run.banner:
        rule = "═" * min(72, max(20, len(run.banner)))
        yield from (rule, one_line(run.banner), rule)
    elif run.state is State.COMPLETED:
        yield "The objective is met."
    else:
        yield "Stopped."
    if run.result:
        yield from (f"    {line}" for line in several_lines(run.result).splitlines())
    if run.pending is not None and not run.pending.done:
        yield "A draft was left unsent:"
        yield from (f"    {line}" for line in several_lines(run.pending.text).splitlines())
    yield f"{meters(run, 0)}."


def trouble(run: Overlay) -> Iterator[str]:
    """Yield what failed, and what to do."""
    yield f"It does not go on: {one_line(run.failure) or 'something failed'}."
    yield "→ /resume tries again, /stop ends it."


def permission_lines(question: Permission) -> Iterator[str]:
    """Yield what the local agent asks leave for, and the answers that it takes."""
    kind = f" ({one_line(question.kind, 40)})" if question.kind else ""
    yield f"Your agent asks leave{kind}: {one_line(question.title, 300)}"
    if question.details:
        yield f"    {one_line(question.details, 300)}"
    yield permission_keys(question)


def permission_keys(question: Permission) -> str:
    """Return what to type in answer."""
    choices = [f"{number} {one_line(each.name, 60)}" for number, each in enumerate(question.choices, 1)]
    return " · ".join([*choices, "n no"])


# ── below: what stays in sight ────────────────────────────────────────────────────────────────────────────────────────


def footer(
    run: Overlay, *, connection: Connection, asks: Permission | None, now_ms: int, width: int, height: int
) -> list[str]:
    """Return the lines that stay at the bottom: the objective, what a person is asked, how far it is."""
    lines = [f"Objective: {run.objective}"]
    if asks is not None:
        lines += permission_lines(asks)
    elif run.state is State.READY_TO_SEND and run.pending is not None:
        lines += _draft(run, width, height)
    elif run.state is State.ERROR:
        lines += trouble(run)
    status, meter = f"{doing(run, connection)} · {run.mode} · {CONNECTIONS[connection]}", meters(run, now_ms)
    lines += [f"{status} · {meter}"] if len(status) + len(meter) + 3 <= width else [status, meter]
    return [cut(line, width) if line.strip() == line else _indented(line, width) for line in lines]


def _draft(run: Overlay, width: int, height: int) -> Iterator[str]:
    assert run.pending is not None, "asked only of a run with a draft"
    rows = max(_FEWEST_ROWS, height // _SHARE)
    # Folded and not cut: nobody shall agree to the end of a line that they cannot see.
    whole = several_lines(run.pending.text).splitlines() or [""]
    text = [part for line in whole for part in chop_cells(one_line(line, len(line)), max(1, width - 4)) or [""]]
    yield f"Draft for turn {run.turn + 1}; you are asked because of"
    yield from why_lines(run)
    yield from (f"  │ {line}" for line in text[:rows])
    if len(text) > rows:
        yield f"  … {len(text) - rows} more lines; /show shows all"
    yield KEYS


def _indented(line: str, width: int) -> str:
    """Return a line that begins with spaces, cut, with them."""
    room = len(line) - len(line.lstrip())
    return " " * room + cut(line, max(1, width - room))


def meters(run: Overlay, now_ms: int) -> str:
    """Return what has been used of each limit."""
    limits = run.limits
    active_ms = run.active_ms + (max(0, now_ms - run.since_ms) if run.since_ms is not None else 0)
    time = spoken(active_ms - active_ms % 1_000) if active_ms >= 1_000 else "0 s"
    shown = [f"turn {run.turn} of {limits.max_turns}", f"{time} of {spoken(limits.max_duration_ms)}"]
    if limits.max_tokens_budget is not None:
        shown.append(f"{run.tokens:,} of {limits.max_tokens_budget:,} tokens")
    return " · ".join(shown)


def doing(run: Overlay, connection: Connection = "connected") -> str:
    """Return what a run is waiting for, as one would say it."""
    match run.state:
        case State.PLANNING | State.PROCESSING_REMOTE if run.decides == "person":
            return "your turn to write"
        case State.IDLE | State.PLANNING | State.PROCESSING_REMOTE | State.WAITING_LOCAL:
            return "your agent is writing"
        case State.READY_TO_SEND:
            return "sending" if run.pending is None else "a draft waits for you"
        case State.WAITING_REMOTE:
            return "the other agent is answering" if connection == "connected" else "waiting to be sent"
        case State.PAUSED:
            waits = "; a reply came" if run.kept else "; a draft waits" if run.pending else ""
            return f"paused{waits}"
        case State.ERROR:
            return "stands still"
        case State.COMPLETED | State.STOPPED:
            return "ended"
