"""One process of an ACP agent: greeted, asked turn by turn, cancelled, ended. Loaded with the SDK it needs."""

import asyncio
import logging
import os
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, Protocol, cast

import acp
import msgspec
from acp import schema
from pydantic import ValidationError

from remit.agents.mcp.settings import Program
from remit.relay.bridge.acp_wire import MAX_BYTES, MAX_LINES, Updated, Wire
from remit.relay.bridge.bounds import held, shown, too_long, too_many_rounds, tool_rounds_allowed
from remit.relay.bridge.permissions import AskUser, Choice, Permission
from remit.relay.bridge.ports import Draft, Failed
from remit.relay.bridge.process import Child, NotStartedError
from remit.relay.bridge.supervised import Link
from remit.relay.bridge.wording import in_words, read
from remit.relay.frames import PromptRequest

log = logging.getLogger("remit.relay")

VERSION = 1
# How long a turn that is cancelled has to end, before its process is.
CANCEL_S = 3.0
# A person who has not decided by then is not there.
ASK_S = 300.0
# Whoever asks more often in one turn wears its user down.
MAX_QUESTIONS = 20
# A profile has a few sessions at once; an agent keeps each in memory.
MAX_SESSIONS = 32
MAX_DETAILS = 2_000
CLOSE_S = 1.0

_AUTH_REQUIRED = -32_000
_STOPPED: dict[str, str] = {
    "max_tokens": "the local agent stopped at its own limit of tokens",
    "max_turn_requests": "the local agent stopped at its own limit of steps",
    "refusal": "the local agent refuses to go on",
    "cancelled": "the local agent cancelled its turn",
}


class Connection(Protocol):
    """The part of `acp.ClientSideConnection` that is used here."""

    def initialize(
        self,
        protocol_version: int,
        client_capabilities: schema.ClientCapabilities,
        client_info: schema.Implementation,
    ) -> Awaitable[schema.InitializeResponse]: ...

    def new_session(self, cwd: str, *, mcp_servers: list[Any]) -> Awaitable[schema.NewSessionResponse]: ...

    def prompt(self, session_id: str, prompt: list[Any]) -> Awaitable[schema.PromptResponse]: ...

    def cancel(self, session_id: str) -> Awaitable[None]: ...

    def close(self) -> Awaitable[None]: ...


class Turn:
    """What comes of one prompt while it is in flight."""

    def __init__(self, session: str, request: PromptRequest, timer: asyncio.Timeout) -> None:
        self.session = session
        self.request = request
        self.is_over = False
        self.failure: asyncio.Future[Failed] = asyncio.get_running_loop().create_future()
        """Why it has to be cancelled, once it does."""
        self.questions: set[asyncio.Future[str | None]] = set()
        self.asked = 0
        self._timer = timer
        self._left_s: float | None = None
        """How much time it had when its clock was stopped."""
        self._tools: set[str] = set()
        self._said: list[str] = []
        self._chars = 0
        self._before = ""

    @property
    def tool_rounds(self) -> int:
        return len(self._tools)

    def say(self, text: str) -> None:
        """Add to the message, unless it gets too long."""
        self._chars += len(text)
        # What says that all is done does not count, so there is a little room for it.
        if self._chars > self.request.constraints.max_output_chars + 100:
            self.fail(too_long(self.request.constraints))
        else:
            self._said.append(text)

    def use(self, tool_call: str) -> None:
        """Count a tool call, unless it is known; what was said before it is not the message."""
        if tool_call in self._tools:
            return
        self._tools.add(tool_call)
        allowed = tool_rounds_allowed(self.request.constraints)
        if len(self._tools) > allowed:
            self.fail(too_many_rounds(len(self._tools), allowed))
        self._before = self.text()
        self._said.clear()
        self._chars = 0

    def text(self) -> str:
        """Return what was said after the last tool call, or before it if that is all there is."""
        said = "".join(self._said)
        return said if said.strip() else self._before

    def fail(self, failure: Failed) -> None:
        if not self.failure.done():
            self.failure.set_result(failure)

    def end(self) -> None:
        """Take nothing more, and withdraw what the user is being asked."""
        self.is_over = True
        for question in self.questions:
            question.cancel()

    def stop_clock(self) -> None:
        """Let no time pass while a person is asked."""
        when = self._timer.when()
        if self._left_s is None and when is not None and not self._timer.expired():
            self._left_s = when - asyncio.get_running_loop().time()
            self._timer.reschedule(None)

    def start_clock(self) -> None:
        """Let time pass again, once nobody is asked any more."""
        if self._left_s is not None and not self.questions and not self.is_over:
            with suppress(RuntimeError):  # whoever waited has just gone
                self._timer.reschedule(asyncio.get_running_loop().time() + self._left_s)
            self._left_s = None


