"""Connects a person with a run of two agents: input goes to the run, its events to the screen."""

import asyncio
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct

from remit.protocol.errors import TABLE, Code, Fault, RemitError, fault
from remit.words.terminal import one_line
from remit_cli.drive.approver import in_editor
from remit_cli.drive.running import INTERRUPTED
from remit_cli.places import current_user
from remit_cli.show.screen import clock_time, worded
from remit_cli.talk.transcript import InputLine
from remit_relay.bridge.ports import Mode
from remit_relay.commands.shared import row_edits
from remit_relay.commands.shared.client import DeviceClient, DeviceGone
from remit_relay.commands.shared.commands import (
    Again,
    Do,
    Edit,
    EditRows,
    Leave,
    Meaning,
    OnFile,
    Show,
    Tell,
    understood,
)
from remit_relay.commands.shared.row_edits import Edited, Finished, RowEditor
from remit_relay.commands.shared.sharing import call_sentence
from remit_relay.commands.shared.view import SharedRunDisplay
from remit_relay.commands.shared.wording import file_line, text_lines
from remit_relay.local_api.device_endpoints import CallNews, EndedNews, OwnDeviceStatus, RefusedNews, TroubleNews
from remit_relay.local_api.views import SharedRunLine, SharedRunView
from remit_relay.session import moves
from remit_relay.session.moves import ENDED, Event, Reason, SessionState
from remit_relay.session.profile import MAX_TOTAL, name_problem
from remit_relay.session.run import Person
from remit_relay.session_service import NEWS_S

# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def work_on_file(client: DeviceClient, run: SharedRunView, command: OnFile, by: Person) -> list[str]:
    """Do what a command says, and return what to tell the person; raise a `RemitError` if it is not possible."""
    match command.what:
        case "attach":
            path = _expanded(command.name)
            files = await client.attach(run.id, path.name, await asyncio.to_thread(_read_file, path), by=by)
            return [f"The next message carries: {', '.join(map(file_line, files))}"]
        case "detach":
            await client.detach(run.id, command.name, by=by)
            return [f"The next message does not carry {one_line(command.name)}."]
        case "save":
            name, _, target = command.name.partition(" as ")
            file, data = await client.file(run.id, name.strip())
            path = _expanded(target.strip() or file.name)
            await asyncio.to_thread(_write_new_file, path, data)
            return [f"Saved {file_line(file)} as {one_line(str(path))}."]
        case "files":
            files = await client.files(run.id)
            return [file_line(each) for each in (*files.attached, *files.sent, *files.received)] or [
                "The run has no files."
            ]


def _expanded(typed: str) -> Path:
    try:
        return Path(typed).expanduser()
    except RuntimeError:  # `~nobody`
        return Path(typed)


def _read_file(path: Path) -> bytes:
    """Return the content of a file; one that is too large for every rule is not read whole."""
    try:
        # Without waiting, if it is a pipe.
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, f"{path} is not a file"))
            return file.read(MAX_TOTAL + 1)
    except (OSError, ValueError) as error:
        why = f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
        raise RemitError(fault(Code.NOT_FOUND, why, suggestion="Give the path of a file: /attach PATH")) from error


def _write_new_file(path: Path, data: bytes) -> None:
    """Write a new file, readable by its owner; never over another, and never through a link."""
    if (why := name_problem(path.name)) is not None:
        raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, f"cannot save as {path}: the name {why}"))
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
    except (OSError, ValueError) as error:
        why = f"{path} cannot be written: {getattr(error, 'strerror', None) or error}"
        raise RemitError(fault(Code.STATE_CONFLICT, why, suggestion="Choose another: /save NAME as PATH")) from error


# ── the conversation ──────────────────────────────────────────────────────────────────────────────────────────────────


# Refresh interval of the elapsed time, which counts seconds.
TICK_S = 0.5
# How often to check whether the other device has announced what it shares.
POLL_S = 0.1
# A state that follows an action is shown within this time, even on a busy machine.
SEEN_S = 2.0

EXIT: dict[Reason, int] = {
    "done": 0,
    "user": 0,
    "max_turns": TABLE[Code.TOKEN_BUDGET_EXCEEDED].exit_code,
    "max_tokens_budget": TABLE[Code.TOKEN_BUDGET_EXCEEDED].exit_code,
    "max_duration_ms": TABLE[Code.TIMEOUT].exit_code,
    "max_failures": TABLE[Code.DELEGATION_FAILED].exit_code,
    "revoked": TABLE[Code.PERMISSION_DENIED].exit_code,
}
NEWEST: Final = "newest"
_ANSWERS = (moves.Approve, moves.Reject)


