"""An MCP server as the hub uses it: started on demand, restarted when it dies, never trusted."""

import asyncio
import logging
import shlex
import time
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING

from remit.agents.program import RestartPause
from remit.installed import install_command
from remit.ports import Tool
from remit.protocol.card import ToolCard
from remit.protocol.envelope import Json
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.schemas import misfits
from remit_models.mcp.logins import login_file
from remit_models.mcp.pins import Pin, ToolPins, pin_of
from remit_models.mcp.settings import Address, Offered, Settings, Unset

if TYPE_CHECKING:  # an extra, which takes a second to import
    from remit_models.mcp.connection import McpConnection

log = logging.getLogger("remit")

# `npx` may download a package first; an agent that waits longer has no time left.
START_S = 20.0
# The first restart is immediate, because a killed server need not be broken.
PAUSES_S = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
# Concurrent calls of one server; further calls wait.
AT_ONCE = 16
# A server that times out this often in a row will not answer any more, and is restarted.
MAX_LATE = 3
# Servers should notify when their tools change; not all do.
RELIST_S = 300.0

_UNKNOWN = "It is not known yet what it takes."
_GONE = "The server has no such tool now."
_DOWN = "The server cannot be reached now."
_HELD = "The server has changed this tool; it cannot be used until a person agrees."


