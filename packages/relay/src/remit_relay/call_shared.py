"""Calls of the hub's agents to agents on other devices: send an encrypted question and wait for its answer.

A call is identified by the place of its delegation in the run. A hub that resumes a run after a crash asks the same
question again, and the other side returns the existing result: nothing is carried out twice.
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from remit.hub.hub import Hub
from remit.policy.budget import Window
from remit.ports import Remote, RemoteHandle, StoreError
from remit.protocol.card import Rate
from remit.protocol.codec import text_of
from remit.protocol.envelope import VERSION, Answer, AnswerContent, Request, Response, Usage, fields_of
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.submission import Submission
from remit.protocol.trace import place_of
from remit_relay.client.delivery import MessageDelivery
from remit_relay.device.peers import PeerDevice
from remit_relay.e2e.channel import MessageCipher, Opened
from remit_relay.e2e.streams import MAX_REQUESTER
from remit_relay.messages import types
from remit_relay.messages.questions import fitting, request_id
from remit_relay.messages.types import AnswerMessage, DeclineMessage, QuestionMessage, WithdrawMessage, latest_offers
from remit_relay.run_targets import best_member, nobody_offers
from remit_relay.session.profile import (
    MAX_ID,
    ControlEnvelope,
    Profile,
    ProfileActivity,
    counted,
    judge_outgoing,
    origin,
)
from remit_server.transports.remote_calls import WINDOW_MS, is_known_there, lost, outgoing, shielded

# ── calls of a group ──────────────────────────────────────────────────────────────────────────────────────────────────

# Calls that wait are far fewer; the rest are sessions, and the one used longest ago is forgotten first.
MOST = 1_000
# A gateway that answers has said by then who is connected.
NEWS_S = 2.0
_LOOK_S = 0.1
_FACT = "group-calls"

Chosen = dict[str, tuple[str, int]]
"""The device of each call or session, and when it was last used."""


class GroupCalls:
    """The devices that were chosen, in the device's file."""

    def __init__(self, sealer: MessageCipher, delivery: MessageDelivery, *, now_ms: Callable[[], int]) -> None:
        self._peers = sealer.peers
        self._state = sealer.device.state
        self._delivery = delivery
        self._now_ms = now_ms
        self._settled_at = asyncio.get_running_loop().time() + NEWS_S

    async def settle(self, group: str) -> None:
        """Soon after the start, wait until the gateway says that a device of the group is connected."""
        loop, presence = asyncio.get_running_loop(), self._delivery.presence
        while loop.time() < self._settled_at:
            members = await self._delivery.do(self._peers.members, group)
            if not members or any(presence.of(each.device).present for each in members):
                return
            await asyncio.sleep(_LOOK_S)

    def member(self, group: str, agent: str, remote: str, request: Request, *, sent: bool) -> PeerDevice:
        """Return the device of a group that a call of *agent* goes to, and remember it before anything is sent.

        Raises a `RemitError` if no device of it shares the *remote* agent; or if the call was *sent* before a restart,
        and the device is unknown now: another one could carry it out again.
        """
        key = _key(agent, request)
        with self._state.writing():
            chosen = self._chosen()
            before = self._peers.get(chosen[key][0]) if key in chosen else None
            if sent and (before is None or before.revoked):
                why = f"{agent} was called on a device of the group {group}, and which one is not known any more"
                raise RemitError(fault(Code.OUTCOME_UNKNOWN, why))
            peer = before
            if peer is None or not (sent or (peer.may_talk and group in peer.groups)):
                peer = self._best(group, remote)
            self._keep({**chosen, key: (peer.device, self._now_ms())})
            return peer

    def ended(self, agent: str, request: Request) -> None:
        """Forget the device of a call that has ended; that of a session that somebody chose is kept for a day."""
        if request.session not in (None, request.id):
            return
        with self._state.writing():
            chosen = self._chosen()
            if chosen.pop(_key(agent, request), None) is not None:
                self._keep(chosen)

    def _best(self, group: str, remote: str) -> PeerDevice:
        members, presence = self._peers.members(group), self._delivery.presence
        best = best_member(members, remote, lambda device: latest_offers(self._state, device), presence.of)
        if best is None:
            raise nobody_offers(group, members, remote)
        return best

    def _chosen(self) -> Chosen:
        return self._state.fact(_FACT, Chosen) or {}

    def _keep(self, chosen: Chosen) -> None:
        oldest = self._now_ms() - WINDOW_MS
        newest = sorted(chosen.items(), key=lambda each: each[1][1])[-MOST:]
        self._state.keep(_FACT, {key: each for key, each in newest if each[1] >= oldest})


