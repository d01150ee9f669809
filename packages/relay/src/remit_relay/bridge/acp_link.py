"""The connection to one process of an ACP agent, from its start to its end. It needs the SDK."""

import asyncio
import errno
import logging
import os
import stat
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import PurePath
from typing import Any, Protocol, cast

import acp
import msgspec
from acp import schema
from msgspec import structs
from pydantic import ValidationError

from remit.agents.program import Program
from remit.stores.workspace import is_closed, is_secret
from remit_relay.bridge import acp_turn
from remit_relay.bridge.acp_turn import PERMISSION, READ, AcpTurn, ToolCallUpdate, Updated, Wire, is_broken, tokens_in
from remit_relay.bridge.ports import (
    AskUser,
    Choice,
    Draft,
    DraftFailure,
    PermissionRequest,
    PromptRequest,
    held,
    in_words,
    shown,
    split_answer,
    tool_rounds_allowed,
)
from remit_relay.bridge.supervised_agent import AgentLink, Child, Ending, NotStartedError, PartialText

# ── what the agent asks for ───────────────────────────────────────────────────────────────────────────────────────────

# More than any source file.
MAX_BYTES = 1_000_000


class UnreadableError(Exception):
    """A file may not be read; the message says why, without any of its content."""


class FolderReader:
    """Reads files in *folder*, except hidden ones and those with names of secrets (see `stores.secret_files`).

    Each part of a path is opened relative to the previous one, and links are not followed, so that a concurrent change
    cannot lead outside.
    """

    def __init__(self, folder: str) -> None:
        self._given = os.path.abspath(folder)
        self._folder = os.path.realpath(folder)
        # An agent uses the configured path of its folder, or the resolved one.
        self._names = (self._given, self._folder)

    def read(self, path: str, line: int | None = None, limit: int | None = None) -> str:
        """Return the text of a file, or *limit* lines from *line*, counted from 1."""
        parts = self._parts(path)
        try:
            data = self._data(parts)
        except OSError as error:
            is_link = error.errno in (errno.ELOOP, errno.ENOTDIR)
            why = "symbolic links are not followed" if is_link else error.strerror
            raise UnreadableError(f"cannot read {parts[-1]}: {why}") from error
        if len(data) > MAX_BYTES:
            raise UnreadableError(f"{parts[-1]} is larger than the limit of {MAX_BYTES} bytes")
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise UnreadableError(f"{parts[-1]} is not UTF-8 text") from error
        if line is None and limit is None:
            return text
        first = max(1, line or 1) - 1
        return "".join(text.splitlines(keepends=True)[first : None if limit is None else first + max(0, limit)])

    def _parts(self, path: str) -> tuple[str, ...]:
        """Return the parts of the path within the folder, or raise an `UnreadableError`."""
        requested = PurePath(path)
        if "\0" in path or not requested.is_absolute():
            raise UnreadableError("the path must be absolute")
        if ".." in requested.parts:
            raise UnreadableError("the path must not contain ..")
        inside = next((requested.relative_to(each) for each in self._names if requested.is_relative_to(each)), None)
        if inside is None or not inside.parts:
            raise UnreadableError(f"only files in {self._given} can be read")
        if any(part.startswith(".") for part in inside.parts):
            raise UnreadableError("hidden files cannot be read")
        if any(is_closed(part) for part in inside.parts) or is_secret(inside.name):
            raise UnreadableError(f"{inside.name} cannot be read: such files contain keys or passwords")
        return inside.parts

    def _data(self, parts: tuple[str, ...]) -> bytes:
        with ExitStack() as stack:
            at = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, at)
            for part in parts[:-1]:
                at = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                stack.callback(os.close, at)
            # Non-blocking, because opening a pipe waits for its writer.
            file = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
            stack.callback(os.close, file)
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise UnreadableError(f"{parts[-1]} is not a file")
            if os.fstat(file).st_nlink > 1:
                raise UnreadableError(f"{parts[-1]} is a hard link, which may point to a file outside the folder")
            with open(file, "rb", closefd=False) as opened:
                return opened.read(MAX_BYTES + 1)


log = logging.getLogger("remit.relay")

