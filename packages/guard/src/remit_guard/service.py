"""The sessions of all coding tools of one user, over one hub."""

import asyncio
import hashlib
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any
from unicodedata import combining, normalize

from msgspec.structs import replace

from remit.hub.hub import Hub
from remit.policy.guards import fan_out
from remit.policy.verdict import ALLOW, Facts, Refuse, Verdict
from remit.ports.brief import Brief
from remit.protocol.envelope import USER, Answer, Request
from remit.protocol.errors import Fault, RemitError
from remit_guard.days import DayLedger
from remit_guard.session import GuardedAgent, GuardedSession
from remit_guard.settings import NO_RULES, GuardRules, GuardSettings

# A title names a task in a few words; one that is as long as a task would be refused as an objective.
TITLE_CHARACTERS = 200
# A session of a tool, and each of its sub-agents, has a slot for as long as it runs.
SLOTS = 10_000
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
# A name is the head of a line in a tree; the longest that an agent may have would not fit there.
NAME_CHARACTERS = 60


# A person may leave a session open over night.
SILENT_S = 86_400.0


TakeUp = Callable[[GuardedSession], Awaitable[None]]
Forget = Callable[[GuardedSession], object]


class GuardService:
    """Opens sessions, and finds the agent that a request of the hub stands for."""

    def __init__(
        self,
        hub: Hub,
        settings: Callable[[str], GuardSettings],
        days: DayLedger | None = None,
        rules: GuardRules = NO_RULES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sessions: dict[tuple[str, str], GuardedSession] = {}
        """Sessions that are open, by tool and the id that it gives them."""
        self._hub = hub
        self._settings = settings
        self._days = DayLedger() if days is None else days
        self._clock = clock
        self._forgetting: dict[str, Forget] = {}
        self._opening = asyncio.Lock()
        """Held while a session is opened: hooks that come at once find it open, or open one."""
        self._tool_guards = rules.tool_guards
        hub.reconfigure(guards=[self._judge, *rules.guards])

    async def session(
        self, tool: str, name: str, *, user: str, task: str, folder: str = "", take_up: TakeUp | None = None
    ) -> GuardedSession | Fault:
        """Return a session, opened in a folder if it is new; a fault if its run is refused.

        *take_up* is run before anybody else gets a new session: it tells what happened before the guard knew it.
        """
        async with self._opening:
            if (known := self.sessions.get((tool, name))) is not None:
                known.heard_s = self._clock()
                return known
            await self._close_silent()
            new = await self._open(tool, name, user, task, folder)
            if take_up is not None and isinstance(new, GuardedSession):
                try:
                    await take_up(new)
                except BaseException:  # the next event tries again, since nothing may start that does not know the past
                    await self.close(tool, name, "what happened before could not be read")
                    raise
            return new

    async def _open(self, tool: str, name: str, user: str, task: str, folder: str) -> GuardedSession | Fault:
        common = self._settings(tool).of_tool(tool)
        project = common.project_of(folder)
        settings = common.of_project(project)
        self._register(tool, settings.reserve, draws=False)
        new = self.sessions[tool, name] = GuardedSession(
            self._hub, tool, name, settings, self._days, project, self._tool_guards
        )
        new.heard_s = self._clock()
        if (refused := await new.open(user, task)) is not None:
            del self.sessions[tool, name]
            return refused
        return new

    def is_open(self, tool: str, name: str) -> bool:
        """Return whether a session is known."""
        return (tool, name) in self.sessions

    def is_asking(self, task: asyncio.Task[Any]) -> bool:
        """Return whether a task waits for a person."""
        return any(task in session.asking for session in self.sessions.values())

    async def close(self, tool: str, name: str, outcome: str) -> None:
        """End a session."""
        if (known := self.sessions.pop((tool, name), None)) is not None:
            if (forget := self._forgetting.get(tool)) is not None:
                forget(known)
            await known.close(outcome)

    def when_closed(self, tool: str, forget: Forget) -> None:
        """Have what is known of a session of a tool forgotten when it ends."""
        self._forgetting[tool] = forget

    async def _close_silent(self) -> None:
        """End the sessions of tools that were killed. One that goes on is opened again, with all that it has spent."""
        before = self._clock() - SILENT_S
        for tool, name in [key for key, each in self.sessions.items() if each.heard_s < before]:
            await self.close(tool, name, "nothing was heard of it for a day")

    async def spawn(
        self, session: GuardedSession, parent: GuardedAgent, request: str, kind: str, title: str, task: str
    ) -> str | None:
        """Ask whether an agent may start another one of a kind; return the refusal as a sentence for its model."""
        name, tokens = self._set_aside(session, kind)
        refused = await session.spawn(parent, request, name, title[:TITLE_CHARACTERS], task, tokens)
        return await self._unrecorded(session, request) if refused is None else refused

    async def _unrecorded(self, session: GuardedSession, request: str) -> str | None:
        """Take back an agent that may start if that cannot be recorded, as on a full disk; return the refusal."""
        try:
            await self._hub.store.flush()
        except RemitError as error:
            session.give_up(request)
            return f"A sub-agent that cannot be recorded may not start: {error.fault.message}. {error.fault.suggestion}"
        return None

    async def revive(
        self, session: GuardedSession, parent: GuardedAgent, request: str, kind: str, title: str, task: str
    ) -> str | None:
        """Begin the delegation of an agent that runs already; return why it must not go on."""
        name, tokens = self._set_aside(session, kind)
        return await session.begin(parent, request, name, title[:TITLE_CHARACTERS], task, tokens)

    def _set_aside(self, session: GuardedSession, kind: str) -> tuple[str, int]:
        """Return the name of a kind in the hub, and the tokens that one agent of it has when it starts."""
        limits = session.settings.kinds.get(kind)
        tokens = session.settings.reserve if limits is None else limits.tokens
        name = agent_name(kind)
        known = self._hub.cards.get(name)
        if known is not None and known.draws is not (
            limits is None
        ):  # a tool is called so, or a kind with other limits
            name = f"{name}-agent"
        self._register(name, tokens, draws=limits is None)
        return name, tokens

    def _register(self, name: str, tokens: int, *, draws: bool) -> None:
        card = self._hub.cards.get(name)
        if card is None:
            self._hub.add(
                name,
                self._run,
                description="A kind of agent of a coding tool.",
                may_call=["*"],
                recursive=True,
                draws=draws,
                tokens=tokens,
                concurrency=SLOTS,
            )

    async def _run(self, brief: Brief) -> Answer:
        return await self._agent_of(brief.request).last(brief)

    def _judge(self, request: Request, facts: Facts) -> Verdict:
        """Within the limits of the session, where the hub's are those of all."""
        session, agent = self._started_by(request)
        if session is None or agent is None:
            return ALLOW
        if agent.refused is not None:
            return Refuse(agent.refused)
        return fan_out(request, replace(facts, limits=replace(facts.limits, max_fan_out=session.settings.at_once)))

    def _agent_of(self, request: Request) -> GuardedAgent:
        if request.remit.chain:
            _, agent = self._started_by(request)
        else:
            session = self.sessions.get((request.target, request.correlation or ""))
            agent = None if session is None else session.root
        if agent is None:
            raise LookupError("only the guard starts agents of tools")
        return agent

    def _started_by(self, request: Request) -> tuple[GuardedSession | None, GuardedAgent | None]:
        """Return the sub-agent that a request would start, with its session."""
        session = next((each for each in self.sessions.values() if each.run == request.run), None)
        return session, None if session is None else session.waiting.get(request.correlation or "")


def agent_name(kind: str) -> str:
    """Return a tool's name for a kind of agent as the name of an agent, which has letters of ASCII only."""
    plain = "".join(letter for letter in normalize("NFKD", kind) if not combining(letter))
    name = _NO_NAME.sub("-", plain).strip("-._")
    if name == USER or len(name) > NAME_CHARACTERS or not plain.isascii():
        digest = hashlib.sha256(kind.encode(errors="replace")).hexdigest()[:6]
        name = f"{name[:NAME_CHARACTERS].strip('-._') or 'agent'}-{digest}"
    return name or "agent"