def _key(agent: str, request: Request) -> str:
    is_chosen = request.session not in (None, request.id)
    return f"{agent}\n{request.session if is_chosen else request.path}"


# ── calls of a device ─────────────────────────────────────────────────────────────────────────────────────────────────


# A connected gateway has the message by then; otherwise it gets it when the device runs again.
BROUGHT_S = 1.0
# A hub that closes after its device cancels waiting calls itself, and can resume them later.
LEFT_S = 5.0
# A caller is told of an obstacle that is still there after this time.
LOOK_S = 2.0
# Longer than most answers take; then the caller is told what else the silence may mean.
SILENCE_S = 10.0
# The length of the text that is shown to people.
SHOWN = 1_000

_OWN: Profile = Profile(id="-")
_ENDS = {each.value: each for each in (Status.FAILED, Status.TIMEOUT, Status.CANCELLED, Status.REFUSED)}

_log = logging.getLogger("remit.relay")


class RemoteCaller(Struct, frozen=True, kw_only=True):
    """The shared agent behind an agent of the hub, and its limits."""

    agent: str
    """Its name in this hub."""
    device: str
    """The device that shares it, by id or name; or a group of devices."""
    remote: str = ""
    """Its shared name; empty: the only one that is shared with this device."""
    max_concurrent_shared_calls: int = _OWN.max_concurrent_shared_calls
    max_hop_count: int = _OWN.max_hop_count
    rate: Rate = _OWN.rate

    def profile(self, device: str) -> Profile:
        """Return the profile with the limits of the calls to *device*."""
        return Profile(
            id=self.agent,
            allow_shared_agent_calls=True,  # naming it in the team file enables it
            allowed_shared_device_ids=frozenset({device}),
            max_concurrent_shared_calls=self.max_concurrent_shared_calls,
            max_hop_count=self.max_hop_count,
            rate=self.rate,
        )


class _Sent(NamedTuple):
    agent: str
    answer: "asyncio.Future[AnswerMessage | DeclineMessage]"