# A person who has not decided by then is away.
ASK_S = 300.0
# More permission requests in one turn would wear the user down.
MAX_QUESTIONS = 20
# An agent that examines a project reads some dozens.
MAX_FILES = 200


class Client:
    """The client that the SDK calls. *turn* returns the turn of a session that is in progress."""

    def __init__(
        self, profile: str, ask_user: AskUser, files: FolderReader | None, turn: Callable[[str], AcpTurn | None]
    ) -> None:
        self._profile = profile
        self._ask_user = ask_user
        self._files = files
        self._turn = turn

    async def request_permission(
        self,
        session_id: str,
        tool_call: schema.ToolCallUpdate,
        options: list[schema.PermissionOption],
        **_: object,
    ) -> schema.RequestPermissionResponse:
        chosen = await self._permit(session_id, tool_call, options)
        if chosen is None:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        outcome = schema.AllowedOutcome(outcome="selected", option_id=chosen)
        return schema.RequestPermissionResponse(outcome=outcome)

    async def read_text_file(
        self, session_id: str, path: str, line: int | None = None, limit: int | None = None, **_: object
    ) -> schema.ReadTextFileResponse:
        turn = self._turn(session_id)
        if self._files is None or turn is None:
            raise _declined("files can be read only during a turn")
        if not tool_rounds_allowed(turn.request.constraints):
            raise _declined("tools are not allowed in this turn")
        turn.files_read += 1
        if turn.files_read > MAX_FILES:
            raise _declined(f"the limit of {MAX_FILES} files in one turn is reached")
        try:
            text = await asyncio.to_thread(self._files.read, path, line, limit)
        except UnreadableError as error:
            raise _declined(str(error)) from error
        return schema.ReadTextFileResponse(content=text)

    async def _permit(
        self, session: str, tool_call: schema.ToolCallUpdate, options: list[schema.PermissionOption]
    ) -> str | None:
        """Return the id of the user's choice; None: the turn is over, or no option declines."""
        turn = self._turn(session)
        if turn is None:
            return None
        update = msgspec.convert(tool_call.model_dump(mode="json", by_alias=True, exclude_none=True), ToolCallUpdate)
        tool = turn.use(tool_call.tool_call_id, update.tool_call())
        turn.questions_asked += 1
        if turn.questions_asked > MAX_QUESTIONS:
            turn.fail(
                DraftFailure(reason=f"the local agent asked its user more than {MAX_QUESTIONS} times", hard=False)
            )
        if turn.failure.done():
            return _no(options)
        permission = PermissionRequest(
            session_id=turn.request.session_id,
            title=tool.title or "unnamed tool",
            kind=tool.kind,
            details=tool.details,
            choices=tuple(
                Choice(id=option.option_id, name=shown(option.name, 100), kind=option.kind) for option in options
            ),
        )
        chosen = await self._ask_person(turn, permission)
        if turn.is_over:
            return None
        option = next((each for each in options if each.option_id == chosen), None)
        if option is None or option.kind.startswith("reject"):
            turn.refused = permission.title
        return _no(options) if option is None else option.option_id

    async def _ask_person(self, turn: AcpTurn, permission: PermissionRequest) -> str | None:
        """Return the user's choice; None: no answer, or asking failed."""
        question = asyncio.ensure_future(self._ask_user(permission))
        turn.questions.add(question)
        turn.stop_clock()
        try:
            await asyncio.wait({question}, timeout=ASK_S)
        finally:
            turn.questions.discard(question)
            turn.start_clock()
            if not question.done():
                question.cancel()
        if question.cancelled() or not question.done():
            return None
        if (error := question.exception()) is not None:
            log.error("profile %s: asking the user failed: %s", self._profile, type(error).__name__)
            return None
        return question.result()


def _no(options: list[schema.PermissionOption]) -> str | None:
    """Return the option that declines once; None: there is none, and the turn must be cancelled."""
    kinds = {option.kind: option.option_id for option in reversed(options)}
    return kinds.get("reject_once") or kinds.get("reject_always")


def _declined(why: str) -> acp.RequestError:
    # Agents show the message to their models, but rarely the other fields.
    return acp.RequestError(-32_602, why)


