"""Connects a person with a run of two agents: input goes to the run, its events to the screen."""

import asyncio
import os
from contextlib import suppress
from typing import Final, NamedTuple

from msgspec import Struct

from remit.cli.drive.approver import in_editor
from remit.cli.drive.running import INTERRUPTED
from remit.cli.places import current_user
from remit.cli.shared import row_edits
from remit.cli.shared.commands import Again, Do, Edit, EditRows, Leave, Meaning, OnFile, Show, Tell, understood
from remit.cli.shared.files import work_on_file
from remit.cli.shared.row_edits import Edited, Finished, RowEditor
from remit.cli.shared.view import SharedRunDisplay
from remit.cli.shared.wording import text_lines
from remit.cli.show.screen import worded
from remit.cli.talk.input_line import InputLine
from remit.protocol.errors import TABLE, Code, RemitError, fault
from remit.relay.bridge.ports import Mode
from remit.relay.session import moves
from remit.relay.session.moves import ENDED, Event, Reason, SessionState
from remit.relay.session.run import Overlay, Person
from remit.relay.session_service import NEWS_S, SessionService
from remit.text.terminal import one_line

# Refresh interval of the elapsed time, which counts seconds.
TICK_S = 0.5
# How often to check whether the other device has announced what it shares.
POLL_S = 0.1

EXIT: dict[Reason, int] = {
    "done": 0,
    "user": 0,
    "max_turns": TABLE[Code.TOKEN_BUDGET_EXCEEDED].exit_code,
    "max_tokens_budget": TABLE[Code.TOKEN_BUDGET_EXCEEDED].exit_code,
    "max_duration_ms": TABLE[Code.TIMEOUT].exit_code,
    "max_failures": TABLE[Code.DELEGATION_FAILED].exit_code,
}
NEWEST: Final = "newest"


_ANSWERS = (moves.Approve, moves.Reject)


class RequestedRun(Struct, frozen=True, kw_only=True):
    """The requested run: a new one, or one to continue."""

    profile: str
    device: str
    """The id of the device that shares the other agent."""
    device_name: str
    objective: str | None = None
    agent: str = ""
    """The name under which the device shares that agent; empty: the only one that it shares."""
    mode: Mode | None = None
    continued: str | None = None
    """The id of a run, a part of it, or `newest`."""


