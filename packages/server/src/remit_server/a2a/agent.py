"""One A2A agent: its card and address, and how a task there is started, followed to its end, and cancelled."""

import asyncio
import random
from collections import OrderedDict
from collections.abc import AsyncGenerator, Collection
from contextlib import suppress
from functools import partial
from urllib.parse import urlsplit

from remit.ports import Credential, Departure, OutgoingRequest, Remote, RemoteHandle
from remit.protocol.codec import encode
from remit.protocol.envelope import Json, Request, Response
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.files import MAX_FILES_JSON
from remit.protocol.records import Approval
from remit_server.a2a.grpc_calls import GrpcCaller, GrpcChannels, grpc_url
from remit_server.a2a.http_calls import (
    A2aCallee,
    A2aCaller,
    A2aConnectionLost,
    A2aRefusal,
    A2aUnreached,
    HttpCaller,
)
from remit_server.dialects.a2a.errors import EXTENSION
from remit_server.dialects.a2a.translator import A2aEndpoint, A2aTranslator
from remit_server.dialects.a2a.types import CARD_PATH, METHODS
from remit_server.transports.addresses import OutboundClient, OutboundHosts, is_local, parsed
from remit_server.transports.remote_calls import (
    ASK_FOR_LESS,
    CANCEL_S,
    PAUSE_S,
    RetryAllowed,
    in_words,
    is_away,
    is_known_there,
    lost,
    outgoing,
    read_body,
    shielded,
    with_retries,
)

CARD_S = 10.0
# How long a card is cached, unless its agent is not where it says.
FRESH_S = 300.0
CARD_BYTES = 256 * 1024
# An answer may have the maximum size, and its files and its envelope add to that.
AROUND_BYTES = 65_536 + MAX_FILES_JSON