class AcpLink(Link):
    """One process of the agent."""

    def __init__(self, profile: str, program: Program, ask_user: AskUser, start_s: float) -> None:
        self._profile = profile
        self._program = program
        self._ask_user = ask_user
        self._start_s = start_s
        self._folder = os.path.abspath(program.folder or os.curdir)
        self._child: Child | None = None
        self._wire: Wire | None = None
        self._connection: Connection | None = None
        self._logins = ""
        self._sessions: dict[str, str] = {}
        """The agent's sessions by those of the overlay."""
        self._turn: Turn | None = None
        self._prompting: asyncio.Task[schema.PromptResponse] | None = None
        self._told_of_late = False

    # ── beginning and ending ──────────────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        self._child = child = Child(self._program)
        await child.connect()
        self._wire = Wire(self._profile, child, update=self._take, ended=self._end_turn)
        self._connection = connection = _connected(_Client(self), self._wire)
        try:
            async with asyncio.timeout(self._start_s):
                greeted = await connection.initialize(
                    VERSION,
                    schema.ClientCapabilities(
                        fs=schema.FileSystemCapabilities(read_text_file=False, write_text_file=False), terminal=False
                    ),
                    schema.Implementation(name="remit", version="1"),
                )
        except TimeoutError as error:
            raise NotStartedError(f"the local agent had not greeted after {self._start_s:g} s") from error
        except OSError as error:
            how = await child.how_it_ended()
            raise NotStartedError(f"the local agent's process ended before it greeted: {how}") from error
        except acp.RequestError as error:
            raise NotStartedError(f"the local agent does not want to begin: {shown(str(error))}") from error
        except ValidationError as error:
            raise NotStartedError("the local agent's greeting is not what ACP asks for") from error
        if greeted.protocol_version != VERSION:
            raise NotStartedError(
                f"the local agent speaks version {greeted.protocol_version} of ACP, and not version {VERSION}"
            )
        self._logins = ", ".join(shown(method.name, 100) for method in greeted.auth_methods or ())

    @property
    def is_up(self) -> bool:
        return (
            self._child is not None
            and self._child.exit_code is None
            and self._wire is not None
            and not self._wire.is_over
        )

    async def end(self) -> None:
        if self._turn is not None:
            self._turn.end()
        if self._child is not None:
            await self._child.end()
        if self._connection is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._connection.close()

    async def obituary(self) -> str | None:
        if self._child is None:
            return None
        how = await self._child.how_it_ended()
        return None if self._child.exit_code == 0 else how

    async def calm(self) -> bool:
        turn, prompting, connection = self._turn, self._prompting, self._connection
        if turn is None or prompting is None or connection is None:
            return False  # it was still making a session, which cannot be cancelled
        turn.end()
        if not prompting.done():
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(CANCEL_S):
                    await connection.cancel(turn.session)
                    await asyncio.wait({prompting})
        self._turn = self._prompting = None
        return prompting.done() and self.is_up

    # ── a turn ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def ask(self, request: PromptRequest, timer: asyncio.Timeout) -> Draft | Failed:
        child, connection = self._child, self._connection
        assert child is not None, "opened before it is asked"
        assert connection is not None, "opened before it is asked"
        loop = asyncio.get_running_loop()
        since = loop.time()
        try:
            session = await self._session(connection, request.session_id)
            self._turn = turn = Turn(session, request, timer)
            asking = connection.prompt(session, [acp.text_block(in_words(request))])
            self._prompting = prompting = asyncio.ensure_future(asking)
            prompting.add_done_callback(_look_at)
            await asyncio.wait({prompting, turn.failure}, return_when=asyncio.FIRST_COMPLETED)
            if turn.failure.done():
                # What it does next is not waited for; but if it stops when it is told to, it can be asked again.
                failure = turn.failure.result()
                return Failed(reason=failure.reason, hard=not await self.calm())
            response = await prompting
        except OSError:
            return Failed(reason=await self._lost(child), hard=True)
        except acp.RequestError as error:
            self._turn = self._prompting = None
            return self._refused(error)
        except ValidationError:
            return Failed(reason="the local agent's answer is not what ACP asks for", hard=True)
        self._turn = self._prompting = None
        if response.stop_reason != "end_turn":
            return Failed(reason=_STOPPED[response.stop_reason], hard=False)
        text, done = read(turn.text())
        draft = Draft(
            text=text,
            done=done,
            tokens=tokens_of(response),
            tool_rounds=turn.tool_rounds,
            duration_ms=round((loop.time() - since) * 1_000),
        )
        return held(draft, request.constraints)

    async def _lost(self, child: Child) -> str:
        if self._wire is not None and self._wire.flooded:
            return f"the local agent wrote more in one turn than {MAX_BYTES} bytes or {MAX_LINES} lines"
        return f"the local agent's process ended without an answer: {await child.how_it_ended()}"

    async def _session(self, connection: Connection, ours: str) -> str:
        if (known := self._sessions.pop(ours, None)) is None:
            made = await connection.new_session(self._folder, mcp_servers=[])
            known = made.session_id
        self._sessions[ours] = known
        if len(self._sessions) > MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return known

    def _refused(self, error: acp.RequestError) -> Failed:
        if error.code == _AUTH_REQUIRED:
            ways = f" ({self._logins})" if self._logins else ""
            return Failed(reason=f"the local agent wants you to log in first, with its own program{ways}", hard=True)
        return Failed(reason=f"the local agent says: {shown(str(error))}", hard=False)

    # ── what it tells and asks ────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, updated: Updated) -> None:
        """Note what it tells of the turn that is in flight; what comes late is of a turn that has ended."""
        turn, update = self._turn, updated.update
        if update.session_update not in ("agent_message_chunk", "tool_call", "tool_call_update"):
            return
        if turn is None or turn.is_over or turn.session != updated.session_id:
            if not self._told_of_late:
                self._told_of_late = True
                log.info("profile %s: its agent tells of turns that are not in flight; it is ignored", self._profile)
        elif update.session_update == "agent_message_chunk":
            turn.say(update.text())
        elif update.tool_call_id is not None:
            turn.use(update.tool_call_id)

    def _end_turn(self) -> None:
        if self._turn is not None:
            self._turn.end()

    async def permit(
        self, session: str, tool_call: schema.ToolCallUpdate, options: list[schema.PermissionOption]
    ) -> str | None:
        """Return the id of what the user chose; None: the turn is over."""
        turn = self._turn
        if turn is None or turn.is_over or turn.session != session:
            return None
        turn.use(tool_call.tool_call_id)
        turn.asked += 1
        if turn.asked > MAX_QUESTIONS:
            turn.fail(Failed(reason=f"the local agent asked its user more than {MAX_QUESTIONS} times", hard=False))
        if turn.failure.done():
            return _no(options)
        question = asyncio.ensure_future(self._ask_user(_permission(turn.request.session_id, tool_call, options)))
        turn.questions.add(question)
        turn.stop_clock()
        try:
            await asyncio.wait({question}, timeout=ASK_S)
        finally:
            turn.questions.discard(question)
            turn.start_clock()
            if not question.done():
                question.cancel()
        if turn.is_over:
            return None
        return self._chosen(question, options) or _no(options)

    def _chosen(self, question: "asyncio.Future[str | None]", options: list[schema.PermissionOption]) -> str | None:
        if question.cancelled() or not question.done():
            return None
        if (error := question.exception()) is not None:
            log.error("profile %s: its user could not be asked: %s", self._profile, type(error).__name__)
            return None
        return next((option.option_id for option in options if option.option_id == question.result()), None)


