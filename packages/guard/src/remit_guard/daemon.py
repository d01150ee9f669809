"""The process that answers the hooks of all tools of one user over a socket, asks people and shows a console."""

import asyncio
import html
import logging
import os
import shutil
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from remit.hub.hub import Hub
from remit.policy.limits import Limits
from remit.ports import Approver, Decision, Question
from remit.protocol.errors import RemitError
from remit.runtime.approvers import InboxApprover
from remit_guard.days import DayLedger
from remit_guard.lock import only_guard
from remit_guard.places import days_of, guard_store, heard_of, judged_of, socket_of
from remit_guard.service import GuardService
from remit_guard.settings import NO_RULES, GuardRules, GuardSettings
from remit_guard.tools.known_tools import TOOLS
from remit_server.model_prices import PriceBook

if TYPE_CHECKING:
    from remit_server.console.console import Console


# A notifier that hangs is given up; the question waits in the inbox all the same.
PATIENCE_S = 10
_APPLE = ("on run argv", "display notification (item 2 of argv) with title (item 1 of argv)", "end run")

Show = Callable[[Question], None]
"""Shows a question to whoever looks at the guard."""


def asking(hub: Callable[[], Hub], show: Show | None, *, desktop: bool) -> Approver:
    """Return an approver that puts a question into the inbox of a hub, and tells that it waits there."""

    waiting = Counter[str]()

    async def ask(question: Question) -> Decision:
        store = hub().store
        await store.put(question)  # it can be answered once it is told
        telling = None
        if not waiting[question.id]:
            if show is not None:
                show(question)
            telling = asyncio.create_task(notify("A coding tool waits for you", question.text)) if desktop else None
        waiting[question.id] += 1
        try:
            return await InboxApprover(store)(question)
        finally:
            waiting[question.id] -= 1
            if telling is not None:
                telling.cancel()
                await asyncio.wait([telling])

    return ask


async def notify(title: str, text: str) -> None:
    """Show a notification; nothing happens where there is no notifier, or it does not work."""
    command = desktop_command(title, text)
    if command is None:
        return
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return
    try:
        await _within(process.wait())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _within(work: Awaitable[object]) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            await work
    except TimeoutError:
        pass


def desktop_command(title: str, text: str) -> list[str] | None:
    """Return the command that shows a notification on this desktop; None: there is none."""
    if program := shutil.which("notify-send"):
        return [program, "--app-name=Remit", "--", title, html.escape(text, quote=False)]  # its text may have markup
    if program := shutil.which("osascript"):
        return [program, *(part for line in _APPLE for part in ("-e", line)), title, text]
    return None


TOKEN_FILE = "console.token"


class GuardConsole:
    """Serves the console from the first link on; a guard that nobody looks at opens no port."""

    def __init__(self, hub: Hub, folder: Path, prices: PriceBook) -> None:
        self._hub = hub
        self._prices = prices
        self._folder = folder
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._console: Console | None = None

    async def link(self) -> str:
        """Return a link that signs in one browser, once."""
        from remit_server.console.hosts import OWNER

        async with self._opening:
            console = self._console = self._console or await self._open()
        return console.link(OWNER)

    async def _open(self) -> "Console":
        from remit_server.access import token_in
        from remit_server.app import Api
        from remit_server.console.console import operator_console
        from remit_server.console.hosts import HOST, ConsoleHosts, owner_alone
        from remit_server.documents.spend import Pricing
        from remit_server.server import Server  # a guard that nobody looks at starts without all this
        from remit_server.transports.addresses import listening

        async with AsyncExitStack() as stack:
            bound = stack.enter_context(listening(HOST, 0))
            hosts = ConsoleHosts(bound.getsockname()[1])
            clients = owner_alone(token_in(self._folder / TOKEN_FILE))
            console = operator_console(self._hub, hosts, clients, team="guard", currency=self._prices.currency)
            pricing = Pricing(price=self._prices.price)
            # Nobody asks an agent of a tool but the tool itself.
            api = Api(self._hub, clients, exposed=tuple, console=console, hosts=hosts, pricing=pricing)
            await stack.enter_async_context(Server(api, bound=bound))
            self._stack = stack.pop_all()
            return console

    async def close(self) -> None:
        """Stop serving."""
        await self._stack.aclose()