class SharedConversation:
    """A run and the person at the terminal, if there is one."""

    def __init__(self, view: SharedRunDisplay, line: InputLine | None) -> None:
        self._view = view
        self._line = line
        self._queue: asyncio.Queue[_Typed | Event | Leave] = asyncio.Queue()
        self._over = asyncio.Event()
        self._host: SessionService | None = None
        self._person = Person(current_user(), "chat")
        self._denied: set[str] = set()
        """Permission requests that were answered with no, because nobody can type here."""
        self._pausing = False
        self._editing = False
        self._rows: RowEditor | None = None
        """The draft while it is edited row by row."""
        self._unsent = ""
        """The last line that could not be sent, for /again."""
        self.is_leaving = False
        self.code = 0
        """The exit code."""

    # ── lifecycle ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def hold(self, host: SessionService, wanted: RequestedRun, ended: "asyncio.Future[RemitError]") -> None:
        """Execute the run until it ends or the person exits, which pauses it."""
        self._host = host
        run = await _begun(host, wanted, self._person)
        view = self._view
        async with view.board.open():
            view.begin(host.displayed(_now(host, run.id)), wanted.device_name)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._work()), group.create_task(self._tick())]
                ended.add_done_callback(self._cut_off)
                self._check()
                await self._over.wait()
                ended.remove_done_callback(self._cut_off)
                for task in tasks:
                    task.cancel()
        view.finish()

    def changed(self, run: Overlay) -> None:
        """Show a change of the run."""
        if self._view.run is None or run.id != self._view.run.id:
            return
        assert self._host is not None, "it is held"
        self._view.show(self._host.displayed(run))
        self._check()
        if self._line is None:
            self._deny(run)

    def _check(self) -> None:
        run = self._view.run
        assert run is not None, "shown before it is looked at"
        self._close_rows(run)
        self._pausing = self._pausing and run.state is not SessionState.PAUSED
        if run.ended is not None:
            self.code = EXIT[run.ended]
            self._over.set()
        elif run.state is SessionState.ERROR and self._line is None:
            # There is no person to decide what comes next.
            self.code = TABLE[Code.DELEGATION_FAILED].exit_code
            self._over.set()

    def _cut_off(self, ended: "asyncio.Future[RemitError]") -> None:
        if not ended.cancelled():
            why = ended.result().fault
            self.code = TABLE[why.code].exit_code
            self._view.board.say(*worded(why).splitlines())
            self._over.set()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._view.board.tick()

    # ── input ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def entered(self, line: str | None) -> None:
        """Handle a typed line; None is the end of input."""
        run = self._view.run
        seen = run.pending.id if run is not None and run.pending is not None else None
        asked = run.questions[0].id if run is not None and run.questions else None
        self._queue.put_nowait(Leave() if line is None else _Typed(line, seen, asked))

    def interrupt(self, *, leave: bool) -> None:
        """Handle Ctrl-C: pause the run, or exit if it is paused."""
        run = self._view.run
        if self._editing and not leave:
            return  # it was meant for the editor
        can_pause = run is not None and (run.state, moves.Pause) in moves.TABLE
        if leave or self._line is None or self._pausing or not can_pause:
            self.code, self.is_leaving = INTERRUPTED, True
            self._queue.put_nowait(Leave())
        else:
            self._pausing = True
            self._queue.put_nowait(moves.Pause())

    async def _work(self) -> None:
        while True:
            typed = await self._queue.get()
            try:
                await self._take(typed)
            except RemitError as error:
                self._view.board.say(*f"Failed: {worded(error.fault)}".splitlines())
                self._pausing = False
            if self._rows is None:
                self._view.remind()

    async def _take(self, typed: "_Typed | Event | Leave") -> None:
        run, board = self._view.run, self._view.board
        assert run is not None, "shown before anything is typed"
        if isinstance(typed, _Typed) and (answer := _answer(typed, run)) is not None:
            await self._do(answer)
            return
        if isinstance(typed, _Typed) and self._rows is not None and not typed.line.lstrip().startswith("/"):
            # A line that starts with / is a command of the chat, as always.
            await self._edit_row(self._rows, typed.line, run)
            return
        match _meant(typed, run) if isinstance(typed, _Typed) else typed:
            case None:
                pass
            case Tell(lines=lines, again=again):
                board.say(*lines)
                self._keep(again)
            case Again():
                self._enter_again()
            case Show():
                self._view.show_draft()
            case Edit():
                await self._edit(run)
            case EditRows():
                self._open_rows(run)
            case OnFile() as wanted:
                assert self._host is not None, "it is held"
                board.say(*await work_on_file(self._host.files, run, wanted, self._person))
            case Leave():
                await self._leave(run)
            case Do(event=event):
                await self._do(event)
            case event:
                await self._do(event)

    async def _do(self, event: Event) -> None:
        host, run = self._host, self._view.run
        assert host is not None, "it is held"
        assert run is not None, "shown before anything is typed"
        await host.act(run.id, event, by=self._person)

    async def _leave(self, run: Overlay) -> None:
        if (run.state, moves.Pause) in moves.TABLE:
            with suppress(RemitError):  # it has ended meanwhile, or the host pauses it when it returns
                await self._do(moves.Pause())
        self._over.set()

    # ── editing ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _edit(self, run: Overlay) -> None:
        assert run.pending is not None, "a draft is edited"
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
        if not editor:
            if self._line is not None and self._view.board.redraws:
                self._line.begin(f"/edit {run.pending.text}")
            else:
                self._open_rows(run)
            return
        self._editing = True
        try:
            async with self._view.board.aside():
                text = await in_editor(editor, "draft", run.pending.text, ".txt")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            self._view.board.say(
                f"{one_line(editor)} failed: {one_line(why or str(error))}. The draft is still pending.",
                "→ Set $EDITOR to a working editor, or type the new text: /edit TEXT",
            )
            return
        finally:
            self._editing = False
        if not text.strip() or text == run.pending.text:
            self._view.board.say("Nothing was changed. The draft is still pending.")
            return
        await self._do(moves.Approve(run.pending.id, text))

    def _open_rows(self, run: Overlay) -> None:
        assert run.pending is not None, "a draft is edited"
        self._rows = row_edits.opened(run.pending.id, run.pending.text)
        self._view.board.say("The draft in rows; those that you do not change stay:", *row_edits.shown(self._rows))
        self._view.board.say(*row_edits.HELP)

    async def _edit_row(self, editor: RowEditor, line: str, run: Overlay) -> None:
        board = self._view.board
        match row_edits.edit(editor, line):
            case Edited(editor=changed, lines=lines):
                self._rows = changed
                board.say(*lines)
            case Finished(sends=True):
                self._rows = None
                try:
                    await self._do(moves.Approve(editor.draft, editor.text if editor.changed else None))
                except RemitError:  # it stays to be edited, and to be sent later
                    self._rows = editor
                    self._close_rows(run)
                    raise
            case Finished():
                self._rows = None
                board.say("Nothing was changed. The draft is still pending.")
            case unclear:
                board.say(*unclear.lines)

    def _close_rows(self, run: Overlay) -> None:
        """Stop editing a draft that is not pending any more, and show what was typed."""
        rows = self._rows
        if rows is None or (run.pending is not None and run.pending.id == rows.draft):
            return
        self._rows = None
        said = ("Your text was:", *text_lines(rows.text)) if rows.changed else ()
        self._view.board.say("The draft that you edited is not pending any more.", *said)

    def _keep(self, text: str) -> None:
        """Give a line that could not be sent back to the person who typed it."""
        if not text:
            return
        self._unsent = text
        if self._line is not None and self._view.board.redraws:
            self._line.begin(text)
        else:
            self._view.board.say("Your text is kept: /again enters it once more.")

    def _enter_again(self) -> None:
        text, self._unsent = self._unsent, ""
        if text:
            self.entered(text)
        else:
            self._view.board.say("Nothing is kept that was not sent.")

    # ── permission requests of the local agent ────────────────────────────────────────────────────────────────────────

    def _deny(self, run: Overlay) -> None:
        """Answer permission requests with no, as there is nobody at the terminal."""
        for question in run.questions:
            if question.id not in self._denied:
                self._denied.add(question.id)
                self._queue.put_nowait(moves.Decide(question.id))
                self._view.board.say(
                    f"Your agent asked for permission, but nobody is here to answer: {one_line(question.title, 300)}"
                )


