"""One conversation with an agent: each request is a run in the same session, and lines with `/` are commands."""

import asyncio
import os
import shlex
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import click
from msgspec.structs import replace

from remit.hub.hub import Hub
from remit.policy.budget import amounts
from remit.policy.limits import Limits
from remit.ports import Decision, Question, Store
from remit.protocol.card import AgentCard
from remit.protocol.envelope import VERSION, ContextFilter, Message, Request, Response, Usage
from remit.protocol.errors import TABLE, Code, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.problems import did_you_mean
from remit.protocol.records import Record
from remit.runtime.approvers import InboxApprover
from remit.runtime.redactor import Redactor
from remit.runtime.run_tree import Tree
from remit.runtime.sessions import session_of
from remit.words.terminal import one_line, several_lines
from remit_cli.config.composition import hub_of, vault_key_of
from remit_cli.config.load import load_team
from remit_cli.config.team import Team, tables
from remit_cli.drive import running
from remit_cli.drive.approver import TerminalApprover
from remit_cli.drive.order import Order
from remit_cli.drive.run_order import RunFollower, refuse_unknown
from remit_cli.drive.running import INTERRUPTED, Data, data_only, hearing, logging_to
from remit_cli.places import current_user, place_of, relative_path
from remit_cli.show.runs import delegation, exit_code, short, summary
from remit_cli.show.screen import clock_time, many, now_ms, spell_ms, worded
from remit_cli.show.tree_lines import cost_text, history
from remit_cli.talk.reading import PipedLines, input_line
from remit_cli.talk.transcript import Printed, Transcript
from remit_server.documents.common import failure_of
from remit_server.documents.runs import ChatBegun, DelegationLine, record_line

# As many as anybody would read again; the limits of a model do not matter here.
_TOKENS = 10_000_000


class ConversationUsage(NamedTuple):
    """The usage of all requests in a conversation so far."""

    requests: int
    usage: Usage
    duration_ms: int


class ConversationHistory:
    """One session of a store, as its user may see it."""

    def __init__(self, store: Store, session: str, user: str, agent: str, key: bytes | None) -> None:
        self._store = store
        self._session = session
        self._user = user
        self._agent = agent
        self._redactor = Redactor(None, key)

    async def check(self) -> None:
        """Find the user's session of this name; raise a `RemitError` if it is somebody else's or another agent's."""
        name = self._session
        self._session, owner = await session_of(self._store, name, self._user)
        if owner is None or owner == (self._user, self._agent):
            return
        # Another user's conversation reveals not even its agent.
        whose = f"with {owner.agent}, not with {self._agent}" if owner.user == self._user else "of another user"
        other = f"`remit chat {owner.agent}` continues it" if owner.user == self._user else "--user sets the user"
        code = Code.PERMISSION_DENIED if owner.user == self._user else Code.USER_MISMATCH
        raise RemitError(
            fault(
                code,
                f"session {name} belongs to a conversation {whose}",
                suggestion=f"Leave out --session to start a new one; {other}.",
            )
        )

    async def messages(self, last: int) -> list[Message]:
        """Return the last messages, oldest first, with their original values as far as these are still stored."""
        wanted = ContextFilter(last_messages=last)
        stored = await self._store.messages(self._session, wanted, now_ms=now_ms(), tokens=_TOKENS)
        texts = await self._as_typed([message.text for message in stored])
        return [replace(message, text=text) for message, text in zip(stored, texts, strict=True)]

    async def calls(self) -> list[DelegationLine]:
        """Return the calls of sub-agents, oldest first."""
        lines: list[DelegationLine] = []
        for run in await self._runs():
            tree = Tree()
            async for record in self._records(run=run):
                tree.feed(record)
            lines += [delegation(node, now_ms()) for node in tree.nodes.values() if node.parent is not None]
        return lines

    async def spent(self) -> ConversationUsage:
        """Return the usage so far."""
        requests, usage, duration_ms = set[str](), Usage(), 0
        async for record in self._records(session=self._session):
            match record.body:
                case Request(parent=None) as request:
                    requests.add(request.id)
                case Response() as response if response.id in requests:
                    usage += response.usage
                    duration_ms += response.duration_ms
                case _:
                    pass
        return ConversationUsage(len(requests), usage, duration_ms)

    async def _runs(self) -> Sequence[str]:
        return list(dict.fromkeys([record.run async for record in self._records(session=self._session)]))

    async def _records(self, *, run: str | None = None, session: str | None = None) -> AsyncIterator[Record]:
        after = 0
        while page := await self._store.records(run=run, session=session, after=after):
            for record in page:
                yield record
            after = page[-1].seq

    async def _as_typed(self, texts: list[str]) -> list[str]:
        """Return texts with the original values that came from this user."""
        self._redactor.open(self._store)
        whole = Response(
            version=VERSION,
            id=self._session,
            target=self._agent,
            status=Status.SUCCESS,
            session=self._session,
            result=texts,
        )
        return (await self._redactor.for_user(self._session, whole)).result


COMMANDS = {
    "help": "list the commands",
    "agents": "list the agents, and those that this agent may call",
    "history": "show messages: /history 50 shows the last 50",
    "calls": "show calls of sub-agents: /calls 50 shows the last 50",
    "budget": "show tokens and time spent, and the limits of one answer",
    "cancel": "cancel the current answer; also: Ctrl-C",
    "quit": "exit; also: Ctrl-D",
}
DEFAULT_COUNT = 20
_LONGEST = max(map(len, COMMANDS))