# ── the link ──────────────────────────────────────────────────────────────────────────────────────────────────────────


VERSION = 1
# How long a cancelled turn has to end before its process is ended.
CANCEL_S = 3.0
# A profile has a few sessions at once, and an agent keeps each in memory.
MAX_SESSIONS = 32
CLOSE_S = 1.0
# Programs that download a package before they start it.
FETCHERS = ("npx", "bunx", "pnpm", "uvx")

_AUTH_REQUIRED = -32_000
_STOPPED: dict[str, str] = {
    "max_tokens": "the local agent stopped at its own token limit",
    "max_turn_requests": "the local agent stopped at its own step limit",
    "refusal": "the local agent refused to continue",
    "cancelled": "the local agent cancelled its turn",
}


class AcpConnection(Protocol):
    """The part of `acp.ClientSideConnection` that is used here."""

    def initialize(
        self,
        protocol_version: int,
        client_capabilities: schema.ClientCapabilities,
        client_info: schema.Implementation,
    ) -> Awaitable[schema.InitializeResponse]: ...

    def new_session(self, cwd: str, *, mcp_servers: list[Any]) -> Awaitable[schema.NewSessionResponse]: ...

    def resume_session(self, session_id: str, cwd: str, *, mcp_servers: list[Any]) -> Awaitable[Any]: ...

    def prompt(self, session_id: str, prompt: list[Any]) -> Awaitable[schema.PromptResponse]: ...

    def cancel(self, session_id: str) -> Awaitable[None]: ...

    def close(self) -> Awaitable[None]: ...