_log = logging.getLogger("remit.guard")
# A hook tells a prompt, the input of a tool and its result; the largest of these are files.
MAX_BYTES = 64 * 1_048_576
# Half an event that never ends must not keep the guard from stopping. Hooks that wait for a person are answered before.
STOP_S = 5
# A tool waits an hour for the answer to a spawn. A question that nobody answers is over before that.
APPROVAL_MS = 55 * 60_000
# How often a hook that was given up is looked at: it may come to ask a person only then.
LEFT_S = 1
# A hook that waits for a person hears from the guard this often, and gives a guard up that it hears nothing of.
BEAT_S = 10
# JSON may begin with spaces. They are more than a byte for each second, the least that `curl` takes for an answer.
BEAT = b" " * 64
_JSON = (b"content-type", b"application/json")
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def hub_for(folder: Path, settings: GuardSettings, show: Show | None, prices: PriceBook) -> Hub:
    """Return the hub of the guard, with limits that let each tool have its own."""
    widest = settings.widest()
    limits = Limits(
        max_depth=widest.depth,
        max_chain=widest.depth + 1,
        max_fan_out=widest.at_once,
        root_tokens=widest.tokens,
        root_time_ms=widest.time_ms,
        delegation_time_ms=widest.time_ms,
        overrun="call",
        approval_timeout_ms=APPROVAL_MS,
        currency=prices.currency,
    )
    approver = asking(lambda: hub, show, desktop=settings.notify)
    store = guard_store(folder)
    hub = Hub(name="guard", store=store, durability="process", limits=limits, approver=approver, prices=prices.cost)
    hub.when_opening(prices.load_beside)
    return hub


