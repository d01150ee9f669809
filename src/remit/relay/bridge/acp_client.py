"""The requests of an ACP agent to its client during a turn: permission of the user, and the text of a file."""

import asyncio
import errno
import logging
import os
import stat
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import PurePath

import acp
import msgspec
from acp import schema

from remit.relay.bridge.acp_turn import AcpTurn, ToolCallUpdate
from remit.relay.bridge.ports import AskUser, Choice, DraftFailure, PermissionRequest, shown, tool_rounds_allowed
from remit.stores.workspace import is_closed, is_secret

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
        asked = PurePath(path)
        if "\0" in path or not asked.is_absolute():
            raise UnreadableError("the path must be absolute")
        if ".." in asked.parts:
            raise UnreadableError("the path must not contain ..")
        inside = next((asked.relative_to(each) for each in self._names if asked.is_relative_to(each)), None)
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
        told = msgspec.convert(tool_call.model_dump(mode="json", by_alias=True, exclude_none=True), ToolCallUpdate)
        tool = turn.use(tool_call.tool_call_id, told.tool_call())
        turn.asked += 1
        if turn.asked > MAX_QUESTIONS:
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
        chosen = await self._asked(turn, permission)
        if turn.is_over:
            return None
        option = next((each for each in options if each.option_id == chosen), None)
        if option is None or option.kind.startswith("reject"):
            turn.refused = permission.title
        return _no(options) if option is None else option.option_id

    async def _asked(self, turn: AcpTurn, permission: PermissionRequest) -> str | None:
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