class AcpLink(AgentLink):
    """One process of the agent. *sessions* maps our session ids to the agent's, also those of earlier processes."""

    def __init__(
        self,
        profile: str,
        program: Program,
        *,
        ask_user: AskUser,
        reads_files: bool,
        start_s: float,
        sessions: dict[str, str],
        written: PartialText = lambda _request, _text: None,
    ) -> None:
        self._profile = profile
        self._program = program
        self._ask_user = ask_user
        self._written = written
        self._start_s = start_s
        self._folder = os.path.abspath(program.folder or os.curdir)
        self._files = FolderReader(self._folder) if reads_files else None
        self._child: Child | None = None
        self._wire: Wire | None = None
        self._connection: AcpConnection | None = None
        self._greeted = schema.InitializeResponse(protocol_version=VERSION)
        self._sessions = sessions
        self._live: set[str] = set()
        """The sessions that this process knows."""
        self._turn: AcpTurn | None = None
        self._prompting: asyncio.Task[schema.PromptResponse] | None = None
        self._is_late_logged = False

    # ── start and end ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        self._child = child = Child(self._program)
        await child.connect()
        reads = self._files is not None
        self._wire = Wire(
            self._profile,
            child,
            offered=(PERMISSION, READ) if reads else (PERMISSION,),
            update=self._take,
            ended=self._end_turn,
        )
        client = Client(self._profile, self._ask_user, self._files, self._in_flight)
        self._connection = connection = _connected(client, self._wire)
        try:
            async with asyncio.timeout(self._start_s):
                self._greeted = await connection.initialize(
                    VERSION,
                    schema.ClientCapabilities(
                        fs=schema.FileSystemCapabilities(read_text_file=reads, write_text_file=False), terminal=False
                    ),
                    schema.Implementation(name="remit", version="1"),
                )
        except TimeoutError as error:
            late = f"the local agent was not ready after {self._start_s:g} s"
            raise NotStartedError(f"{late}{self._silent(child)}", late) from error
        except OSError as error:
            how, ended = await child.how_it_ended(), "the local agent's process ended before initialization"
            raise NotStartedError(f"{ended}: {how}", f"{ended}: {how.how}") from error
        except acp.RequestError as error:
            refused = "the local agent refused initialization"
            raise NotStartedError(f"{refused}: {shown(str(error))}", refused) from error
        except ValidationError as error:
            raise NotStartedError("invalid initialize response from the local agent") from error
        if (version := self._greeted.protocol_version) != VERSION:
            raise NotStartedError(f"the local agent uses ACP version {version}; version {VERSION} is required")

    def _silent(self, child: Child) -> str:
        """Return what is known of a missing initialize response: the last output, and a possible cause."""
        output = child.last_output()
        words = f"; last output: {output}" if output else ""
        fetched = os.path.basename(self._program.command) in FETCHERS
        hint = "; it may still be downloading: install it first, and configure its own program" if fetched else ""
        return f"{words}{hint}"

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

    async def exit_failure(self) -> Ending | None:
        if self._child is None:
            return None
        how = await self._child.how_it_ended()
        return None if self._child.exit_code == 0 else how

    async def cancel_turn(self) -> bool:
        turn, prompting, connection = self._turn, self._prompting, self._connection
        if turn is None or prompting is None or connection is None:
            return False  # it was still creating a session, which cannot be cancelled
        turn.end()
        if not prompting.done():
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(CANCEL_S):
                    await connection.cancel(turn.session)
                    await asyncio.wait({prompting})
        self._turn = self._prompting = None
        is_idle = prompting.done() and self.is_up
        if not is_idle:
            self._sessions.pop(turn.request.session_id, None)
        return is_idle

    # ── a turn ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def ask(self, request: PromptRequest, timer: asyncio.Timeout) -> Draft | DraftFailure:
        child, connection = self._child, self._connection
        assert child is not None, "open() comes before ask()"
        assert connection is not None, "open() comes before ask()"
        loop = asyncio.get_running_loop()
        since = loop.time()
        try:
            session = await self._session(connection, request.session_id)
            self._turn = turn = AcpTurn(session, request, timer)
            asking = connection.prompt(session, [acp.text_block(in_words(request))])
            self._prompting = prompting = asyncio.ensure_future(asking)
            prompting.add_done_callback(_look_at)
            await asyncio.wait({prompting, turn.failure}, return_when=asyncio.FIRST_COMPLETED)
            if turn.failure.done():
                # If it stops when the turn is cancelled, it can be used again.
                failure = turn.failure.result()
                return structs.replace(failure, hard=not await self.cancel_turn())
            response = await prompting
        except OSError:
            # The session may have caused the crash, so the next process does not resume it.
            self._sessions.pop(request.session_id, None)
            return await self._lost(child)
        except acp.RequestError as error:
            self._turn = self._prompting = None
            return self._refused(error)
        except ValidationError:
            return DraftFailure(reason="invalid ACP response from the local agent", hard=True)
        self._turn = self._prompting = None
        return _outcome(turn, response, round((loop.time() - since) * 1_000))

    async def _lost(self, child: Child) -> DraftFailure:
        if self._wire is not None and self._wire.flooded:
            most = f"{acp_turn.MAX_BYTES} bytes or {acp_turn.MAX_LINES} lines"
            return DraftFailure(reason=f"the local agent wrote more in one turn than {most}", hard=True)
        how, ended = await child.how_it_ended(), "the local agent's process ended without an answer"
        return DraftFailure(reason=f"{ended}: {how}", recorded=f"{ended}: {how.how}", hard=True)

    async def _session(self, connection: AcpConnection, ours: str) -> str:
        """Return the agent's session for one of ours: an open one, a resumed one, or a new one."""
        theirs = self._sessions.pop(ours, None)
        if theirs is not None and ours not in self._live and not await self._taken_up(connection, theirs):
            theirs = None
        if theirs is None:
            theirs = (await connection.new_session(self._folder, mcp_servers=[])).session_id
        self._sessions[ours] = theirs
        self._live.add(ours)
        if len(self._sessions) > MAX_SESSIONS:
            oldest = next(iter(self._sessions))
            del self._sessions[oldest]
            self._live.discard(oldest)
        return theirs

    async def _taken_up(self, connection: AcpConnection, session: str) -> bool:
        """Resume a session of an earlier process, if the agent can.

        `session/load` is not used: it replays the whole conversation, and some agents do that only after their
        response, when the replay cannot be told from new messages.
        """
        can = self._greeted.agent_capabilities
        if can is None or can.session_capabilities is None or can.session_capabilities.resume is None:
            return False
        try:
            await connection.resume_session(session, self._folder, mcp_servers=[])
        except acp.RequestError as error:
            if error.code == _AUTH_REQUIRED:
                raise
            log.info("profile %s: its agent cannot resume an earlier session and starts a new one", self._profile)
            return False
        return True

    def _refused(self, error: acp.RequestError) -> DraftFailure:
        if error.code != _AUTH_REQUIRED:
            return _reported_failure(str(error))
        ways = [
            f"{method.name} ({method.description})" if method.description else method.name
            for method in self._greeted.auth_methods or ()
        ]
        todo = "log in with its own program in a terminal, or set a key in `env` of its profile"
        reason = f"it says: {shown(str(error), 150)}"
        offers = f"; it offers: {shown('; '.join(ways), 250)}" if ways else ""
        recorded = "the local agent is not logged in"
        return DraftFailure(reason=f"{recorded}: {todo}; {reason}{offers}", recorded=recorded, hard=True)

    # ── updates ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _in_flight(self, session: str) -> AcpTurn | None:
        turn = self._turn
        return None if turn is None or turn.is_over or turn.session != session else turn

    def _take(self, updated: Updated) -> None:
        """Handle an update of the current turn; a late one belongs to a turn that has ended."""
        turn, update = self._in_flight(updated.session_id), updated.update
        is_news = update.session_update in ("agent_message_chunk", "tool_call", "tool_call_update")
        if turn is None:
            if is_news and not self._is_late_logged:
                self._is_late_logged = True
                log.info("profile %s: ignoring updates of turns that have ended", self._profile)
            return
        turn.is_broken = turn.is_broken or is_broken(update.meta)
        if update.session_update == "agent_message_chunk":
            turn.say(update.text(), update.message_id)
            self._written(turn.request, turn.text)
            if (tokens := tokens_in(update.meta)) is not None:
                turn.tokens = (turn.tokens or 0) + tokens
        elif is_news and update.tool_call_id is not None:
            turn.use(update.tool_call_id, update.tool_call())

    def _end_turn(self) -> None:
        if self._turn is not None:
            self._turn.end()