class A2aPeer:
    """An A2A peer: where its card is, which keys may sign it, and how this hub authenticates."""

    def __init__(
        self,
        card_url: str,
        tongue: A2aTranslator,
        *,
        token: str | None = None,
        credential: Credential | None = None,
        keys: Collection[str] = (),
        hosts: Collection[str] = (),
        private: bool = False,
        max_bytes: int = 4 * 1024 * 1024,
    ) -> None:
        host = (urlsplit(card_url).hostname or "").lower()
        # Whoever writes `http://10.0.0.7` means it; a public name that resolves to such an address may be an attack.
        named = {*(each.lower() for each in hosts), *((host,) if is_local(host) else ())}
        reach = OutboundHosts(hosts=frozenset(named), private=private)
        try:
            parts = parsed(card_url, reach)
        except RemitError as error:
            raise RemitError(fault(Code.TEAM_INVALID, f"invalid agent card address: {error.fault.message}")) from error
        self.card_url = card_url if parts.path.endswith(".json") else f"{card_url.rstrip('/')}{CARD_PATH}"
        self.tongue = tongue
        self.max_bytes = max_bytes + AROUND_BYTES
        self.sessions: OrderedDict[str, tuple[str, str]] = OrderedDict()
        """By our session: the peer's context id, and its task that waits for the user, if there is one."""
        self._host, self._hosts, self._is_https = host, frozenset(named), parts.scheme == "https"
        self._token = token
        self._credential = credential
        self._keys = frozenset(keys)
        self._reach = reach
        self._outbound = OutboundClient(reach)
        self._channels: GrpcChannels | None = None
        self._offer: tuple[float, A2aEndpoint] | None = None

    async def close(self) -> None:
        """Close the connections."""
        await self._outbound.close()
        if self._channels is not None:
            await self._channels.close()

    def forget(self) -> None:
        """Drop the cached card: its agent was not where it says."""
        self._offer = None
        if self._channels is not None:
            self._channels.forget()

    async def offer(self) -> A2aEndpoint:
        """Return how the agent can be called."""
        now = asyncio.get_running_loop().time()
        if self._offer is not None and now - self._offer[0] < FRESH_S:
            return self._offer[1]
        async with asyncio.timeout(CARD_S):
            headers = {"accept": "application/json"} | self._proof()
            async with self._outbound.request("GET", self.card_url, headers=headers) as reply:
                if reply.status != 200:
                    why = f"no agent card found: status {reply.status}"
                    raise RemitError(fault(Code.DELEGATION_UNAVAILABLE, why, detail=self.card_url))
                raw = await read_body(reply, CARD_BYTES)
        offer = self.tongue.offer(raw, self.card_url, self._keys)
        if offer.binding == "GRPC":
            offer = offer._replace(url=grpc_url(offer.url, self._reach, is_https=self._is_https))
        self._refuse_elsewhere(offer.url)
        self._offer = (now, offer)
        return offer

    def _refuse_elsewhere(self, url: str) -> None:
        """Raise a `RemitError` if a card points to a host that the team has not named: requests go nowhere else."""
        parts = urlsplit(url)
        host = (parts.hostname or "").lower()
        if host != self._host and host not in self._hosts:
            detail = f"{self.card_url} points to {host[:200]}"
            allow = "If this is intended, the operator of this hub can add the host to `hosts`."
            raise RemitError(
                fault(Code.PERMISSION_DENIED, "the agent card points to another host", suggestion=allow, detail=detail)
            )
        if self._is_https and parts.scheme != "https":
            why = f"the agent card points from https to {parts.scheme}"
            how = "Ask its owner for a card with an https address."
            raise RemitError(fault(Code.PERMISSION_DENIED, why, suggestion=how, detail=self.card_url))

    def _proof(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._token}"} if self._token else {}

    async def _headers(
        self, offer: A2aEndpoint, request: Request, line: RemoteHandle, sending: OutgoingRequest
    ) -> dict[str, str]:
        headers = {**offer.headers, **self._proof(), "traceparent": request.traceparent or ""}
        if offer.extended:
            headers = {**line.passed_on, **headers}  # forwarded headers are not for peers without the extension
        return headers if self._credential is None else headers | await self._credential(request, sending)

    def caller(self, name: str, offer: A2aEndpoint, request: Request, line: RemoteHandle) -> A2aCaller:
        """Return what calls the agent for one request, in the binding that it offers."""
        callee = A2aCallee(
            name=name,
            offer=offer,
            tongue=self.tongue,
            max_bytes=self.max_bytes,
            headers=partial(self._headers, offer, request, line),
            time_left_ms=line.time_left_ms,
        )
        if offer.binding != "GRPC":
            return HttpCaller(callee, self._outbound)
        if self._channels is None:
            self._channels = GrpcChannels(self._reach, self.max_bytes)
        return GrpcCaller(callee, self._channels)


# How often a task is polled whose server does not stream: often at first, then less and less.
MOST_PAUSE_S = 2.0
# How many conversations are remembered by the peer's context ids.
MOST_SESSIONS = 10_000
# The maximum length of a question that people are shown.
MOST_QUESTION = 2_000

# The name of what is kept for a conversation.
_THREAD = "a2a"


