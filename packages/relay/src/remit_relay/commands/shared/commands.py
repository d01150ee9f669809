"""The commands of a chat with a shared agent, parsed into events of the run. Pure."""

from collections.abc import Callable
from typing import Literal, get_args

from msgspec import Struct

from remit.protocol.problems import did_you_mean
from remit.words.terminal import one_line
from remit_relay.bridge.ports import Mode
from remit_relay.commands.shared.wording import MODES, doing
from remit_relay.local_api.views import SharedRunView
from remit_relay.session import moves
from remit_relay.session.moves import TABLE, Event

COMMANDS = {
    "approve": "send the draft unchanged; also: a",
    "edit": "edit the draft in $EDITOR or in the input line, then send it; /edit TEXT sends TEXT; also: e",
    "rows": "edit the draft row by row, without cursor keys, then send it",
    "again": "enter once more what was not sent",
    "reject": "reject the draft, and tell your agent why: /reject WHY; also: r WHY",
    "show": "show the whole pending draft",
    "pause": "pause the run; also: Ctrl-C",
    "resume": "resume, or retry after an error; /resume AGENT if the device shares several",
    "stop": "end the run permanently",
    "take over": "write yourself: each line that you type is sent",
    "hand back": "let your agent write again",
    "attach": "send a file with the next message: /attach PATH",
    "detach": "do not send it: /detach NAME",
    "files": "list the files of the run",
    "save": "save a file of the run to this folder: /save NAME, or /save NAME as PATH",
    "objective": "change the objective: /objective TEXT",
    "mode": "manual, semi_auto or full_auto: /mode full_auto",
    "help": "list the commands",
    "quit": "exit; a run that another process executes goes on, others pause; Ctrl-C twice pauses and exits",
}
_LONGEST = max(map(len, COMMANDS))

HELP = [
    *(f"/{name:{_LONGEST}}  {means}" for name, means in COMMANDS.items()),
    "",
    *(f"mode {mode}: {means}" for mode, means in MODES.items()),
    "",
    "To send a line that starts with /, type // instead.",
]


class Do(Struct, frozen=True):
    """An event for the run."""

    event: Event


class Tell(Struct, frozen=True):
    """A message to the person who typed."""

    lines: tuple[str, ...]
    again: str = ""
    """The typed text, to be sent later."""


class Edit(Struct, frozen=True):
    """Edit the draft."""


class EditRows(Struct, frozen=True):
    """Edit the draft row by row."""


class Again(Struct, frozen=True):
    """Enter once more what could not be sent."""


class Show(Struct, frozen=True):
    """Show the whole draft."""


class OnFile(Struct, frozen=True):
    """Attach, detach, list or save files."""

    what: Literal["attach", "detach", "files", "save"]
    name: str


class Leave(Struct, frozen=True):
    """Exit the chat."""


Meaning = Do | Tell | Edit | EditRows | Again | Show | OnFile | Leave


def understood(text: str, run: SharedRunView) -> Meaning | None:
    """Return the meaning of a typed line; None if it is empty."""
    typed, text = text, text.strip()
    if not text:
        return None
    if text.startswith("/") and not text.startswith("//"):
        meaning = _replaced(typed.lstrip()[1:], run) or _command(text[1:], run)
        return _keep_text(meaning, text)
    if run.decides == "person":
        return _say(text.removeprefix("/"), run)
    word, _, rest = text.partition(" ")
    if run.draft is not None and (meaning := _key(word.lower(), rest.strip(), run)) is not None:
        return meaning
    return Tell(("Your agent writes the messages. /take over lets you write; /help lists the commands.",))


def _keep_text(meaning: Meaning, text: str) -> Meaning:
    """Return the meaning of a command; a text that was typed with one that is not possible now is kept."""
    name, _, rest = text[1:].partition(" ")
    if isinstance(meaning, Tell) and name.lower() in ("edit", "reject", "objective") and rest.strip():
        return Tell(meaning.lines, again=text)
    return meaning


def _replaced(typed: str, run: SharedRunView) -> Meaning | None:
    """Return the meaning of /edit TEXT, in which spaces and line breaks of the text count; None: it is another line."""
    name, text = typed[:4], typed[5:]
    if name.lower() != "edit" or not typed[4:5].isspace() or not text.strip():
        return None
    if run.draft is None:
        return _no_draft(run)
    # A text that differs in the space around it only was not edited.
    return _possible(
        moves.Approve(run.draft.id, None if text.strip() == run.draft.text.strip() else text.rstrip()), run
    )


def _key(word: str, rest: str, run: SharedRunView) -> Meaning | None:
    match word:
        case "a" | "y" if not rest:
            return _approve("", run)
        case "e" if not rest:
            return _edit("", run)
        case "r" | "n":
            return _reject(rest, run)
        case _:
            return None