class RequestedRun(Struct, frozen=True, kw_only=True):
    """The requested run: a new one, or one to continue."""

    profile: str
    device: str
    """The id of the device that shares the other agent; or a group, of which one device is chosen."""
    device_name: str
    members: Mapping[str, str] = {}
    """The names of the devices of a group, or of the one device, by id."""
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
        self._client: DeviceClient | None = None
        self._is_here = False
        """Whether the run is executed by this process, so that it stops with it."""
        self._shown = 0
        """How many states of the run were shown."""
        self._changed = asyncio.Event()
        self._person = Person(current_user(), "chat")
        self._noted_questions: set[str] = set()
        """Permission requests that were noticed while nobody can type here."""
        self._pausing = False
        self._editing = False
        self._rows: RowEditor | None = None
        """The draft while it is edited row by row."""
        self._unsent = ""
        """The last line that could not be sent, for /again."""
        self.is_leaving = False
        self.is_gone = False
        """Whether the process that executed the run has ended."""
        self.code = 0
        """The exit code."""

    # ── lifecycle ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def hold(self, client: DeviceClient, requested: RequestedRun, *, is_here: bool) -> None:
        """Show the run until it ends or the person leaves, which pauses a run that is executed by this process."""
        self._client, self._is_here = client, is_here
        run = await _find_or_start_run(client, requested, self._person)
        device = (await client.run(run)).device if requested.members else requested.device
        name = requested.members.get(device, requested.device_name)
        async with self._view.board.open(), asyncio.TaskGroup() as group:
            works = (self._follow_run(run, name), self._follow_device(device), self._tick())
            tasks = [group.create_task(work) for work in works]
            await self._over.wait()
            for task in tasks:
                task.cancel()
        self._view.finish()

    async def _follow_run(self, run: str, device_name: str) -> None:
        assert self._client is not None, "it is held"
        async with asyncio.TaskGroup() as group:
            try:
                async for state in self._client.follow_run(run):
                    if self._view.run is None:
                        self._view.begin(state, device_name, pauses=self._is_here)
                        group.create_task(self._work())
                    else:
                        self._view.show(state)
                    self._shown += 1
                    self._changed.set()
                    self._check(state)
                    if self._over.is_set():  # what ends after the run does not change how it ended
                        return
            except DeviceGone:
                self.is_gone = True
                self._fail(Code.DELEGATION_UNAVAILABLE)
            except RemitError as error:
                self._cut_off(error.fault)

    async def _follow_device(self, device: str) -> None:
        assert self._client is not None, "it is held"
        view = self._view
        with suppress(DeviceGone):  # who follows the run says so
            async for news in self._client.follow_device():
                match news:
                    case OwnDeviceStatus(connection=connection, why=why):
                        view.linked(connection, why)
                    case CallNews(at_ms=at_ms, name=name):
                        view.shared(f"{clock_time(at_ms)}  {one_line(call_sentence(news, name))}")
                    case TroubleNews(message=message, suggestion=suggestion):
                        # Other devices are told what the team shares once they connect; the chat does not wait for it.
                        if news.device == device:
                            view.troubled(message, suggestion)
                    case RefusedNews(run=run, by=by, why=why):
                        view.unable(run, by, why)
                    case EndedNews(fault=why):
                        self._cut_off(why)

    def _check(self, run: SharedRunView) -> None:
        if self._line is None:
            self._note_questions(run)
        self._close_rows(run)
        self._pausing = self._pausing and run.state is not SessionState.PAUSED
        if run.ended is not None:
            self.code = EXIT[run.ended]
            self._over.set()
        elif run.state is SessionState.ERROR and self._line is None:
            # There is no person to decide what comes next.
            self._fail(Code.DELEGATION_FAILED)

    def _cut_off(self, why: Fault) -> None:
        self._view.board.say(*worded(why).splitlines())
        self._fail(why.code)

    def _fail(self, code: Code) -> None:
        self.code = TABLE[code].exit_code
        self._over.set()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._view.board.tick()

    # ── input ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def entered(self, line: str | None) -> None:
        """Handle a typed line; None is the end of input."""
        run = self._view.run
        seen = run.draft.id if run is not None and run.draft is not None else None
        question = run.questions[0].id if run is not None and run.questions else None
        self._queue.put_nowait(Leave() if line is None else _Typed(line, seen, question))

    def interrupt(self, *, leave: bool) -> None:
        """Handle Ctrl-C: pause the run, or exit if it is paused. Without a terminal, do both."""
        run = self._view.run
        if self._editing and not leave:
            return  # it was meant for the editor
        can_pause = run is not None and "pause" in run.acts
        if not leave and can_pause and not self._pausing:
            self._pausing = True
            self._queue.put_nowait(moves.Pause())
            if self._line is not None:
                return
        self.code, self.is_leaving = INTERRUPTED, True
        self._queue.put_nowait(Leave())

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
        if isinstance(typed, _Typed) and (answer := _answer_to_question(typed, run)) is not None:
            await self._do(answer)
            return
        if isinstance(typed, _Typed) and self._rows is not None and not typed.line.lstrip().startswith("/"):
            # A line that starts with / is a command of the chat, as always.
            await self._edit_row(self._rows, typed.line, run)
            return
        match _understand_typed(typed, run) if isinstance(typed, _Typed) else typed:
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
            case OnFile() as command:
                assert self._client is not None, "it is held"
                board.say(*await work_on_file(self._client, run, command, self._person))
            case Leave():
                await self._leave(run)
            case Do(event=event):
                await self._do(event)
            case event:
                await self._do(event)

    async def _do(self, event: Event) -> None:
        """Do something with the run, and wait until that is shown: what is typed next is meant for what follows."""
        client, run, before = self._client, self._view.run, self._shown
        assert client is not None, "it is held"
        assert run is not None, "shown before anything is typed"
        await client.act(run.id, event, by=self._person)
        with suppress(TimeoutError):
            async with asyncio.timeout(SEEN_S):
                while self._shown == before:
                    self._changed.clear()
                    await self._changed.wait()

    async def _leave(self, run: SharedRunView) -> None:
        if self._is_here and "pause" in run.acts:
            with suppress(RemitError):  # it has ended meanwhile, or the host pauses it when it returns
                await self._do(moves.Pause())
        self._over.set()

    # ── editing ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _edit(self, run: SharedRunView) -> None:
        assert run.draft is not None, "a draft is edited"
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
        if not editor:
            if self._line is not None and self._view.board.redraws:
                self._line.begin(f"/edit {run.draft.text}")
            else:
                self._open_rows(run)
            return
        self._editing = True
        try:
            async with self._view.board.aside():
                text = await in_editor(editor, "draft", run.draft.text, ".txt")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            self._view.board.say(
                f"{one_line(editor)} failed: {one_line(why or str(error))}. The draft is still pending.",
                "→ Set $EDITOR to a working editor, or type the new text: /edit TEXT",
            )
            return
        finally:
            self._editing = False
        if not text.strip() or text == run.draft.text:
            self._view.board.say("Nothing was changed. The draft is still pending.")
            return
        await self._do(moves.Approve(run.draft.id, text))

    def _open_rows(self, run: SharedRunView) -> None:
        assert run.draft is not None, "a draft is edited"
        self._rows = row_edits.opened(run.draft.id, run.draft.text)
        self._view.board.say("The draft in rows; those that you do not change stay:", *row_edits.shown(self._rows))
        self._view.board.say(*row_edits.HELP)

    async def _edit_row(self, editor: RowEditor, line: str, run: SharedRunView) -> None:
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

    def _close_rows(self, run: SharedRunView) -> None:
        """Stop editing a draft that is not pending any more, and show what was typed."""
        rows = self._rows
        if rows is None or (run.draft is not None and run.draft.id == rows.draft):
            return
        self._rows = None
        text = ("Your text was:", *text_lines(rows.text)) if rows.changed else ()
        self._view.board.say("The draft that you edited is not pending any more.", *text)

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

    def _note_questions(self, run: SharedRunView) -> None:
        """Report permission requests, as there is nobody at the terminal; deny them, unless others can answer."""
        for question in run.questions:
            if question.id in self._noted_questions:
                continue
            self._noted_questions.add(question.id)
            title = one_line(question.title, 300)
            if self._is_here:
                self._queue.put_nowait(moves.Decide(question.id))
                self._view.board.say(f"Your agent asked for permission, but nobody is here to answer: {title}")
            else:
                self._view.board.say(f"Your agent asks for permission: {title}", self._view.join(run))