class RemoteCalls:
    """The open calls of a hub, while its device is running.

    *control_of* returns the control envelope of a request that came from a device; if it does not know the request, the
    inbox is searched.
    """

    def __init__(
        self,
        sealer: MessageCipher,
        delivery: MessageDelivery,
        *,
        now_ms: Callable[[], int],
        control_of: Callable[[str, str], ControlEnvelope | None] | None = None,
    ) -> None:
        self._sealer = sealer
        self._delivery = delivery
        self._now_ms = now_ms
        self._control_of = control_of
        self._sent: dict[tuple[str, str], _Sent] = {}
        """By device and question id."""
        self._windows: dict[tuple[str, str], Window] = {}
        self._members = GroupCalls(sealer, delivery, now_ms=now_ms)
        self._end: RemitError | None = None

    @property
    def is_over(self) -> bool:
        """Whether no more calls are possible."""
        return self._end is not None

    async def run(self, caller: RemoteCaller, request: Request, line: RemoteHandle, *, sent: bool = False) -> Response:
        """Send the question and return the response; when cancelled, withdraw it before raising.

        *sent* says that it was sent before a restart: even if it cannot be sent again, it may have been carried out.
        """
        root = line.root
        # Read here, in the loop that changes it; the rest is read in the thread of the state file.
        above = self._control_of(root.via, root.id) if self._control_of is not None and root.via is not None else None
        try:
            await self._members.settle(caller.device)
            peer, above = await self._delivery.do(self._find_target, caller, request, root, above, sent=sent)
        except StoreError:
            raise
        except RemitError as error:
            return lost(request, error.fault, sent=sent)
        try:
            return await self._ask(caller, peer, request, line, above, sent=sent)
        finally:
            # A call that continues after a restart goes to the same device of a group.
            if not (self._end is not None or line.handed_back or caller.device in (peer.device, peer.card.name)):
                await shielded(self._delivery.do(self._members.ended, caller.agent, request), BROUGHT_S)

    async def _ask(
        self,
        caller: RemoteCaller,
        peer: PeerDevice,
        request: Request,
        line: RemoteHandle,
        above: ControlEnvelope | None,
        *,
        sent: bool,
    ) -> Response:
        profile, here = caller.profile(peer.device), self._sealer.device.id
        control = origin(profile, device=here, trace_id=_trace(line)) if above is None else above.onward(profile)
        key = (caller.agent, peer.device)
        # A call that was admitted before a restart is not counted again.
        standing = ProfileActivity(
            in_flight=0 if sent else sum(each.agent == caller.agent for each in self._sent.values()),
            window=Window() if sent else self._windows.get(key, Window()),
        )
        now_ms = self._now_ms()
        why = judge_outgoing(profile, control, target=peer.device, device=here, standing=standing, now_ms=now_ms)
        if why is not None:
            return lost(request, why, sent=sent)
        if not sent:
            self._windows[key] = counted(standing.window, profile, now_ms)
        question = _question_for(caller, request, line, control)
        try:
            reply = await self._exchange(caller, peer, question, fitting(request.remit.user, MAX_REQUESTER), line)
        except StoreError:
            raise
        except RemitError as error:
            return lost(request, error.fault, sent=sent or line.in_doubt)
        if sent and isinstance(reply, DeclineMessage) and not reply.status:
            # A refusal now says nothing about the question that was sent before.
            return lost(request, _fault(reply, peer.card.name), sent=True)
        return _response(request, reply, peer.card.name)

    async def _exchange(
        self, caller: RemoteCaller, peer: PeerDevice, question: QuestionMessage, requester: str, line: RemoteHandle
    ) -> AnswerMessage | DeclineMessage:
        if self._end is not None:
            raise self._end
        device = peer.device
        answer: asyncio.Future[AnswerMessage | DeclineMessage] = asyncio.get_running_loop().create_future()
        self._sent[device, question.id] = _Sent(caller.agent, answer)
        doubt = f"{peer.card.name} has not reported the outcome"
        try:
            await self._delivery.do(self._sealer.seal, device, types.write(question), requester=requester)
            line.doubt(doubt)  # from now on it will be sent, even if this process ends
            return await self._waited(peer, answer, line)
        except asyncio.CancelledError:
            line.doubt(doubt)
            if self._end is None and not line.handed_back:
                await shielded(self._withdraw(device, question, answer), BROUGHT_S)
                if answer.done() and not answer.cancelled() and answer.exception() is None:
                    line.settle(_response(line.root, answer.result(), peer.card.name))
            raise
        finally:
            del self._sent[device, question.id]
            if answer.done() and not answer.cancelled():
                answer.exception()  # mark it as retrieved, in case this was cancelled at the same moment

    async def _waited(
        self, peer: PeerDevice, answer: "asyncio.Future[AnswerMessage | DeclineMessage]", line: RemoteHandle
    ) -> AnswerMessage | DeclineMessage:
        """Return the answer; meanwhile report to the caller why it may be late."""
        loop, name, reported = asyncio.get_running_loop(), peer.card.name, ""
        since = loop.time()
        while not (await asyncio.wait({answer}, timeout=LOOK_S))[0]:
            status = ""
            if why := self._delivery.obstacle(peer.device):
                status = f"cannot reach {name}: {why}; retrying"
            elif loop.time() - since >= SILENCE_S:
                status = f"no answer yet: {name} may be busy or offline, or may not allow this device"
            if status != reported:
                reported = status
                line.progress(status or f"the messages to {name} have been sent", None)
        return answer.result()

    async def _withdraw(
        self, device: str, question: QuestionMessage, answer: "asyncio.Future[AnswerMessage | DeclineMessage]"
    ) -> None:
        """Withdraw the question and wait until it was stopped, which is short for a cancelled command."""
        message = WithdrawMessage(to=question.id, session=question.session)
        await self._delivery.do(self._sealer.seal, device, types.write(message))
        await self._delivery.emptied()
        await asyncio.wait({answer})

    async def take(self, opened: Opened, message: AnswerMessage | DeclineMessage) -> bool:
        """Accept an answer if a call waits for it; return whether one did."""
        sent = self._sent.get((opened.sender, message.to))
        if sent is None or sent.answer.done():
            return False
        sent.answer.set_result(message)
        await self._delivery.taken(opened)
        return True

    def end_revoked(self, revoked: Mapping[str, str]) -> None:
        """Fail the calls to devices that are *revoked*, by id with the reason."""
        for (device, _), sent in self._sent.items():
            if device in revoked and not sent.answer.done():
                sent.answer.set_exception(RemitError(fault(Code.PERMISSION_DENIED, revoked[device])))

    def end(self, why: RemitError) -> None:
        """Fail all waiting calls with *why*."""
        self._end = self._end or why
        for sent in self._sent.values():
            if not sent.answer.done():
                sent.answer.set_exception(why)

    def close(self) -> None:
        """Accept no more calls; waiting ones are failed after a while, because the hub may be closing."""
        self._end = self._end or RemitError(fault(Code.DELEGATION_UNAVAILABLE, "the device of this team was stopped"))
        if self._sent:
            asyncio.get_running_loop().call_later(LEFT_S, self.end, self._end)

    # ── lookup ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _find_target(
        self, caller: RemoteCaller, request: Request, root: Request, above: ControlEnvelope | None, *, sent: bool
    ) -> tuple[PeerDevice, ControlEnvelope | None]:
        """Return the target device, and the control envelope of the request if it came from another device."""
        named = [each for each in self._sealer.peers.list() if caller.device in each.names]
        peer = next((each for each in named if not each.revoked), None)
        if peer is not None and caller.device in peer.groups:
            peer = self._members.member(caller.device, caller.agent, caller.remote, request, sent=sent)
        if peer is None:
            what = "was revoked" if named else "is unknown"
            why = f"{caller.agent} is on the device {caller.device}, which {what}"
            todo = "Ask its owner for a link: remit devices pair LINK"
            raise RemitError(fault(Code.DELEGATION_UNAVAILABLE, why, suggestion=todo))
        if root.via is None or self._sealer.peers.get(root.via) is None:
            return peer, None  # it started here, or did not come over the relay
        above = above or self._control_in_inbox(root.via, root.id)
        if above is None:
            why = f"the request of the device {root.via} has ended, so no more calls are made for it"
            raise RemitError(fault(Code.STATE_CONFLICT, why, suggestion=""))
        return peer, above

    def _control_in_inbox(self, device: str, request: str) -> ControlEnvelope | None:
        """Search the inbox for the question of a request: a hub may be faster than the router."""
        after = 0
        while page := self._sealer.inbox(after):
            after = page[-1].id
            for opened in page:
                question = _question_in(opened) if opened.sender == device else None
                if question is not None and request_id(question.id) == request:
                    return question.control
        return None


