"""One conversation with an agent: each request is a run in the same session."""

import asyncio
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from types import FrameType

import click
from msgspec.structs import replace

from remit.hub.hub import Hub
from remit.protocol.envelope import Message, Response
from remit.protocol.errors import TABLE, Code, RemitError, fault
from remit.protocol.records import Record
from remit.runtime.approvers import InboxApprover
from remit.runtime.ports import Decision, Question
from remit.runtime.run_tree import Tree
from remit.words.terminal import one_line
from remit_cli.config.composition import hub_of, vault_key_of
from remit_cli.config.load import load_team
from remit_cli.config.team import Team
from remit_cli.config.team_section import tables
from remit_cli.drive import running
from remit_cli.drive.approver import TerminalApprover
from remit_cli.drive.order import Order
from remit_cli.drive.run_order import RunFollower, refuse_unknown
from remit_cli.drive.running import INTERRUPTED, Data, data_only, hearing, logging_to
from remit_cli.places import relative_path
from remit_cli.show.report import exit_code, summary
from remit_cli.show.run_list import short
from remit_cli.show.screen import worded
from remit_cli.store_view import place_of
from remit_cli.talk.commands import COMMANDS, ChatCommands, command_in, request_in, shortly
from remit_cli.talk.history import ConversationHistory
from remit_cli.talk.reading import PipedLines, input_line
from remit_cli.talk.transcript import Printed, Transcript
from remit_cli.teams import current_user
from remit_server.documents.common import failure_of
from remit_server.documents.runs import ChatBegun, record_line

# As much of an earlier conversation as a reminder needs.
REMINDED = 6
# As many earlier requests as anyone would browse with the arrow keys.
RECALLED = 200

LEAVING = ("quit", "exit")


def new_session() -> str:
    """Return a unique session id."""
    return f"chat-{os.urandom(6).hex()}"