class GuardApp:
    """The answers to hooks and to `remit guard status`, as an ASGI application."""

    def __init__(
        self,
        service: GuardService,
        user: str,
        folder: Path,
        link: Callable[[], Awaitable[str]],
        part_of: str,
        currency: str,
    ) -> None:
        self._tools = {name: tool.answering(service, user) for name, tool in TOOLS.items()}
        self._service = service
        self._link = link
        self._part_of = part_of
        self._currency = currency
        self._last_hook_files = {name: heard_of(folder, name) for name in TOOLS}
        for path in self._last_hook_files.values():
            path.parent.mkdir(exist_ok=True)
        self.seen: dict[str, int] = {}
        """How many hooks each tool has sent."""
        self._answering: set[asyncio.Task[tuple[int, bytes]]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        answering = asyncio.create_task(self._answer(scope["method"], scope["path"], await _body(receive)))
        self._answering.add(answering)
        leaving = asyncio.create_task(_wait_for_disconnect(receive))
        begun = False
        try:
            await asyncio.wait({answering, leaving}, timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED)
            while not (answering.done() or leaving.done()):
                if not begun:
                    begun = True
                    await send({"type": "http.response.start", "status": 200, "headers": [_JSON]})
                await send({"type": "http.response.body", "body": BEAT, "more_body": True})
                await asyncio.wait({answering, leaving}, timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED)
            while not answering.done():
                # The tool has given the hook up. What it told is noted all the same, but nobody needs to be asked.
                if self._service.is_asking(answering):
                    answering.cancel()
                await asyncio.wait({answering}, timeout=LEFT_S)
        finally:
            leaving.cancel()
            answering.cancel()
            self._answering.discard(answering)
        status, body = (503, b'{"error": "the guard is stopped"}') if answering.cancelled() else answering.result()
        if not begun:
            headers = [_JSON, (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": status, "headers": headers})
        elif status != 200:
            return  # an answer that breaks off is none
        await send({"type": "http.response.body", "body": body})

    def stop(self) -> None:
        """Answer hooks that wait for a person, so that the server need not wait: what they ask for does not start."""
        for answering in self._answering:
            answering.cancel()

    async def _answer(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        if (method, path) == ("GET", "/status"):
            sessions = [session.use() for session in self._service.sessions.values()]
            about = {"process": os.getpid(), "part_of": self._part_of, "currency": self._currency}
            return 200, msgspec.json.encode({"hooks": self.seen, "sessions": sessions, **about})
        if (method, path) == ("POST", "/console"):
            return await self._console()
        tool = path.removeprefix("/hooks/")
        if method != "POST" or tool not in self._tools:
            return 404, b'{"error": "no such address"}'
        if body is None:
            return 413, b'{"error": "the event is too large"}'
        try:
            answer = await self._tools[tool](body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            _log.warning("an event of %s is not understood, and does not count: %s", tool, error)
            return 400, msgspec.json.encode({"error": str(error)})
        self.seen[tool] = self.seen.get(tool, 0) + 1
        with suppress(OSError):  # on a full disk, what was decided holds all the same
            self._last_hook_files[tool].touch()
        return 200, msgspec.json.encode(answer)

    async def _console(self) -> tuple[int, bytes]:
        try:
            return 200, msgspec.json.encode({"link": await self._link()})
        except RemitError as error:
            return 503, msgspec.json.encode({"error": error.fault.message, "suggestion": error.fault.suggestion})


async def _body(receive: Receive) -> bytes | None:
    parts = list[bytes]()
    size = 0
    while True:
        message = await receive()
        part: bytes = message.get("body", b"")
        size += len(part)
        if size <= MAX_BYTES:
            parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts) if size <= MAX_BYTES else None


async def _wait_for_disconnect(receive: Receive) -> None:
    """Wait until a client that has sent its request whole closes the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


@asynccontextmanager
async def running_guard(
    folder: Path,
    settings: Callable[[str], GuardSettings],
    user: str,
    show: Show | None = None,
    *,
    rules: GuardRules = NO_RULES,
    prices: PriceBook | None = None,
    part_of: str = "",
) -> AsyncGenerator[Path]:
    """Answer hooks at the socket of a folder that exists, until the context ends.

    *show* tells of questions; *part_of* is the command whose process does other things, too.
    """
    import uvicorn

    started = asyncio.Event()

    class QuietServer(uvicorn.Server):
        """A server that says when it answers, and leaves signals to its process."""

        @contextmanager
        def capture_signals(self) -> Generator[None]:
            yield

        async def startup(self, sockets: list[Any] | None = None) -> None:
            await super().startup(sockets)
            started.set()

    with only_guard(folder):
        prices = PriceBook() if prices is None else prices
        async with hub_for(folder, settings(""), show, prices) as hub:
            for question in await hub.store.pending():  # of a guard that was killed: nobody waits for an answer
                await hub.store.withdraw(question.id)
            service = GuardService(hub, settings, DayLedger(days_of(folder)), rules)
            console, judged = GuardConsole(hub, folder, prices), judged_of(folder)
            # It stays when the guard is stopped: rules hold until a guard without them is started.
            judged.touch() if rules.tool_guards else judged.unlink(missing_ok=True)
            path = socket_of(folder)
            options: dict[str, Any] = {"log_level": "warning", "lifespan": "off", "access_log": False}
            options["timeout_graceful_shutdown"] = STOP_S
            app = GuardApp(service, user, folder, console.link, part_of, prices.currency)
            server = QuietServer(uvicorn.Config(app, uds=str(path), **options))
            serving = asyncio.create_task(server.serve())
            begins = asyncio.create_task(started.wait())
            try:
                await asyncio.wait({serving, begins}, return_when=asyncio.FIRST_COMPLETED)
                if serving.done():
                    await serving
                path.chmod(0o600)  # the server lets everybody in who can reach it
                yield path
            finally:
                begins.cancel()
                app.stop()
                server.should_exit = True
                await asyncio.gather(serving, return_exceptions=True)
                await console.close()
                for tool, name in list(service.sessions):
                    await service.close(tool, name, "the guard was stopped")