def _question_in(opened: Opened) -> QuestionMessage | None:
    try:
        message = types.decode_message(opened.body)
    except RemitError:
        return None
    return message if isinstance(message, QuestionMessage) else None


def _trace(line: RemoteHandle) -> str:
    place = place_of(line.traceparent)
    return line.root.run if place is None else place.trace


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _question_for(
    caller: RemoteCaller, request: Request, line: RemoteHandle, control: ControlEnvelope
) -> QuestionMessage:
    """Return the question as a submission to the other hub, without names of this hub's agents and tools."""
    sent = outgoing(request, line)
    remit, name = sent.remit, fitting(request.path, MAX_ID)
    submission = Submission(
        target=caller.remote or "-",
        max_tokens=remit.tokens,
        deadline_ms=remit.time_ms,
        max_depth=remit.max_depth,
        depth=remit.depth,
        context_tokens=remit.context_tokens,
        may_delegate=remit.may_delegate,
        priority=remit.priority,
        objective=sent.objective,
        input=sent.input,
        capability=sent.capability,
        handoff=sent.handoff,
        view=sent.view,
        hints=sent.hints,
        reason=sent.reason,
        correlation=sent.correlation,
    )
    # A session named after the delegation was not chosen by anyone, and is not continued.
    chosen = sent.session is not None and sent.session != sent.id
    return QuestionMessage(
        id=name,
        session=fitting(sent.session or name, MAX_ID) if chosen else name,
        text=(sent.objective or text_of(sent.input) or sent.capability or caller.agent)[:SHOWN],
        control=control,
        agent=caller.remote,
        request=submission,
    )


