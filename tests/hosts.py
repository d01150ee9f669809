"""MCP hosts for tests: the SDK's own client, with a person who answers, or without one."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any, Literal

import anyio
import httpx2
import mcp_types as types
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.session import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp.server.stdio import stdio_server

from commands import REMIT, popen
from waiting import PATIENCE_S

ERAS = ("legacy", "2026-07-28")
"""Both ways to greet: by a handshake, as most hosts do, and with every request."""


class Person:
    """Somebody at a host, who does the same with every question, and remembers what was asked."""

    def __init__(self, action: Literal["accept", "decline", "cancel"], **content: Any) -> None:
        self._answer = types.ElicitResult(action=action, content=content or None)
        self.questions: list[str] = []
        self.forms: list[Any] = []
        self.called = asyncio.Event()

    async def __call__(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        assert isinstance(params, types.ElicitRequestFormParams)
        self.questions.append(params.message)
        self.forms.append(params.requested_schema)
        self.called.set()
        return self._answer


class Whimsical(Person):
    """Somebody who does one thing with the first question, another with the next, and so on."""

    def __init__(self, *actions: Literal["accept", "decline", "cancel"]) -> None:
        super().__init__("cancel")
        self._actions = list(actions)

    async def __call__(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        await super().__call__(context, params)
        action = self._actions.pop(0)
        return types.ElicitResult(action=action, content={} if action == "accept" else None)


class Absent(Person):
    """Somebody who never answers."""

    def __init__(self) -> None:
        super().__init__("cancel")

    async def __call__(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        await super().__call__(context, params)
        await asyncio.Event().wait()
        raise AssertionError


@asynccontextmanager
async def host_at(
    address: str,
    token: str,
    era: str = "legacy",
    *,
    person: Person | None = None,
    user: str | None = None,
    **options: Any,
) -> AsyncGenerator[Client]:
    """Connect a host to `/mcp` of a server; *options* are those of the SDK's client."""
    headers = {"authorization": f"Bearer {token}"} | ({} if user is None else {"x-remit-user": user})
    async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S) as http:
        transport = streamable_http_client(f"{address}/mcp", http_client=http)
        async with Client(transport, mode=era, elicitation_callback=person, **options) as client:
            yield client


@asynccontextmanager
async def host_of(
    program: StdioServerParameters, era: str = "legacy", *, person: Person | None = None
) -> AsyncGenerator[Client]:
    """Connect a host to a process that it starts."""
    # The default is what standard error was when the SDK was imported, perhaps in another process.
    transport = stdio_client(program, errlog=sys.stderr)
    async with Client(transport, mode=era, elicitation_callback=person) as client:
        yield client


@asynccontextmanager
async def host_of_forked(
    arguments: list[str], *, folder: Path, variables: Mapping[str, str], era: str, person: Person | None = None
) -> AsyncGenerator[Client]:
    """Connect a host to a command that is forked, which spares it a second of imports; end it as a host does."""
    streams: dict[str, Any] = {"stdin": PIPE, "stdout": PIPE, "text": True, "encoding": "utf-8"}
    with popen([REMIT, *arguments], cwd=folder, env=variables, **streams) as process:

        @asynccontextmanager
        async def transport() -> AsyncGenerator[Any]:
            assert process.stdin is not None and process.stdout is not None  # noqa: PT018
            output, input_stream = anyio.wrap_file(process.stdout), anyio.wrap_file(process.stdin)
            async with stdio_server(output, input_stream) as (messages, answers):
                try:
                    yield messages, answers
                finally:
                    await input_stream.aclose()

        try:
            async with Client(transport(), mode=era, elicitation_callback=person) as client:
                yield client
            assert await asyncio.to_thread(process.wait, PATIENCE_S) == 0
        finally:
            process.kill()


def text(result: types.CallToolResult) -> str:
    """Return what a model reads of a result."""
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


def data(result: types.CallToolResult) -> Any:
    """Return what a program reads of a result."""
    return result.structured_content


class Progress:
    """Hears how the work goes."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.numbers: list[float] = []
        self._changed = asyncio.Event()

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        self.numbers.append(progress)
        self.messages.append(message or "")
        self._changed.set()

    async def until(self, enough: Callable[[list[str]], bool]) -> None:
        """Return once enough was said."""
        async with asyncio.timeout(PATIENCE_S):
            while not enough(self.messages):
                self._changed.clear()
                await self._changed.wait()