class McpServer:
    """The tools of one server, each under its name in the hub; *describe* gets the card of each once it is known."""

    def __init__(
        self,
        settings: Settings,
        describe: Callable[[ToolCard], None],
        *,
        offered: Callable[[], Offered] = Offered,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._offered = offered
        self._describe = describe
        self._now = now
        self.names = settings.names()
        self._cards = {name: self._absent(name, _UNKNOWN) for name in self.names}
        self._pins = ToolPins(settings.pins)
        self._logins = login_file(settings.name, settings.reach)
        self._held: frozenset[str] = frozenset()
        """The tools that the server has changed, by their names in the hub."""
        self._link: McpConnection | None = None
        self._opening: asyncio.Task[McpConnection] | None = None
        self._letting_go: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(AT_ONCE)
        self._pause = RestartPause(PAUSES_S, now)
        self._late = 0
        self._listed = float("-inf")
        self._stale = False

    def tools(self) -> list[Tool]:
        """Return the tools to register."""
        key = self.settings.key_of
        return [Tool(card, self._runner(name), key(self.names[name])) for name, card in self._cards.items()]

    def _runner(self, name: str) -> Callable[[dict[str, Json], str], Awaitable[Json]]:
        async def run(arguments: dict[str, Json], _: str) -> Json:
            return await self.use(name, arguments)

        return run

    # ── starting ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def ready(self) -> None:
        """Return once the tools' schemas are known or the server cannot be reached; never raises."""
        try:
            link = await self._linked()
            if self._stale or self._now() - self._listed > RELIST_S:
                await self._relist(link)
        except RemitError as error:
            log.warning("%s", ": ".join(filter(None, (error.fault.message, error.fault.detail))))

    async def _linked(self) -> "McpConnection":
        if self._link is not None and self._link.is_up:
            return self._link
        wait_s, failures = self._pause.left_s(), self._pause.failures
        if wait_s > 0 and self._opening is None:
            why = f"MCP server {self.settings.name} failed {failures} times in a row and is not called for now"
            raise RemitError(fault(Code.DELEGATION_UNAVAILABLE, why, retry_after_ms=round(wait_s * 1_000)))
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())
            self._opening.add_done_callback(self._opened)
        return await asyncio.shield(self._opening)

    def _opened(self, opening: "asyncio.Task[McpConnection]") -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # waiting callers got the error

    async def _open(self) -> "McpConnection":
        if isinstance(self.settings.reach, Unset):
            why = f"MCP server {self.settings.name} cannot be started: {self.settings.reach.why}"
            raise RemitError(fault(Code.TEAM_INVALID, why, suggestion="Set it where this process is started."))
        try:
            # It takes a second, during which others continue.
            await asyncio.to_thread(import_module, "remit_models.mcp.connection")
            from remit_models.mcp.connection import McpConnection, McpConnectionLost, McpUnauthorized
        except ImportError as error:
            why = f"MCP server {self.settings.name} needs the extra `mcp`, which is not installed"
            raise RemitError(
                fault(Code.TEAM_INVALID, why, suggestion=f"Install it: {install_command('mcp')}")
            ) from error
        link = McpConnection(self.settings, self._changed, self._offered(), self._logins)
        try:
            async with asyncio.timeout(START_S):
                await link.open()
        except McpUnauthorized as error:  # no failure of the server: it is tried again as soon as somebody logs in
            self._let_go(link)
            raise RemitError(error.fault) from error
        except BaseException as error:
            self._failed()
            self._let_go(link)
            if isinstance(error, McpConnectionLost | TimeoutError):
                how = f"it had not greeted after {START_S:.0f} s" if isinstance(error, TimeoutError) else str(error)
                raise self._unreachable(how) from error
            raise
        try:
            self._take(link)
        except RemitError:  # without what was accepted before, nothing is used
            self._let_go(link)
            raise
        self._link = link
        return link

    def _unreachable(self, how: str) -> RemitError:
        wait_ms = round(self._pause.left_s() * 1_000)
        reach = self.settings.reach
        detail = f"{reach.url}: {how}" if isinstance(reach, Address) else how
        why = f"MCP server {self.settings.name} cannot be reached"
        return RemitError(fault(Code.DELEGATION_UNAVAILABLE, why, retry_after_ms=wait_ms or None, detail=detail))

    # ── the list of tools ─────────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, link: "McpConnection") -> None:
        """Store the tools that a server lists; those that it has changed are held until somebody agrees."""
        from remit_models.mcp.reading import card_of, parameters_missing, suspicions

        pins = self._pins.pins_of(self.settings.name)
        new: dict[str, Pin] = {}
        held: set[str] = set()
        for name, tool in self.names.items():
            offered, old = link.tools.get(tool), self._cards[name]
            if offered is None:
                card = self._absent(name, _GONE)
            else:
                card, wrong = card_of(
                    name,
                    self.settings.name,
                    offered,
                    safe_to_repeat=tool in self.settings.safe_to_repeat,
                    sees=self.settings.seen_by(tool),
                    clear=tool in self.settings.clear,
                    rate=self.settings.rates.get(tool),
                )
                if lost := parameters_missing(card):
                    log.warning("tool %s has no parameter %s, of which `sees` speaks", name, ", ".join(lost))
                if wrong:
                    log.warning("the schema of %s is not used: %s", name, wrong)
                pin = pin_of(card)
                if tool not in pins:
                    new[tool] = pin
                    for what in suspicions(offered):
                        log.warning("the description of tool %s %s", name, what)
                elif pins[tool].digest != pin.digest:
                    held.add(name)
                    card = self._absent(name, _HELD)
            if name in held and name not in self._held:
                log.warning("MCP server %s has changed its tool %s, which is held", self.settings.name, tool)
            if card != old:
                self._show(card)
        self._listed, self._stale, self._held = self._now(), False, frozenset(held)
        if new:
            try:
                self._pins.accept(self.settings.name, new)
            except RemitError as error:
                log.warning("%s", error.fault.message)

    def _absent(self, name: str, why: str) -> ToolCard:
        safe, sees = self.names[name] in self.settings.safe_to_repeat, self.settings.seen_by(self.names[name])
        description = f"[MCP server {self.settings.name}] {why}"
        return ToolCard(
            name=name, description=description, input_schema={"type": "object"}, safe_to_repeat=safe, sees=sees
        )

    def _show(self, card: ToolCard) -> None:
        self._cards[card.name] = card
        self._describe(card)

    def _changed(self) -> None:
        self._stale = True

    async def _relist(self, link: "McpConnection") -> None:
        from remit_models.mcp.connection import McpConnectionLost, McpUnauthorized

        try:
            async with asyncio.timeout(START_S):
                await link.relist()
        except McpUnauthorized as error:
            raise RemitError(error.fault) from error
        except (McpConnectionLost, TimeoutError) as error:
            self._lost(link)
            raise self._unreachable(f"it does not say what it has ({error or 'too slow'})") from error
        self._take(link)

    # ── calls ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def use(self, name: str, arguments: dict[str, Json]) -> Json:
        """Call a tool by its name in the hub and return its result, or raise a `RemitError`."""
        link = await self._linked()
        if self._stale:
            await self._relist(link)
        if name in self._held:
            self._take(link)  # somebody may have agreed meanwhile, in another process
        tool, card = self.names[name], self._cards[name]
        if name in self._held:
            raise self._changed_tool(tool)
        if tool not in link.tools:
            raise RemitError(
                fault(Code.DELEGATION_UNAVAILABLE, f"MCP server {self.settings.name} has no tool {tool} now")
            )
        # Check again: when the hub checked, the tool's parameters may not have been known yet.
        if problems := misfits(card.input_schema, arguments):
            why = f"the arguments do not fit tool {name}"
            raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, why, problems=problems))
        async with self._room:
            return await self._called(link, name, arguments)

    def _changed_tool(self, tool: str) -> RemitError:
        server = self.settings.name
        how = (
            f"A person compares and agrees: remit mcp --tools {server} --accept {shlex.quote(tool)}"
            if self._pins.is_kept
            else "A person looks at what has changed, and restarts the hub."
        )
        why = f"MCP server {server} has changed its tool {tool}; it is held until somebody agrees"
        return RemitError(fault(Code.TOOL_NOT_ALLOWED, why, suggestion=how))

    async def _called(self, link: "McpConnection", name: str, arguments: dict[str, Json]) -> Json:
        from remit_models.mcp.connection import (
            McpBadReply,
            McpConnectionLost,
            McpRefusal,
            McpTimeout,
            McpUnauthorized,
        )
        from remit_models.mcp.reading import MAX_WORDS, value_of, visible_text

        settings = self.settings
        try:
            result = await link.call(self.names[name], arguments, settings.time_s)
        except McpUnauthorized as error:  # the server refused before it did anything
            raise RemitError(error.fault) from error
        except McpConnectionLost as error:
            self._lost(link)
            raise self._interrupted(name, f"{name} was interrupted: {error}") from error
        except McpTimeout as error:
            self._late += 1
            if self._late >= MAX_LATE:
                self._lost(link)
            raise self._interrupted(name, f"{name} did not answer within {settings.time_s:g} s") from error
        except McpBadReply as error:
            why = f"{name} did not give a valid answer: {error}"
            raise RemitError(fault(Code.RESULT_VALIDATION_FAILED, why)) from error
        except McpRefusal as error:
            why = f"{name} was refused by its server: {visible_text(str(error), MAX_WORDS)}"
            raise RemitError(fault(Code.DELEGATION_FAILED, why)) from error
        self._pause.succeed()
        self._late = 0
        # Redaction would take base64 for secrets, so a tool that sees raw values brings no files.
        files = settings.files and not self._cards[name].sees
        return value_of(name, result, settings.max_output, files=files)

    def _interrupted(self, name: str, why: str) -> RemitError:
        if self._cards[name].safe_to_repeat:
            return RemitError(fault(Code.DELEGATION_FAILED, why, suggestion="It is safe to use it again."))
        how = "Look whether it took effect before you use it again."
        return RemitError(fault(Code.OUTCOME_UNKNOWN, f"{why}; it is not known whether it took effect", suggestion=how))

    # ── failures ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _lost(self, link: "McpConnection") -> None:
        """Drop a connection."""
        if self._link is link:
            self._link = None
            self._failed()
            self._let_go(link)

    def _failed(self) -> None:
        self._pause.fail()
        for card in list(self._cards.values()):
            if card.description.endswith(_UNKNOWN):
                self._show(self._absent(card.name, _DOWN))

    def _let_go(self, link: "McpConnection") -> None:
        task = asyncio.get_running_loop().create_task(link.close())
        self._letting_go.add(task)
        task.add_done_callback(self._letting_go.discard)

    async def close(self) -> None:
        """Stop the server and everything that it started."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait({self._opening})
        if self._link is not None:
            self._let_go(self._link)
            self._link = None
        if self._letting_go:
            await asyncio.wait(self._letting_go)
        self._pause.reset()
        self._room = asyncio.Semaphore(AT_ONCE)