def _command(typed: str, run: SharedRunView) -> Meaning:
    words = typed.split(None, 1)
    name, rest = (words[0].lower() if words else ""), (words[1] if len(words) > 1 else "")
    for whole in ("take over", "hand back"):
        first, second = whole.split()
        if name == first and rest.lower() == second:
            name, rest = whole, ""
        elif name in (first + second, f"{first}-{second}", f"{first}_{second}"):
            name = whole
    known: dict[str, Callable[[str, SharedRunView], Meaning]] = {
        "approve": _approve,
        "edit": _edit,
        "rows": _rows,
        "reject": _reject,
        "objective": _objective,
        "mode": _mode,
        "resume": _resume,
    }
    if name in known:
        return known[name](rest.strip(), run)
    if name in ("attach", "detach", "files", "save"):
        return _on_file(name, rest.strip())
    alone: dict[str, Meaning] = {
        "show": Show(),
        "again": Again(),
        "help": Tell(tuple(HELP)),
        "quit": Leave(),
        "exit": Leave(),
    }
    events: dict[str, Event] = {
        "pause": moves.Pause(),
        "stop": moves.Stop(),
        "take over": moves.TakeOver(),
        "hand back": moves.HandBack(),
    }
    if name not in alone and name not in events:
        near = did_you_mean(f"/{name}", [f"/{each}" for each in COMMANDS])
        return Tell((f"No such command /{one_line(name, 60)}{near or '; see /help'}",))
    if rest:
        return Tell((f"/{name} takes no argument.",))
    if name == "take over" and run.decides == "person":
        return Tell(("You are already writing; /hand back lets your agent write.",))
    if name == "hand back" and run.decides == "agent":
        return Tell(("Your agent is already writing; /take over lets you write.",))
    return _possible(events[name], run) if name in events else alone[name]


# ── commands for the run ──────────────────────────────────────────────────────────────────────────────────────────────


def _approve(rest: str, run: SharedRunView) -> Meaning:
    if rest:
        return Tell(("/approve sends the draft unchanged; /edit TEXT sends TEXT instead.",))
    return _no_draft(run) if run.draft is None else _possible(moves.Approve(run.draft.id), run)


def _edit(rest: str, run: SharedRunView) -> Meaning:
    if run.draft is None:
        return _no_draft(run)
    assert not rest, "a text was understood before"
    possible = _possible(moves.Approve(run.draft.id), run)
    return Edit() if isinstance(possible, Do) else possible


def _rows(rest: str, run: SharedRunView) -> Meaning:
    if rest:
        return Tell(("/rows takes no argument.",))
    meaning = _edit("", run)
    return EditRows() if isinstance(meaning, Edit) else meaning


def _reject(rest: str, run: SharedRunView) -> Meaning:
    return _no_draft(run) if run.draft is None else _possible(moves.Reject(run.draft.id, rest), run)


def _resume(rest: str, run: SharedRunView) -> Meaning:
    return _possible(moves.Resume(agent=rest), run)


def _objective(rest: str, run: SharedRunView) -> Meaning:
    if not rest:
        return Tell((f"Objective: {one_line(run.objective)}", "/objective TEXT changes it."))
    return _possible(moves.SetObjective(rest), run)


def _mode(rest: str, run: SharedRunView) -> Meaning:
    name = rest.lower().replace("-", "_").replace(" ", "_")
    for mode in get_args(Mode):
        if name == mode:
            return _possible(moves.SetMode(mode), run)
    if not rest:
        return Tell((f"Mode {run.mode}: {MODES[run.mode]}.", "/mode manual, semi_auto or full_auto changes it."))
    return Tell((f"No such mode {one_line(rest, 60)}; choose from {', '.join(MODES)}.",))


def _on_file(name: Literal["attach", "detach", "files", "save"], rest: str) -> Meaning:
    if name == "files" and rest:
        return Tell(("/files takes no argument.",))
    if name != "files" and not rest:
        return Tell((f"/{name} needs {'the path of a file' if name == 'attach' else 'the name of a file'}.",))
    return OnFile(name, rest)


def _say(text: str, run: SharedRunView) -> Meaning:
    if (run.state, moves.Say) in TABLE:
        return Do(moves.Say(text))
    what = (
        "/resume first" if run.state in {moves.SessionState.PAUSED, moves.SessionState.ERROR} else "send it afterwards"
    )
    return Tell((f"Not sent: {doing(run)}; {what}.",), again=text)


def _no_draft(run: SharedRunView) -> Tell:
    return Tell((f"No pending draft: {doing(run)}.",))


def _possible(event: Event, run: SharedRunView) -> Meaning:
    if (run.state, type(event)) in TABLE:
        return Do(event)
    able = [f"/{name}" for name, kind in _CONTROLS.items() if (run.state, kind) in TABLE]
    return Tell((f"Not possible now: {doing(run)}." + (f" You can: {', '.join(able)}." if able else ""),))


_CONTROLS: dict[str, type[Event]] = {"pause": moves.Pause, "resume": moves.Resume, "stop": moves.Stop}