def _response(request: Request, reply: AnswerMessage | DeclineMessage, device: str) -> Response:
    usage = Usage(prompt=reply.tokens or 0)
    if isinstance(reply, DeclineMessage):
        status = _ENDS.get(reply.status, Status.FAILED) if reply.status else Status.REFUSED
        return Response(
            version=VERSION,
            id=request.id,
            target=request.target,
            status=status,
            run=request.run,
            usage=usage,
            fault=_fault(reply, device),
        )
    answer = reply.answer or Answer(reply.text)
    return Response(
        version=VERSION,
        id=request.id,
        target=request.target,
        status=Status.PARTIAL if answer.unfinished else Status.SUCCESS,
        run=request.run,
        usage=usage,
        # Sources would name users of the other hub, and no files are sent with the answer to a hub.
        **fields_of(AnswerContent, replace(answer, sources=(), files=())),
    )


def _fault(decline: DeclineMessage, device: str) -> Fault:
    try:
        code = Code(decline.code)
    except ValueError:
        code = Code.DELEGATION_FAILED
    # The reader would take "here" for this hub.
    return fault(code, f"{device} says: {decline.reason}" if decline.reason else f"{device} gives no reason")


# ── agents of this hub on other devices ───────────────────────────────────────────────────────────────────────────────


class DeviceAccess:
    """Gives the agents of a hub access to the device that runs in this process.

    If no device runs when the first agent is called, *open* starts one, which runs until `close`.
    """

    def __init__(self, open: Callable[[], AbstractAsyncContextManager[object]] | None = None) -> None:
        self._open = open
        self._calls: RemoteCalls | None = None
        self._opened = AsyncExitStack()
        self._is_own = False
        """Whether it was opened here, so that it is closed here."""
        self._opening = asyncio.Lock()

    @contextmanager
    def provide(self, calls: RemoteCalls) -> Generator[None]:
        """Use *calls* while the block lasts."""
        before, self._calls = self._calls, calls
        try:
            yield
        finally:
            self._calls = before
            calls.close()

    async def calls(self) -> RemoteCalls:
        """Return the open calls of the device, or raise a `RemitError` that says why there is none."""
        if self._is_wanting():
            async with self._opening:
                if self._is_wanting():
                    await self._reopen()
        assert self._calls is not None, "opening the device sets this"
        return self._calls

    def _is_wanting(self) -> bool:
        return self._calls is None or (self._is_own and self._calls.is_over)

    async def _reopen(self) -> None:
        await self.close()
        if self._open is None:
            why = "the device of this team is not running in this process"
            todo = "Start it where the hub is open: use `relaying` in your program."
            raise RemitError(fault(Code.DELEGATION_UNAVAILABLE, why, suggestion=todo))
        await self._opened.enter_async_context(self._open())
        self._is_own = True

    async def close(self) -> None:
        """Stop the device, if it was opened here."""
        self._is_own = False
        await self._opened.aclose()


def device_access_of(hub: Hub) -> set[DeviceAccess]:
    """Return the device access of all agents of a hub that are on other devices."""
    return {each.access for each in hub.remotes.values() if isinstance(each, DeviceAgent)}


class DeviceAgent(Remote):
    """An agent that another device shares."""

    def __init__(self, caller: RemoteCaller, access: DeviceAccess) -> None:
        self.caller = caller
        self.access = access

    async def send(self, request: Request, line: RemoteHandle) -> Response:
        """Ask over the hub's own device and return the response; when cancelled, withdraw the question."""
        left = await line.depart(f"{self.caller.remote or 'the shared agent'} on the device {self.caller.device}")
        if left is not None and not is_known_there(line, left):
            why = f"{self.caller.device} was asked too long ago to ask again, and the outcome is unknown"
            return lost(request, fault(Code.OUTCOME_UNKNOWN, why), sent=True)
        try:
            calls = await self.access.calls()
        except StoreError:
            raise
        except RemitError as error:
            why = f"cannot call {self.caller.agent} on another device: "
            unavailable = fault(
                Code.DELEGATION_UNAVAILABLE, why + error.fault.message, suggestion=error.fault.suggestion
            )
            return lost(request, unavailable, sent=left is not None)
        return await calls.run(self.caller, request, line, sent=left is not None)