class ChatSession:
    """A hub and the agent that the user chats with; everything but `hear` happens in its event loop."""

    def __init__(
        self, order: Order, team: Team, data: Data, *, as_jsonl: bool, verbose: bool, terminal: int | None
    ) -> None:
        self._order = order
        self._team = team
        self._data = data
        self._as_jsonl = as_jsonl
        self._verbose = verbose
        self._line = None if terminal is None else input_line(terminal, self._entered, commands=[*COMMANDS])
        self._piped = PipedLines()
        self.transcript = Transcript(data, as_jsonl=as_jsonl, line=self._line)
        self._approver = None
        if terminal is not None and team.approvals.otherwise == "terminal":
            who = self.transcript.asked = current_user()
            self._approver = TerminalApprover(self.transcript, who, terminal)
        self._follower: RunFollower | None = None
        self._asking = asyncio.Lock()
        self._telling: set[asyncio.Task[None]] = set()
        self._inbox: asyncio.Queue[str | None] = asyncio.Queue()
        """Entered requests that wait for their turn."""
        self._reading: asyncio.Task[str | None] | None = None
        self._working = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._signals = 0
        """The number of stop signals since the chat last waited for a request."""
        self._over = False
        """Whether the user wants to exit."""
        self.code = 0
        """The exit code of the last run."""

    # ── lifecycle ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def serve(self) -> None:
        """Open the hub and answer requests until the input ends or the user exits."""
        self._loop = asyncio.get_running_loop()
        hub = self._hub = hub_of(self._team, approver=self._approve if self._approver else None)
        refuse_unknown(self._order.agent, hub)
        with self._printing(), logging_to(self.transcript.say, verbose=self._verbose):
            async with hub:
                before = await self._begin(hub)
                async with AsyncExitStack() as stack:
                    if self._line is not None:
                        history = [each.text for each in before if each.role == "user"]
                        await stack.enter_async_context(self._line.open(history))
                    await self._converse()
                self._signals = 0

    async def _converse(self) -> None:
        while not self._over:
            self._signals = 0
            self._reading = asyncio.create_task(self._next())
            await asyncio.wait({self._reading})
            reading, self._reading = self._reading, None
            if reading.cancelled() or (text := reading.result()) is None:
                return
            self._working = True
            try:
                await self._take(text)
            finally:
                self._working = False

    async def _next(self) -> str | None:
        """Return the next line; None at the end of input."""
        if self._line is None:
            return await self._piped.read()
        if self._inbox.empty():
            self.transcript.ask()
        return await self._inbox.get()

    @contextmanager
    def _printing(self) -> Generator[None]:
        """Print the output of agents above the input line, if that stays visible."""
        if self._line is None or not self._line.redraws:
            yield
            return
        printed = Printed(sys.stderr, self.transcript.say)
        with redirect_stdout(printed), redirect_stderr(printed):
            yield
        printed.finish()

    async def _begin(self, hub: Hub) -> list[Message]:
        """Show the session, and return its earlier messages."""
        order, session = self._order, self._order.options.get("session")
        assert session is not None, "a conversation has a session"
        past = ConversationHistory(hub.store, session, order.user, order.agent, vault_key_of(self._team))
        await past.check()
        before = await past.messages(RECALLED)
        limits = self._team.settled_limits()
        self._commands = ChatCommands(order, past, lambda: hub.cards, limits)
        if self._as_jsonl:
            store = str(relative_path(place_of(self._team)))
            begun = ChatBegun(session=session, agent=order.agent, user=order.user, messages=len(before), store=store)
            self._data.document(begun)
        self.transcript.say(
            f"{one_line(order.agent)}, session {one_line(session)}; /help lists commands, Ctrl-D exits."
        )
        if before:
            self.transcript.say("Earlier in this conversation (/history shows more):")
            for line in shortly(before[-REMINDED:], shutil.get_terminal_size().columns - 1):
                self.transcript.say(line)
        return before

    # ── stop signals ──────────────────────────────────────────────────────────────────────────────────────────────────

    def hear(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as Python calls it
        """Handle a stop signal; a second one, before the chat waits for the next request, exits at once."""
        self._signals += 1
        if self._signals > 1:
            self.transcript.abandon()
            os._exit(INTERRUPTED)
        if self._loop is None:
            self._leave()
            return
        with suppress(RuntimeError):  # the loop is closed: the chat is exiting already
            self._loop.call_soon_threadsafe(self._stop_or_leave, number)

    def _stop_or_leave(self, number: int) -> None:
        if self._working:
            if number != signal.SIGINT:
                self._leave()
            self._stop(signal.Signals(number).name)
        elif self._reading is not None and self._line is not None and number == signal.SIGINT:
            self._signals = 0
            self.transcript.drop_line()
        else:
            self._leave()

    def _leave(self) -> None:
        self._over, self.code = True, INTERRUPTED
        if self._reading is not None:
            self._reading.cancel()

    # ── input ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _take(self, text: str) -> None:
        """Execute a command or a request."""
        command = command_in(text)
        if command is not None:
            await self._carry_out(command)
        elif request := request_in(text):
            await self._answer(request)

    def _stop(self, why: str) -> None:
        """Cancel the current run; its finished parts are kept."""
        if self._follower is not None and not self._follower.stopping:
            self._follower.stop(why)

    def _entered(self, line: str | None) -> None:
        """Handle a line from the terminal; a request waits until the previous one is answered."""
        if not self._working:
            if line is not None:
                self.transcript.echo(line)
            self._inbox.put_nowait(line)
        elif line is None:
            self._over = True
            self.transcript.say("Exiting after this answer; /cancel cancels it.")
        elif command_in(line) in LEAVING:
            self._over = True
            self._stop("/quit")
        elif (command := command_in(line)) is not None:
            task = asyncio.get_running_loop().create_task(self._carry_out(command))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)
        elif line.strip():
            self._inbox.put_nowait(line)
            self.transcript.say(f"Queued: {one_line(line)}")

    async def _carry_out(self, command: str) -> None:
        match command.strip():
            case name if name in LEAVING:
                self._over = True
            case "cancel" if self._follower is None:
                self.transcript.say("Nothing to cancel.")
            case "cancel":
                self._stop("/cancel")
            case other:
                try:
                    lines = await self._commands.tell(other)
                except RemitError as error:
                    lines = [worded(error.fault)]
                for line in lines:
                    self.transcript.say(line)

    # ── one answer ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _answer(self, request: str) -> None:
        if self._line is None:
            self.transcript.say(f"> {one_line(request)}")
        tree = Tree()
        order = replace(self._order, text=request)
        try:
            with self.transcript.run(tree):
                # A separate task, so that a run that is cancelled before its first record ends alone.
                task = asyncio.get_running_loop().create_task(self._run_order(order, tree))
                await asyncio.wait({task})
                async with self._asking:  # a question of a resumed run uses the terminal first
                    follower, self._follower = self._follower, None
                if not task.cancelled():
                    self.transcript.answer(task.result().result)
        except RemitError as error:
            self.code = TABLE[error.fault.code].exit_code
            if self._as_jsonl:
                self.transcript.document(failure_of(error.fault))
            self.transcript.say(worded(error.fault))
            return
        if task.cancelled():
            self.code = INTERRUPTED
            self.transcript.say("Cancelled before it started.")
            return
        self._commands.last = tree
        self._tell_end(tree, task.result(), stopped=follower is not None and follower.stopping)

    async def _run_order(self, order: Order, tree: Tree) -> Response:
        self._follower = RunFollower(
            self._hub, tree, self.transcript, self._heard, at_terminal=self._approver is not None
        )
        return await self._follower.run(order)

    async def _heard(self, record: Record, _: Hub) -> None:
        if self._as_jsonl:
            self.transcript.document(record_line(record))

    def _tell_end(self, tree: Tree, response: Response, *, stopped: bool) -> None:
        self.code = exit_code(response)
        for line in summary(tree, response, interrupted=stopped and self.code == INTERRUPTED):
            self.transcript.remark(line)
        if not response.ok:
            self.transcript.remark(f"→ remit runs show {short(response.run)}")

    async def _approve(self, question: Question) -> Decision:
        """Ask the person at the terminal, unless they are typing: then the question waits in the inbox."""
        async with self._asking:
            if self._approver is not None and self._follower is not None:
                return await self._approver(question)
        return await InboxApprover(self._hub.store)(question)


