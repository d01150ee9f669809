"""Shows the changes of a run of two agents: on the terminal, as plain lines, or as JSON."""

import re
from collections.abc import Callable

from msgspec.structs import replace

from remit.cli.drive.running import Data
from remit.cli.shared import documents, wording
from remit.cli.shared.board import FooterScreen
from remit.cli.shared.wording import Connection
from remit.cli.show.screen import now_ms
from remit.cli.talk.input_line import InputLine
from remit.config.device_process import DeviceProcess
from remit.relay.session.moves import ENDED, SessionState
from remit.server.public_runs import EntryView, QuestionView, SharedRunView
from remit.words.terminal import one_line


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
        self._told = set[str]()
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
            if entry.id not in self._told:
                self._told.add(entry.id)
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
            self._document(documents.turn(run, entry))
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
            self._document(documents.draft(run, self._device))
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
        asks = _asks(run)
        if asks is None or self._line is None or self.board.redraws:
            return
        if before is None or before.questions[:1] != run.questions[:1]:
            self.board.tell(wording.permission_lines(asks))

    def show_draft(self) -> None:
        """Show the whole pending draft."""
        run = self.run
        waits = run is not None and run.draft is not None and run.state not in ENDED
        self.board.tell(wording.draft_lines(run) if run is not None and waits else ["No pending draft."])

    def remind(self) -> None:
        """Print again what waits for an answer, if it does not stay visible by itself."""
        if self.board.redraws or self.run is None or self._line is None:
            return
        if (asks := _asks(self.run)) is not None:
            self.board.say(wording.permission_keys(asks))
        elif self.run.state is SessionState.READY_TO_SEND and self.run.draft is not None:
            self.board.say(f"The draft for turn {self.run.turn + 1} needs your review: {wording.KEYS} · /show")

    def finish(self) -> None:
        """Print the document of the whole run, if requested."""
        if self._as_json and self.run is not None:
            self._document(documents.whole(self.run, self.connection, self._device))

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
            says = f"{name} is not reachable yet: {one_line(message)}. Retrying. {one_line(suggestion)}"
            self._note(says.rstrip())

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
            asks=_asks(self.run),
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
        state = documents.state(run, self.connection)
        tells = (run.state, run.mode, run.objective, run.decides, self.connection)
        if tells != self._documented:
            self._documented = tells
            self._document(state)

    def _document_delivery(self, before: SharedRunView, run: SharedRunView) -> None:
        delivery = wording.last_delivery(run)
        if self._as_jsonl and delivery is not None and delivery != wording.last_delivery(before):
            self._document(documents.delivery(run, run.turn, delivery))

    def _document(self, document: object) -> None:
        if self._data.is_terminal:
            with self.board.cleared():
                self._data.document(document)
        else:
            self._data.document(document)


def _asks(run: SharedRunView) -> QuestionView | None:
    """Return the permission that the local agent asks for; others are asked after it."""
    return run.questions[0] if run.questions else None


def _last(run: SharedRunView) -> str:
    """Return the id of the newest message; empty if there is none."""
    return run.timeline[-1].id if run.timeline else ""
