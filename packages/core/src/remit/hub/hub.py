"""The hub that a Python program opens: SQLite beside it, agents from plain functions.

`Hub` adds to the engine what a program needs around it. Each part of that is a module of this package.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, Unpack

from msgspec.structs import replace

from remit.agents.cards import AgentOptions, local_card, seen_by
from remit.agents.function import AgentFunction, agent_from, closing, function_of, tool_from
from remit.agents.threads import Threads
from remit.agents.token_count import token_counter as default_token_counter
from remit.plugin import brought
from remit.policy.breaker import BreakerSettings
from remit.policy.guards import GUARDS
from remit.policy.limits import Limits
from remit.policy.verdict import Detector, Guard
from remit.protocol.card import Authority
from remit.protocol.envelope import Response
from remit.protocol.submission import AskOptions
from remit.runtime.answer_cache import Cache
from remit.runtime.approvers import InboxApprover
from remit.runtime.clock import LoopClock
from remit.runtime.context import RuntimeContext
from remit.runtime.engine import Engine
from remit.runtime.events import Outflow
from remit.runtime.ledger import Ledger
from remit.runtime.ports import Approver, Clock, Store, Summarizer, TokenCounter, Workspace
from remit.runtime.ports.agents import ConversationReader
from remit.runtime.redactor import Redactor
from remit.runtime.registry import Registry, team_invalid
from remit.runtime.sessions import Sessions
from remit.runtime.shared_requests import SharedLimits
from remit.runtime.text_reader import text_reader
from remit.stores import STORE_PATH
from remit.stores.addresses import secret_files, store_at
from remit.transports.local import LocalTransport


class Background:
    """A thread with an event loop in which a hub is open, also between calls.

    If the loop ran only during calls, leases would expire and records would wait. The caller's own loop, as in a
    notebook, cannot be used: a blocking wait in it would stop it.
    """

    def __init__(self, hub: Engine) -> None:
        self._hub = hub
        self._closing = asyncio.Event()
        self._loop: Future[asyncio.AbstractEventLoop] = Future()
        """The loop once the hub is open, or the error that kept it from opening."""
        self._ended: Future[None] = Future()
        threading.Thread(target=self._run, name="remit-hub", daemon=True).start()

    def wait_until_open(self) -> None:
        """Return once the hub is open, or raise the error that kept it from opening."""
        self._loop.result()

    def close(self) -> None:
        """Close the hub and return once it is closed, or raise the error of its thread.

        In a process that was forked from the one that opened the hub there is nothing to close.
        """
        if self._hub.process != os.getpid():
            return
        with suppress(RuntimeError):  # the loop has ended by itself
            self._loop.result().call_soon_threadsafe(self._closing.set)
        self._ended.result()

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that opened or closes the hub
            if not self._loop.done():
                self._loop.set_exception(error)
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _live(self) -> None:
        async with self._hub:
            self._loop.set_result(asyncio.get_running_loop())
            await self._closing.wait()


def _ask_blocking(hub: Engine, agent: str, text: str, user: str, options: AskOptions) -> Response:
    """Ask an agent of a hub that is open in another thread; the run is cancelled if the wait is interrupted."""
    loop = hub.loop
    if loop is None:
        raise RuntimeError("the hub is not open: ask within `with hub:`")
    hub.refuse_if_forked()
    if loop is _running():
        raise RuntimeError("ask_sync would block the event loop that the hub runs in: use `await hub.ask(...)` here")
    future = asyncio.run_coroutine_threadsafe(hub.ask(agent, text, user=user, **options), loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


log = logging.getLogger("remit")

DEFAULT_STORE = Path(STORE_PATH)
# More threads than this for one agent wait for the same thing, and each costs memory.
MAX_THREADS = 32

Function = TypeVar("Function", bound=AgentFunction)
ToolFunction = TypeVar("ToolFunction", bound=Callable[..., object])


class Hub(Engine):
    """Where agents live and call each other, on embedded defaults: no server, no key.

    *name* is its name in chains and records. *store* is a store, the path of an SQLite file (default: `.remit/hub.db`),
    or the address of a PostgreSQL database that several hubs share. *durability* says what an answer survives once it
    is given: `"power"`, a power cut; `"process"`, the process being killed. *redaction* finds personal data that agents
    must not see in each other's requests; True stands for the detectors that are installed. *limits* hold for every
    delegation. *guards* judge it after Remit's own. *authority* is that of `Limits`: with `"caller"` no agent can use a
    tool or ask an agent on behalf of a caller that could not, unless its own `authority` is `"own"`. *approver* answers
    when a guard asks; `"inbox"` leaves the question in the store for `remit pending` or `hub.decide`. *token_counter*
    counts the tokens of a text (default: exactly with the extra `tokens`, else by an estimate). *workspace* is the
    folder that callees may be told of. *summarizer* makes summaries of conversations, better than those made without a
    model. *shared* says that other hubs share the store: rate limits, breakers and rankings hold over all of them.
    """

    _ignored: Path | None = None

    def __init__(
        self,
        *,
        name: str = "local",
        store: Store | Path | str | None = None,
        durability: Literal["power", "process"] = "power",
        limits: Limits | None = None,
        authority: Authority | None = None,
        guards: Iterable[Guard] = (),
        breaker: BreakerSettings | None = None,
        approver: Approver | Literal["inbox"] | None = None,
        redaction: Detector | bool = True,
        vault_key: bytes | None = None,
        token_counter: TokenCounter | None = None,
        workspace: Workspace | Path | str | None = None,
        summarizer: Summarizer | None = None,
        clock: Clock | None = None,
        shared: bool = False,
    ) -> None:
        limits = limits or Limits()
        count = default_token_counter() if token_counter is None else token_counter
        if store is None or isinstance(store, str | Path):
            store = store_at(DEFAULT_STORE if store is None else store, durability=durability, count=count)
            folders = [path.parent for path in secret_files(store)[-1:]]
            self._ignored = next((each for each in folders if each.name == DEFAULT_STORE.parent.name), None)
        if isinstance(workspace, str | Path):
            workspace = _folder(workspace)
        clock = clock or LoopClock()
        reader = partial(_conversations, store, summarizer, count)
        super().__init__(
            RuntimeContext(
                registry=Registry(name),
                ledger=Ledger(breaker or BreakerSettings()),
                store=store,
                transport=LocalTransport(),
                clock=clock,
                limits=limits if authority is None else replace(limits, authority=authority),
                guards=(*GUARDS, *guards),
                approver=InboxApprover(store) if approver == "inbox" else approver,
                redactor=Redactor(_installed_detector() if redaction is True else redaction or None, vault_key),
                sessions=Sessions(store, clock, count, reader, workspace),
                outflow=Outflow(clock),
                cache=Cache(),
            )
        )
        self._shared = SharedLimits(self._parts, self._dispatch.routing) if shared else None
        self._closers += [] if self._shared is None else [self._shared.close]
        if (aclose := getattr(summarizer, "aclose", None)) is not None:
            self._closers.append(aclose)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        if self._shared is not None:
            self._shared.open()
        if self._ignored is not None:
            (self._ignored / ".gitignore").write_text("*\n", encoding="ascii")
        return self

    def __enter__(self) -> Self:
        """Open the hub in a thread of its own, for programs that do not await; ask it with `ask_sync`."""
        background = Background(self)
        background.wait_until_open()
        self._background = background
        return self

    def __exit__(self, *_: object) -> None:
        self._background.close()

    def ask_sync(self, agent: str, text: str = "", *, user: str, **options: Unpack[AskOptions]) -> Response:
        """Ask like `ask`, without await: from scripts and notebooks, even if an event loop is already running.

        If the hub is not open, it is opened for this call only; for several calls use `with hub:`.
        """
        if self.loop is not None:
            return _ask_blocking(self, agent, text, user, options)
        with self:
            return _ask_blocking(self, agent, text, user, options)

    def agent(self, name: str, **options: Unpack[AgentOptions]) -> Callable[[Function], Function]:
        """Register the decorated function as an agent; it stays callable."""

        def add(function: Function) -> Function:
            self.add(name, function, **options)
            return function

        return add

    def add(self, name: str, agent: object, **options: Unpack[AgentOptions]) -> None:
        """Add an agent: a function, async or not, a `ModelAgent`, or an agent of any framework that Remit knows.

        With `isolation="process"` it may be a text, `"module:function"`, and the hub does not import it. *env* names
        more variables for its process; *sandbox* keeps it from all files, hosts and processes that are not named.
        """
        if options.get("isolation") == "process":
            function = None if isinstance(agent, str) else function_of(agent)
            card = local_card(name, agent, function, options)
            secret = [path.absolute() for path in secret_files(self.store)]
            code, close = _brought("isolated_agent", name, 'isolation="process"')(self, name, agent, options, secret)
        else:
            if options.get("env") or options.get("sandbox"):
                raise team_invalid(f'agent `{name}`: `env` and `sandbox` need isolation="process"')
            function = function_of(agent)
            card = local_card(name, agent, function, options)
            threads = Threads(name, min(card.concurrency, MAX_THREADS))
            code, close = agent_from(function, threads), closing(function, threads)
        if options.get("route"):
            code = _brought("routed_agent", name, "route")(self, card, code)
        self.register(card, code, close)
        self.made_of[name] = agent

    def tool(
        self,
        name: str | None = None,
        *,
        description: str | None = None,
        safe_to_repeat: bool = False,
        sees: Collection[str] | Mapping[str, Collection[str]] = (),
    ) -> Callable[[ToolFunction], ToolFunction]:
        """Register the decorated function as a tool: its parameters are its schema; `user` is filled from the remit.

        *sees* are the kinds of personal data that it is given in clear, in all parameters (`["EMAIL"]`) or by
        parameter (`{"email": ["EMAIL"]}`). The agents that use it get placeholders, also in its results.
        """

        def add(function: ToolFunction) -> ToolFunction:
            threads = Threads(name or function.__name__, MAX_THREADS)
            tool = tool_from(
                function,
                name,
                threads,
                description=description,
                safe_to_repeat=safe_to_repeat,
                sees=seen_by(sees, f"tool `{name or function.__name__}`"),
            )
            self.register_tool(tool, threads.close)
            return function

        return add


def _brought(hook: str, agent: str, option: str) -> Callable[..., Any]:
    """Return what the first plugin brings for an option of an agent."""
    for bring in brought(hook):
        return bring
    raise team_invalid(f"agent `{agent}`: no installed plugin knows the option {option}")


def _installed_detector() -> Detector | None:
    """Return the detector of the first plugin that brings one."""
    for bring in brought("redaction"):
        return bring()
    log.warning("no detectors are installed: personal data is not redacted; redaction=False says that this is meant")
    return None


def _folder(path: str | Path) -> Workspace:
    from remit.stores.workspace import Folder  # most hubs have none

    return Folder(path)


def _conversations(store: Store, summarizer: Summarizer | None, count: TokenCounter) -> ConversationReader:
    # Most hubs never continue a conversation, and the language modules take memory.
    return text_reader().conversations(store, summarizer, count)