def _connected(client: Client, wire: Wire) -> AcpConnection:
    # Wire and client implement only the part of the SDK's types that is called.
    connect = cast("Any", acp.connect_to_agent)
    return cast("AcpConnection", connect(client, wire))


def _outcome(turn: AcpTurn, response: schema.PromptResponse, duration_ms: int) -> Draft | DraftFailure:
    """Return the outcome of a turn that the agent ended."""
    text, done = split_answer(turn.text())
    has_ended: bool = response.stop_reason == "end_turn"
    if turn.refused is not None and not (has_ended and (text or done)):
        recorded = "the local agent stopped because something was not allowed"
        reason = f"the local agent stopped because this was not allowed: {turn.refused}"
        return DraftFailure(reason=reason, recorded=recorded, hard=False)
    if not has_ended:
        why = _STOPPED.get(response.stop_reason)
        if why is None:
            recorded = "the local agent stopped"
            return DraftFailure(reason=f"{recorded}: {shown(response.stop_reason, 100)}", recorded=recorded, hard=False)
        return DraftFailure(reason=why, hard=False)
    if turn.is_broken:
        return _reported_failure(text)
    draft = Draft(
        text=text, done=done, tokens=tokens_of(turn, response), tool_rounds=turn.tool_rounds, duration_ms=duration_ms
    )
    return held(draft, turn.request.constraints)


def _reported_failure(words: str) -> DraftFailure:
    """Return the failure that the agent reports in its own words."""
    recorded = "the local agent reported an error"
    return DraftFailure(reason=f"the local agent says: {shown(words)}", recorded=recorded, hard=False)


def tokens_of(turn: AcpTurn, response: schema.PromptResponse) -> int | None:
    """Return the tokens of a turn, wherever the agent reports them; None: it does not."""
    if response.usage is not None:
        return response.usage.total_tokens
    reported = tokens_in(response.field_meta)
    return turn.tokens if reported is None else reported


def _look_at(prompting: "asyncio.Task[schema.PromptResponse]") -> None:
    """Mark the result of an abandoned prompt as retrieved."""
    if not prompting.cancelled():
        prompting.exception()