class _Typed(NamedTuple):
    line: str
    draft: str | None
    """The draft that was shown when the line was entered."""
    question: str | None
    """The permission request that was shown then."""


def _answer(typed: _Typed, run: Overlay) -> moves.Decide | None:
    """Return the answer to the permission request that was shown when the line was typed; None: it is none."""
    asks = next((each for each in run.questions if each.id == typed.question), None)
    if asks is None:
        return None
    word = typed.line.strip().lower()
    if word in ("n", "no"):
        return moves.Decide(asks.id)
    if word.isdecimal() and 1 <= int(word) <= len(asks.choices):
        return moves.Decide(asks.id, asks.choices[int(word) - 1].id)
    return None


def _meant(typed: _Typed, run: Overlay) -> Meaning | None:
    """Return the meaning of a line; an answer applies only to the draft that was shown when it was typed."""
    meaning = understood(typed.line, run)
    answers = isinstance(meaning, Edit | EditRows) or (isinstance(meaning, Do) and isinstance(meaning.event, _ANSWERS))
    if answers and run.pending is not None and run.pending.id != typed.draft:
        # A text, as in /edit TEXT, was long to type; an answer of a word could be entered again without reading.
        is_text = typed.line.lstrip().startswith("/") and " " in typed.line.strip()
        return Tell(("There is a newer draft. Read it first.",), again=typed.line if is_text else "")
    return meaning


# ── starting and continuing ───────────────────────────────────────────────────────────────────────────────────────────


async def _begun(host: SessionService, wanted: RequestedRun, by: Person) -> Overlay:
    """Start or continue a run."""
    if wanted.continued is None:
        return await _started(host, wanted, by)
    run = continued(host.runs, wanted)
    if wanted.objective is not None:
        await host.act(run.id, moves.SetObjective(wanted.objective), by=by)
    if wanted.mode is not None:
        await host.act(run.id, moves.SetMode(wanted.mode), by=by)
    return await host.act(run.id, moves.Resume(wanted.agent), by=by)


async def _started(host: SessionService, wanted: RequestedRun, by: Person) -> Overlay:
    """Start a run; if the device has never announced what it shares, wait for that for a moment."""
    may = wanted.device in host.profiles[wanted.profile].allowed_shared_device_ids
    for _ in range(round(NEWS_S / POLL_S)):
        if not may or await host.offers(wanted.device) is not None:
            break
        await asyncio.sleep(POLL_S)
    return await host.start(
        wanted.profile, wanted.device, wanted.objective or "", mode=wanted.mode, agent=wanted.agent, by=by
    )


def _now(host: SessionService, run: str) -> Overlay:
    return next(each for each in host.runs if each.id == run)


def continued(runs: tuple[Overlay, ...], wanted: RequestedRun) -> Overlay:
    """Return the run to continue, or raise a `RemitError` that lists the candidates."""
    ours = [each for each in runs if (each.profile, each.device) == (wanted.profile, wanted.device)]
    name = wanted.continued or NEWEST
    found = [each for each in ours if name != NEWEST and (each.id.startswith(name) or each.id.endswith(name))]
    left = [each for each in ours if each.state not in ENDED]
    if name == NEWEST:
        found = left[-1:]
    if len(found) == 1 and found[0].state not in ENDED:
        return found[0]
    between = f"between {wanted.profile} and {wanted.device_name}"
    if not found:
        why = f"no run {between} can be continued"
        if name != NEWEST:
            why = f"no such run `{name[:100]}` {between}"
    elif len(found) > 1:
        why = f"ambiguous id `{name[:100]}`: {', '.join(each.id for each in found)}"
    else:
        why = f"the run {found[0].id} has ended and cannot be continued"
    others = f"Runs that can be continued: {', '.join(each.id for each in left)}." if left else ""
    advice = "Type more characters." if len(found) > 1 else others or "Start one with --objective TEXT."
    raise RemitError(fault(Code.NOT_FOUND, why, suggestion=advice))
