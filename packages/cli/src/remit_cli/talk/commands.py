"""The slash commands of a conversation."""

from collections.abc import Awaitable, Callable, Iterator, Sequence

from remit.policy.limits import Limits
from remit.protocol.card import AgentCard
from remit.protocol.envelope import Message, Usage
from remit.protocol.problems import did_you_mean
from remit.runtime.run_tree import Tree
from remit.words.terminal import one_line, several_lines
from remit_cli.drive.order import Order
from remit_cli.show.screen import clock_time, many, spell_ms
from remit_cli.show.tree_lines import history
from remit_cli.talk.history import ConversationHistory

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
        spent = await self._past.spent()
        root = self.last.root if self.last else None
        asked = many(spent.requests, "request")
        last = "no requests yet"
        if root is not None and root.response is not None:
            last = f"{_tokens(root.response.usage)}, {spell_ms(root.response.duration_ms)}"
        return [
            f"the last answer    {last}",
            f"this conversation  {_tokens(spent.usage)}, {spell_ms(spent.duration_ms)}, {asked}",
            f"an answer may take {tokens:,} tokens, {spell_ms(time_ms)}",
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
    return f"{'about ' if usage.estimated else ''}{usage.total:,} tokens"