def hint(order: Order, named_team: Path | None) -> str:
    """Return the command that continues a conversation later."""
    team = f" --team {shlex.quote(str(named_team))}" if named_team else ""
    user = f" --user {shlex.quote(order.user)}" if order.user != current_user() else ""
    session = shlex.quote(order.options.get("session") or "")
    return f"→ remit chat {shlex.quote(order.agent)} --session {session}{user}{team}"


def chat_with_agent(order: Order, *, as_jsonl: bool, verbose: bool, named_team: Path | None) -> int:
    """Run a conversation to its end, and return the exit code of its last run."""
    with data_only() as data:
        team = load_team(Path(order.team_file), overrides=order.overrides, serving=False)
        _refuse_profile(team, order.agent)
        terminal = sys.stdin.fileno() if sys.stdin.isatty() and sys.stderr.isatty() else None
        chat = ChatSession(order, team, data, as_jsonl=as_jsonl, verbose=verbose, terminal=terminal)
        with hearing(chat.hear):
            _, stuck = running.run(chat.serve())
        if stuck:
            running.leave(chat.code)
        click.echo(hint(order, named_team), err=True)
        return chat.code


def _refuse_profile(team: Team, name: str) -> None:
    """Raise a `RemitError` if a profile was named without a device."""
    if name in team.everyone or name not in tables(team, "profiles"):
        return
    raise RemitError(
        fault(
            Code.AGENT_NOT_FOUND,
            f"`{name}` is a profile, not an agent; it works with an agent that another device shares",
            suggestion=f"Give the device and the objective: remit chat {name} DEVICE --objective TEXT",
        )
    )