class _Typed(NamedTuple):
    line: str
    draft: str | None
    """The draft that was shown when the line was entered."""
    question: str | None
    """The permission request that was shown then."""


def _answer_to_question(typed: _Typed, run: SharedRunView) -> moves.Decide | None:
    """Return the answer to the permission request that was shown when the line was typed; None: it is none."""
    question = next((each for each in run.questions if each.id == typed.question), None)
    if question is None:
        return None
    word = typed.line.strip().lower()
    if word in ("n", "no"):
        return moves.Decide(question.id)
    if word.isdecimal() and 1 <= int(word) <= len(question.choices):
        return moves.Decide(question.id, question.choices[int(word) - 1].id)
    return None


def _understand_typed(typed: _Typed, run: SharedRunView) -> Meaning | None:
    """Return the meaning of a line; an answer applies only to the draft that was shown when it was typed."""
    meaning = understood(typed.line, run)
    answers = isinstance(meaning, Edit | EditRows) or (isinstance(meaning, Do) and isinstance(meaning.event, _ANSWERS))
    if answers and run.draft is not None and run.draft.id != typed.draft:
        # A text, as in /edit TEXT, was long to type; an answer of a word could be entered again without reading.
        is_text = typed.line.lstrip().startswith("/") and " " in typed.line.strip()
        return Tell(("There is a newer draft. Read it first.",), again=typed.line if is_text else "")
    return meaning


