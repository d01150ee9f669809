"""Shows the changes of a run of two agents: on the terminal, as plain lines, or as JSON."""

import re
import shutil
import sys
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial

from msgspec.structs import replace

from remit.words.terminal import one_line, speaks_unicode
from remit_cli.drive.running import Data
from remit_cli.show.screen import now_ms, styled
from remit_cli.show.tree_lines import plain_ascii
from remit_cli.talk.transcript import PROMPT, Fragments, InputLine
from remit_relay.commands.shared import wording
from remit_relay.commands.shared.wording import Connection, cells, folded
from remit_relay.local_api.views import EntryView, QuestionView, SharedRunView
from remit_relay.session.moves import ENDED, SessionState
from remit_relay.team.device_process import DeviceProcess

# ── the board ─────────────────────────────────────────────────────────────────────────────────────────────────────────

Footer = Callable[[int, int], list[str]]
"""Returns the footer lines for a width and a height; may be empty."""


class FooterScreen:
    """Lines on stderr, above a footer and the input line, if the terminal can redraw.

    Otherwise, or without keyboard input, there are only lines, and a pending question is printed again.
    """

    def __init__(self, line: InputLine | None, footer: Footer) -> None:
        self._err = sys.stderr
        self._unicode = speaks_unicode(self._err)
        self._line = line
        self._footer = footer
        self.redraws = line is not None and line.redraws
        """Whether there is a footer."""
        if line is not None:
            line.shown = self._shown
        self._kept: list[str] = []
        self._lent = False

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Use the terminal within the block, and restore it after."""
        if self._line is None:
            yield
            return
        async with self._line.open():
            yield

    def say(self, *lines: str) -> None:
        """Print text above the footer."""
        self.tell(lines)

    def tell(self, lines: Iterable[str], *, fg: str | None = None, bold: bool = False, dim: bool = False) -> None:
        """Print lines above the footer; lines printed while the terminal is lent out appear afterwards."""
        text = list(lines)
        if self._line is None:  # a program reads the lines, or they are shown in another terminal later
            self._print(text)
            return
        width = shutil.get_terminal_size().columns
        text = [part for line in text for part in folded(line.expandtabs(4), max(10, width))]
        if (fg or bold or dim) and self._err.isatty():
            text = [styled(line, fg=fg, bold=bold, dim=dim) if line else line for line in text]
        # Agents print and log from their own threads.
        self._line.in_turn(partial(self._print, text))

    def tick(self) -> None:
        """Draw the footer again, if it has changed."""
        if self._line is not None:
            self._line.redraw()

    def cleared(self) -> AbstractContextManager[None]:
        """Remove the footer while another stream writes to the terminal."""
        return nullcontext() if self._line is None else self._line.above()

    @asynccontextmanager
    async def aside(self) -> AsyncGenerator[None]:
        """Lend the terminal, in its original state, within the block."""
        assert self._line is not None, "only a person at a terminal needs it"
        async with self._line.aside():
            self._lent = True
            try:
                yield
            finally:
                self._lent = False
                kept, self._kept = self._kept, []
                self._print(kept)

    def abandon(self) -> None:
        """Restore the terminal at once, because the process is about to end."""
        if self._line is not None:
            self._line.restore()

    # ── drawing ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _print(self, lines: list[str]) -> None:
        if self._lent:
            self._kept += lines
        elif lines:
            with self.cleared():
                text = "".join(f"{line}\n" for line in lines)
                self._err.write(text if self._unicode else plain_ascii(text))
                self._err.flush()

    def _shown(self, width: int, height: int) -> Fragments:
        """Return the footer and the prompt."""
        room = max(10, width - 1)
        footer = self._footer(room, height)
        # In a window that is too low the last lines are shown, because they list the possible commands.
        footer = [self._fitting(each, room) for each in footer[max(0, len(footer) - max(1, height - 2)) :]]
        styles = [""] * len(footer)
        if footer:
            styles[0], styles[-1] = "bold", "dim"
        return [*((style, f"{line}\n") for style, line in zip(styles, footer, strict=True)), ("", PROMPT)]

    def _fitting(self, line: str, room: int) -> str:
        """Return a line cut to a number of cells."""
        line = line if self._unicode else plain_ascii(line)
        while cells(line) > room:
            line = line[:-1]
        return line


# ── the view ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class SharedRunDisplay:
    """Shows one run. If stdout is not a terminal, events are data on stdout; everything else goes to stderr."""

    def __init__(self, data: Data, *, as_json: bool, as_jsonl: bool, line: InputLine | None) -> None:
        self._data = data
        self._as_json = as_json
        self._as_jsonl = as_jsonl
        self._line = line
        self.board = FooterScreen(line, self._footer)
        self.run: SharedRunView | None = None
        self.connection: Connection = "connecting"
        self.answer_elsewhere: Callable[[SharedRunView], str] = lambda _: ""
        """Returns the command that answers a draft from elsewhere, if nobody can type here."""
        self.join: Callable[[SharedRunView], str] = lambda _: ""
        """Returns the command that joins the run from another terminal."""
        self._device = ""
        self._shown_ms = 0
        """When the run was shown: its clock goes on from there."""
        self._shown_entries = set[str]()
        """The messages that were shown."""
        self._draft = ""
        self._documented: object = None
        self._link_why = ""
        self._outage = False
        self._trouble = ""

    # ── the run ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, run: SharedRunView, device: str, *, pauses: bool) -> None:
        """Show a run for the first time, with all earlier messages; *pauses* says whether it stops with this chat."""
        self._device = device
        self.board.tell(wording.heading(run, device, typed=self._line is not None, pauses=pauses))
        self.show(run)

    def show(self, run: SharedRunView) -> None:
        """Show the changes in the run."""
        before, self.run = self.run, run
        self._shown_ms = now_ms()
        self._document_state(run)
        for entry in (*run.timeline, *run.kept_replies):
            if entry.id not in self._shown_entries:
                self._shown_entries.add(entry.id)
                self._show_entry(run, entry)
        if before is not None:
            self._document_delivery(before, run)
            self._note_changes(before, run)
        self._note_state(before, run)
        self._note_question(before, run)
        self._note_draft(run)
        self.board.tick()

    def _show_entry(self, run: SharedRunView, entry: EntryView) -> None:
        speaker, *text = wording.entry_lines(entry)
        if self._as_jsonl:
            self._document(wording.turn_document(run, entry))
        elif not self._as_json and (self._line is None or not self._data.is_terminal):
            self._data.line("\n".join([speaker, *text]))
        if self._line is not None and not (self._as_jsonl and self._data.is_terminal):
            self.board.tell([speaker], fg=wording.COLOURS[entry.role], bold=True)
            self.board.tell(text)

    def _note_changes(self, before: SharedRunView, run: SharedRunView) -> None:
        if run.objective != before.objective:
            self._note(f"Objective: {one_line(run.objective)}")
        if run.mode != before.mode:
            self._note(f"Mode {run.mode}: {wording.MODES[run.mode]}.")
        if run.decides != before.decides:
            self._note(wording.writer(run))
            if before.draft is not None and run.draft is None and _last(run) == _last(before):
                self._note("The draft was set aside:", *wording.text_lines(before.draft.text))
        if run.rejected[-1:] != before.rejected[-1:]:
            self._note("Not sent. Your agent receives the reason and writes another draft.")

    def _note_state(self, before: SharedRunView | None, run: SharedRunView) -> None:
        was = None if before is None else before.state
        if run.state is was:
            return
        match run.state:
            case SessionState.PAUSED:
                able = " /resume continues; Ctrl-C again exits." if self._line is not None else ""
                self.board.say(f"Paused. Nothing is sent.{able}")
            case SessionState.ERROR:
                lines = wording.trouble(run, self._device, typed=self._line is not None)
                self.board.tell(lines, fg="red", bold=True)
            case SessionState.COMPLETED | SessionState.STOPPED:
                fg = "yellow" if run.banner else "green" if run.state is SessionState.COMPLETED else None
                self.board.tell(wording.ending(run), fg=fg, bold=True)
            case _ if was in {SessionState.PAUSED, SessionState.ERROR}:
                self._note("Resumed.", *([wording.writer(run)] if run.decides == "person" else []))
            case _ if was is None and run.decides == "person":
                self._note(wording.writer(run))
            case _:
                pass

    def _note_draft(self, run: SharedRunView) -> None:
        if run.draft is None or run.state is not SessionState.READY_TO_SEND or run.draft.id == self._draft:
            return
        self._draft = run.draft.id
        if self._as_jsonl:
            self._document(wording.draft_document(run, self._device))
        if self._line is None:
            self.board.tell([*wording.draft_lines(run), self.answer_elsewhere(run)])
            return
        # Text that was typed before the question appeared is not an answer, and neither is a command.
        if run.decides == "agent" and not self._line.text.startswith("/"):
            taken = self._line.take().strip()
            if len(taken) > 1:
                self._note("What you typed before this draft came was not entered; Ctrl-P brings it back.")
        if not self.board.redraws:
            self.board.tell([*wording.draft_lines(run), wording.KEYS])

    def _note_question(self, before: SharedRunView | None, run: SharedRunView) -> None:
        """Print a new permission request of the local agent, if it does not stay visible by itself."""
        question = _open_question(run)
        if question is None or self._line is None or self.board.redraws:
            return
        if before is None or before.questions[:1] != run.questions[:1]:
            self.board.tell(wording.permission_lines(question))

    def show_draft(self) -> None:
        """Show the whole pending draft."""
        run = self.run
        waits = run is not None and run.draft is not None and run.state not in ENDED
        self.board.tell(wording.draft_lines(run) if run is not None and waits else ["No pending draft."])

    def remind(self) -> None:
        """Print again what waits for an answer, if it does not stay visible by itself."""
        if self.board.redraws or self.run is None or self._line is None:
            return
        if (question := _open_question(self.run)) is not None:
            self.board.say(wording.permission_keys(question))
        elif self.run.state is SessionState.READY_TO_SEND and self.run.draft is not None:
            self.board.say(f"The draft for turn {self.run.turn + 1} needs your review: {wording.KEYS} · /show")

    def finish(self) -> None:
        """Print the document of the whole run, if requested."""
        if self._as_json and self.run is not None:
            self._document(wording.whole_document(self.run, self.connection, self._device))

    # ── connection and requests ───────────────────────────────────────────────────────────────────────────────────────

    def linked(self, connection: Connection, why: str) -> None:
        """Show the state of the connection to the gateway, and why it broke."""
        before, self.connection = self.connection, connection
        if (connection, why) == (before, self._link_why):
            return
        self._link_why = why
        if connection == "waiting" and not self._outage:
            self._outage = True
            # The rest is technical detail; --verbose shows it.
            self._note(f"No connection: {one_line(re.split('[;:]', why)[0])}. Retrying.")
        elif connection == "silent":
            self._outage = True
            self._note(f"{one_line(why[:1].upper() + why[1:])}. What you send waits until it answers.")
        elif connection == "connected":
            if self._outage:
                self._note("Connected again.")
            self._outage = False
        if connection != before and self.run is not None:
            self._document_state(self.run)
        self.board.tick()

    def troubled(self, message: str, suggestion: str) -> None:
        """Report a problem with the other device once; without a message, its recovery."""
        known, self._trouble = self._trouble, message
        if not message:
            if known:
                self._note("Pending messages were sent.")
        elif known != message:
            name = one_line(self._device) or "The other device"
            message_line = f"{name} is not reachable yet: {one_line(message)}. Retrying. {one_line(suggestion)}"
            self._note(message_line.rstrip())

    def lost(self, process: DeviceProcess | None) -> None:
        """Report that the process of the device does not answer; None: it does again."""
        if process is None:
            self._note("The device is back.")
        elif process.command == "up":
            self._note(f"{process.title} does not answer. Retrying.")

    def unable(self, run: str, by: str, why: str) -> None:
        """Report that a command from another terminal cannot be executed."""
        if self.run is not None and run == self.run.id:
            who = one_line(by, 60) or "somebody"
            self._note(f"The command of {who} in another terminal failed: {one_line(why)}.")

    def shared(self, *lines: str) -> None:
        """Print the calls of other devices to this team's agents."""
        self._note(*lines)

    def _footer(self, width: int, height: int) -> list[str]:
        if self.run is None or self.run.state in ENDED:
            return []
        now = now_ms()
        passed_ms = max(0, now - self._shown_ms) if self.run.is_active else 0
        return wording.footer(
            replace(self.run, active_ms=self.run.active_ms + passed_ms),
            connection=self.connection,
            question=_open_question(self.run),
            now_ms=now,
            width=width,
            height=height,
            device=self._device,
        )

    def _note(self, *lines: str) -> None:
        self.board.tell(lines, dim=True)

    # ── for programs ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _document_state(self, run: SharedRunView) -> None:
        if not self._as_jsonl:
            return
        state = wording.state_document(run, self.connection)
        tells = (run.state, run.mode, run.objective, run.decides, self.connection)
        if tells != self._documented:
            self._documented = tells
            self._document(state)

    def _document_delivery(self, before: SharedRunView, run: SharedRunView) -> None:
        delivery = wording.last_delivery(run)
        if self._as_jsonl and delivery is not None and delivery != wording.last_delivery(before):
            self._document(wording.delivery_document(run, run.turn, delivery))

    def _document(self, document: object) -> None:
        if self._data.is_terminal:
            with self.board.cleared():
                self._data.document(document)
        else:
            self._data.document(document)


def _open_question(run: SharedRunView) -> QuestionView | None:
    """Return the permission that the local agent asks for; others are asked after it."""
    return run.questions[0] if run.questions else None


def _last(run: SharedRunView) -> str:
    """Return the id of the newest message; empty if there is none."""
    return run.timeline[-1].id if run.timeline else ""