# ── an agent ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class A2aAgent(Remote):
    """The agent that a card describes."""

    judges_tools = True

    def __init__(self, peer: A2aPeer, name: str) -> None:
        self._peer = peer
        self._name = name

    async def send(self, request: Request, line: RemoteHandle) -> Response:
        """Send a request and return its outcome; if cancelled, cancel it at the peer, too."""
        exchange: _Exchange | None = None

        async def attempt(sent: bool) -> Response:
            nonlocal exchange
            try:
                offer = await self._reachable(sent=sent)
                if not offer.extended and isinstance(request.remit.tools, dict):
                    return lost(request, self._unbound(), sent=sent)
                exchange = _Exchange(self._peer, self._name, offer, outgoing(request, line), line, left, sent=sent)
                return await exchange.carry_out()
            except RetryAllowed:
                self._peer.forget()
                raise

        try:
            left = await line.depart(f"{self._name} at {self._peer.card_url}")
            return await with_retries(request, line, attempt, sent=left is not None, most_pause_s=MOST_PAUSE_S)
        except (asyncio.CancelledError, RemitError):
            # Nobody waits for the task any more, or its answer is invalid: cancel it, unless the run is resumed later.
            if exchange is not None:
                try:
                    await shielded(exchange.named() if line.handed_back else exchange.cancel(), CANCEL_S)
                finally:
                    exchange.give_up()
            raise

    def _unbound(self) -> Fault:
        why = f"{self._name} cannot be held to conditions on the arguments of tools: its card lacks `{EXTENSION}`"
        return fault(Code.TOOL_NOT_ALLOWED, why, suggestion="Ask it without conditions, or ask an agent of a hub.")

    async def _reachable(self, *, sent: bool) -> A2aEndpoint:
        from aiohttp import ClientConnectorError, ClientError, ConnectionTimeoutError

        try:
            return await self._peer.offer()
        except (ClientError, OSError, TimeoutError) as error:
            met_nobody = isinstance(error, (ClientConnectorError, ConnectionTimeoutError))
            what = in_words(error) if met_nobody else f"{type(error).__name__}: {str(error)[:200]}"
            why = f"cannot fetch the agent card of {self._name}"
            detail = f"{self._peer.card_url}: {what}"
            gone = fault(Code.DELEGATION_UNAVAILABLE, why, detail=detail)
            raise RetryAllowed(gone, sent=False, away=met_nobody and is_away(error)) from error
        except RemitError as error:
            if not sent or error.fault.code is not Code.DELEGATION_UNAVAILABLE:
                raise
            raise RetryAllowed(error.fault, sent=False) from error  # a proxy may answer while the agent is away