HELP = [
    *(f"/{name:{_LONGEST}}  {means}" for name, means in COMMANDS.items()),
    "",
    "Everything else is a request. For several lines, end each but the last with \\, or paste the text.",
    "To send a request that starts with /, type // instead.",
]


def command_in(text: str) -> str | None:
    """Return the typed command without its slash; None if the line is a request."""
    text = text.strip()
    return text[1:] if text.startswith("/") and not text.startswith("//") else None


def request_in(text: str) -> str:
    """Return the request that was typed."""
    text = text.strip()
    return text[1:] if text.startswith("//") else text


class ChatCommands:
    """The slash commands of one conversation."""

    def __init__(
        self, order: Order, past: ConversationHistory, cards: Callable[[], dict[str, AgentCard]], limits: Limits
    ) -> None:
        self._order = order
        self._past = past
        self._cards = cards
        self._limits = limits
        self.last: Tree | None = None
        """The newest run."""

    async def tell(self, command: str) -> list[str]:
        """Return the output of a command, or a suggestion for an unknown one."""
        name, _, argument = command.partition(" ")
        known: dict[str, Callable[[int], Awaitable[list[str]]]] = {
            "help": self._help,
            "agents": self._agents,
            "history": self._history,
            "calls": self._calls,
            "budget": self._budget,
        }
        if name not in known:
            near = did_you_mean(f"/{name}", [f"/{each}" for each in COMMANDS])
            return [f"No such command /{one_line(name, 60)}{near or '; see /help'}"]
        argument = argument.strip()
        if argument and not (argument.isdecimal() and int(argument)):
            return [f"/{name} takes a number: /{name} {DEFAULT_COUNT}"]
        return await known[name](int(argument or DEFAULT_COUNT))

    async def _help(self, _: int) -> list[str]:
        return HELP

    async def _agents(self, _: int) -> list[str]:
        cards = self._cards()
        ours = cards[self._order.agent]
        widest = max(map(len, cards))
        return [
            f"{one_line(name):{widest}}  {_relation(ours, card)}  {one_line(card.description, 100)}".rstrip()
            for name, card in cards.items()
        ]

    async def _history(self, count: int) -> list[str]:
        return list(format_messages(await self._past.messages(count))) or ["No messages yet."]

    async def _calls(self, count: int) -> list[str]:
        return list(history((await self._past.calls())[-count:])) or ["No calls yet."]

    async def _budget(self, _: int) -> list[str]:
        tokens = self._order.options.get("max_tokens") or self._limits.root_tokens
        time_ms = self._order.options.get("deadline_ms") or self._limits.root_time_ms
        cost = self._order.options.get("max_cost")
        cost = self._limits.root_cost if cost is None else cost
        money = "" if cost is None else f" and {amounts(cost)[0]} {self._limits.currency}"
        spent = await self._past.spent()
        root = self.last.root if self.last else None
        requests = many(spent.requests, "request")
        last = "no requests yet"
        if root is not None and root.response is not None:
            last = f"{_tokens(root.response.usage)}, {spell_ms(root.response.duration_ms)}"
        return [
            f"the last answer    {last}",
            f"this conversation  {_tokens(spent.usage)}, {spell_ms(spent.duration_ms)}, {requests}",
            f"an answer may take {tokens:,} tokens{money}, {spell_ms(time_ms)}",
        ]


def format_messages(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the messages of a conversation, each below its author and time."""
    for message, answered in _with_answers(messages):
        yield f"{clock_time(message.at_ms)}  {_speaker(message)}"
        yield from (f"    {line}" for line in several_lines(message.text).splitlines())
        if not answered:
            yield "    (no answer)"


def shortly(messages: Sequence[Message], width: int) -> Iterator[str]:
    """Yield one line for each message of a conversation."""
    for message, answered in _with_answers(messages):
        name = _speaker(message)
        yield f"  {name}: {one_line(message.text, max(20, width - len(name) - 4))}"
        if not answered:
            yield "  (no answer)"


def _with_answers(messages: Sequence[Message]) -> Iterator[tuple[Message, bool]]:
    """Yield each message, and whether it needs no answer or got one."""
    roles = [message.role for message in messages] + ["user"]
    for message, following in zip(messages, roles[1:], strict=True):
        yield message, message.role == "assistant" or following == "assistant"


def _speaker(message: Message) -> str:
    return "you" if message.role == "user" else one_line(message.name or "agent")


def _relation(ours: AgentCard, card: AgentCard) -> str:
    if card.name == ours.name:
        return "you talk to it "
    return "may be called  " if ours.may_reach(card.name) else "               "


def _tokens(usage: Usage) -> str:
    cost = cost_text(usage)
    return f"{'about ' if usage.estimated else ''}{usage.total:,} tokens{cost and f', cost {cost}'}"


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
            who = self.transcript.approver = current_user()
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
            self._hub, tree, self.transcript, self._on_record, at_terminal=self._approver is not None
        )
        return await self._follower.run(order)

    async def _on_record(self, record: Record, _: Hub) -> None:
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