# ── starting and continuing ───────────────────────────────────────────────────────────────────────────────────────────


async def _find_or_start_run(client: DeviceClient, requested: RequestedRun, by: Person) -> str:
    """Start, continue or join a run, and return its id."""
    if requested.continued is None:
        return await _start_run(client, requested, by)
    run = continued(await client.runs(), requested).id
    if requested.objective is not None:
        await client.act(run, moves.SetObjective(requested.objective), by=by)
    if requested.mode is not None:
        await client.act(run, moves.SetMode(requested.mode), by=by)
    if requested.agent or "resume" in (await client.run(run)).acts:
        await client.act(run, moves.Resume(requested.agent), by=by)
    return run


async def _start_run(client: DeviceClient, requested: RequestedRun, by: Person) -> str:
    """Start a run; if the device has never announced what it shares, wait for that for a moment."""
    profile = (await client.profiles()).get(requested.profile)
    for _ in range(round(NEWS_S / POLL_S)):
        known = {each.id: each for each in await client.devices()}
        if profile is None or requested.device not in profile.devices or known[requested.device].offers is not None:
            break
        await asyncio.sleep(POLL_S)
    run = await client.start(
        requested.profile,
        requested.device,
        requested.objective or "",
        mode=requested.mode,
        agent=requested.agent,
        by=by,
    )
    return run.id


def continued(runs: Sequence[SharedRunLine], requested: RequestedRun) -> SharedRunLine:
    """Return the run to continue, or raise a `RemitError` that lists the candidates."""
    devices = requested.members or {requested.device}
    ours = [each for each in runs if each.profile == requested.profile and each.device in devices]
    name = requested.continued or NEWEST
    candidates = [each for each in ours if name != NEWEST and (each.id.startswith(name) or each.id.endswith(name))]
    left = [each for each in ours if each.state not in ENDED]
    if name == NEWEST:
        candidates = left[-1:]
    if len(candidates) == 1 and candidates[0].state not in ENDED:
        return candidates[0]
    between = f"between {requested.profile} and {requested.device_name}"
    if not candidates:
        why = f"no run {between} can be continued"
        if name != NEWEST:
            why = f"no such run `{name[:100]}` {between}"
    elif len(candidates) > 1:
        why = f"ambiguous id `{name[:100]}`: {', '.join(each.id for each in candidates)}"
    else:
        why = f"the run {candidates[0].id} has ended and cannot be continued"
    others = f"Runs that can be continued: {', '.join(each.id for each in left)}." if left else ""
    advice = "Type more characters." if len(candidates) > 1 else others or "Start one with --objective TEXT."
    raise RemitError(fault(Code.NOT_FOUND, why, suggestion=advice))