class _Exchange:
    """One request at one peer, from start to end."""

    def __init__(
        self,
        peer: A2aPeer,
        name: str,
        offer: A2aEndpoint,
        request: Request,
        line: RemoteHandle,
        left: Departure | None,
        *,
        sent: bool,
    ) -> None:
        self._peer = peer
        self._name = name
        self._offer = offer
        self._request = request
        self._line = line
        self._extended = offer.extended
        self._calls = peer.caller(name, offer, request, line)
        self._talk = peer.tongue.talk(request, extended=offer.extended)
        self._left = left
        """That the request was sent before a restart, and the peer's task id, if it was known."""
        self._may_have_begun = sent
        """Whether anything was sent that may have started something."""
        self._question: str | None = None
        """The question to a person at the peer, while there is one."""
        self._working: asyncio.Future[Response] | None = None
        self._task_known = asyncio.Event()
        """Set once the peer has sent its task id."""

    async def carry_out(self) -> Response:
        """Send the request, and follow the task to its end."""
        if self._extended:
            return await self._through()
        # A cancel before the task id is known waits until it is.
        self._working = asyncio.ensure_future(self._through())
        return await asyncio.shield(self._working)

    def give_up(self) -> None:
        """Stop reading."""
        if self._working is not None:
            self._working.cancel()
            # Its result no longer matters.
            self._working.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _through(self) -> Response:
        before = self._may_have_begun
        try:
            if self._known:
                await self._follow(self._known)
            elif before and not self._may_send_again():
                why = "the request was sent before, and there is no task id to ask for it"
                raise A2aRefusal(self._lost(why))
            else:
                await self._begin()
            while not self._talk.ended:
                await self._follow(self._talk.task)
        except A2aRefusal as refusal:
            why = refusal.fault
            return lost(self._request, why, sent=before or why.code is Code.OUTCOME_UNKNOWN)
        await self._remember()
        return self._talk.response().outward()  # this hub sets origin and detail itself

    def _may_send_again(self) -> bool:
        """Return whether the peer still knows the message by its id: then sending it again starts nothing."""
        return self._extended and (self._left is None or is_known_there(self._line, self._left))

    # ── beginning ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _begin(self) -> None:
        # A peer that can cancel only by task id must send that first.
        streams = self._offer.streams and (self._line.has_listeners or not self._extended)
        method = "SendStreamingMessage" if streams else "SendMessage"
        context, task = await self._conversation()
        # For a continued task, an immediate answer may be its state before this message.
        at_once = not (streams or self._extended or task)
        params = self._talk.message(context=context, task=task, tenant=self._offer.tenant, at_once=at_once)
        async for _ in self._call(method, params, is_stream=streams):
            pass

    async def _conversation(self) -> tuple[str, str]:
        """Return the peer's context id, and its task that waits for the user."""
        session = self._request.session
        if session is None:
            return "", ""
        known = self._peer.sessions.get(session)
        # A session that is named after its run begins with it.
        if known is None and session != self._request.run:
            known = _thread(await self._line.state())
        context, task = known or ("", "")
        # Peers with the extension keep our session names; others have their own.
        return context or (session if self._extended else ""), task

    async def _remember(self) -> None:
        session, sessions = self._request.session, self._peer.sessions
        if session is None or not self._talk.context:
            return
        thread = (self._talk.context, self._talk.task if self._talk.asks else "")
        if thread != sessions.get(session):
            sessions[session] = thread
            # Another process, or this one after a restart, goes on in the same conversation.
            with suppress(RemitError):  # another run of this session has just kept its own
                await self._line.change({_THREAD: {"context": thread[0], "task": thread[1]}})
        sessions.move_to_end(session)
        while len(sessions) > MOST_SESSIONS:
            sessions.popitem(last=False)

    # ── going on ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _follow(self, task: str) -> None:
        """Follow a task that has not ended: as a stream, or by polling."""
        if not task:
            raise self._unanswered("the stream ended without an outcome")
        pause_s = PAUSE_S
        while not self._talk.ended:
            try:
                if self._offer.streams:
                    async for _ in self._call("SubscribeToTask", self._by_name(task), is_stream=True, named=task):
                        pause_s = PAUSE_S
                if not self._talk.ended:
                    async for _ in self._call(
                        "GetTask", self._by_name(task), is_stream=False, is_task=True, named=task
                    ):
                        pass
            except RetryAllowed:
                pass  # retry until the deadline
            except A2aRefusal as refusal:
                # A task that has just ended cannot be subscribed to; a server that forgot it knows no outcome.
                if refusal.fault.code is not Code.STATE_CONFLICT:
                    raise
                async for _ in self._call("GetTask", self._by_name(task), is_stream=False, is_task=True, named=task):
                    pass
            if not self._talk.ended:
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))
                pause_s = min(2 * pause_s, MOST_PAUSE_S)

    def _by_name(self, name: str = "") -> bytes:
        tenant = {"tenant": self._offer.tenant} if self._offer.tenant else {}
        return encode({"id": name or self._talk.task} | tenant)

    # ── one call ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _call(
        self, method: str, params: bytes, *, is_stream: bool, is_task: bool = False, named: str = ""
    ) -> AsyncGenerator[None, None]:
        """Call a method and process the answer; yields after each piece of it."""
        call = await self._calls.prepare(method, params, is_stream=is_stream, named=named or self._talk.task)
        begins, before = METHODS[method].begins, self._may_have_begun
        self._may_have_begun = before or begins
        if self._may_have_begun:
            self._line.doubt(f"the outcome at {self._name} is unknown")
        try:
            async with call as reply:
                if begins and self._extended and reply.extensions is not None:
                    self._extended = self._peer.tongue.is_echoed(reply.extensions)
                async for raw in reply.pieces:
                    await self._take(raw, is_task=is_task, is_stream=is_stream)
                    yield
        except A2aUnreached as error:
            self._may_have_begun = before
            detail = f"{self._offer.url}: {error}"
            why = fault(Code.DELEGATION_UNAVAILABLE, f"{self._name} cannot be reached", detail=detail)
            raise RetryAllowed(why, sent=before, away=error.away) from error
        except A2aConnectionLost as error:
            if begins and self._talk.task:
                return  # the task id is known, so it is followed
            what, how = "the connection was lost", str(error)
            raise (self._unanswered(what, how) if begins else RetryAllowed(self._lost(what, how), sent=True)) from error

    async def _take(self, raw: bytes, *, is_task: bool, is_stream: bool) -> None:
        try:
            news = self._talk.hear(raw, is_task=is_task)
        except RemitError as error:
            if not is_stream or error.fault.code is not Code.RESULT_VALIDATION_FAILED:
                raise
            self._talk.warn(f"An event was left out: {error.fault.message}")  # the others may say it all
            return
        if self._talk.task:
            self._task_known.set()
            if not self._talk.ended:
                self._line.name(self._talk.task)
        if self._talk.size() > self._peer.max_bytes:
            raise RemitError(
                fault(
                    Code.TOO_LARGE, f"the answer is larger than {self._peer.max_bytes} bytes", suggestion=ASK_FOR_LESS
                )
            )
        if news.progress:
            self._line.progress(news.progress, None)
        if news.piece:
            self._line.say(news.piece)
        if self._talk.waits:
            await self._person(self._talk.question, None)
        elif self._question is not None:
            await self._person("", not self._talk.ended or self._talk.response().ok)

    async def _person(self, question: str, agreed: bool | None) -> None:
        """Note that a person is asked at the peer, or has answered: the deadline stops meanwhile."""
        if agreed is None and self._question is not None:
            return
        text = question or self._question or f"{self._name} is waiting for approval"
        self._question = text if agreed is None else None
        approval = Approval(
            delegation=self._request.id,
            agent=self._request.target,
            id="person",
            question=text[:MOST_QUESTION],
            agreed=agreed,
            by="" if agreed is None else f"someone at {self._name}",
        )
        await self._line.record_approval(approval)

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def named(self) -> None:
        """Return once the peer has sent its task id, if the task can only be addressed by that."""
        if self._may_have_begun and self._working is not None and not self._talk.task and not self._known:
            named = asyncio.ensure_future(self._task_known.wait())
            await asyncio.wait({self._working, named}, return_when=asyncio.FIRST_COMPLETED)
            named.cancel()

    @property
    def _known(self) -> str:
        """The peer's task id from before a restart."""
        return "" if self._left is None else self._left.task

    async def cancel(self) -> None:
        """Cancel the task at the peer, and count what it had spent."""
        if not self._may_have_begun:
            return
        await self.named()
        # Peers with the extension also know a running task by its message id.
        name = self._talk.task or self._known or (self._request.id if self._extended else "")
        pause_s, method = PAUSE_S, "CancelTask"
        while name and not self._talk.ended:
            try:
                async for _ in self._call(method, self._by_name(name), is_stream=False, is_task=True, named=name):
                    pass
            except A2aRefusal as refusal:
                if refusal.fault.code is Code.STATE_CONFLICT and method == "CancelTask":
                    method = "GetTask"  # it has just ended: get its outcome
                elif refusal.fault.code is Code.NOT_FOUND and not self._talk.task:
                    # The message may still be on its way: then the peer does not know it yet.
                    await asyncio.sleep(pause_s)
                    pause_s *= 2
                else:
                    return
            else:
                break
        if self._talk.ended:
            self._line.settle(self._talk.response())

    def _unanswered(self, what: str, how: str = "") -> "RetryAllowed | A2aRefusal":
        """Return the error of a message without an answer."""
        # Sent again, it could run twice, unless the peer knows it by its id.
        why = self._lost(what, how)
        return RetryAllowed(why, sent=True) if self._extended else A2aRefusal(why)

    def _lost(self, what: str, how: str = "") -> Fault:
        detail = f"{self._offer.url}: {how}" if how else self._offer.url
        return fault(Code.OUTCOME_UNKNOWN, f"{self._name}: {what}", detail=detail)


def _thread(state: dict[str, Json]) -> tuple[str, str] | None:
    """Return the peer's context id and its task that waits, as they were kept."""
    match state.get(_THREAD):
        case {"context": str(context), "task": str(task)}:
            return context, task
        case _:
            return None