class _Client:
    """What the SDK hands to whoever is connected: here, questions for the user."""

    def __init__(self, link: AcpLink) -> None:
        self._link = link

    async def request_permission(
        self,
        session_id: str,
        tool_call: schema.ToolCallUpdate,
        options: list[schema.PermissionOption],
        **_: object,
    ) -> schema.RequestPermissionResponse:
        chosen = await self._link.permit(session_id, tool_call, options)
        if chosen is None:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        outcome = schema.AllowedOutcome(outcome="selected", option_id=chosen)
        return schema.RequestPermissionResponse(outcome=outcome)


def _connected(client: _Client, wire: Wire) -> Connection:
    # Neither the wire nor the client is all that the SDK's types ask for: nothing else is ever called.
    connect = cast("Any", acp.connect_to_agent)
    return cast("Connection", connect(client, wire))


def _permission(session: str, tool_call: schema.ToolCallUpdate, options: list[schema.PermissionOption]) -> Permission:
    given: Any = tool_call.raw_input
    return Permission(
        session_id=session,
        title=shown(tool_call.title or "a tool without a name"),
        kind=tool_call.kind or "",
        details="" if given is None else shown(msgspec.json.encode(given).decode(), MAX_DETAILS),
        choices=tuple(
            Choice(id=option.option_id, name=shown(option.name, 100), kind=option.kind) for option in options
        ),
    )


def _no(options: list[schema.PermissionOption]) -> str | None:
    """Return the choice that declines for now; None: there is none, and the whole turn has to be."""
    kinds = {option.kind: option.option_id for option in reversed(options)}
    return kinds.get("reject_once") or kinds.get("reject_always")


def tokens_of(response: schema.PromptResponse) -> int | None:
    """Return what a turn has spent, wherever the agent says so; None: it does not.

    An agent that gives the sum of its session is counted too high, and never too low.
    """
    if response.usage is not None:
        return response.usage.total_tokens
    try:
        meta = msgspec.convert(response.field_meta or {}, _Meta)
    except msgspec.ValidationError:
        return None
    return next((found.total for found in (meta.usage, meta.quota.token_count) if found.total is not None), None)


class _Counted(msgspec.Struct, frozen=True):
    total_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None

    @property
    def total(self) -> int | None:
        if self.total_tokens is not None:
            return self.total_tokens
        parts = [part for part in (self.input_tokens, self.output_tokens) if part is not None]
        return sum(parts) if parts else None


class _Quota(msgspec.Struct, frozen=True):
    token_count: _Counted = _Counted()


class _Meta(msgspec.Struct, frozen=True):
    """Where agents put it that do not use the protocol's own place."""

    usage: _Counted = _Counted()
    quota: _Quota = _Quota()


def _look_at(prompting: "asyncio.Task[schema.PromptResponse]") -> None:
    """Have seen how a prompt ended that nobody waits for any more."""
    if not prompting.cancelled():
        prompting.exception()
