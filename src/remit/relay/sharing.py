"""The side that shares: what other devices ask of an agent of the local hub, under the guards of all delegations."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct

from remit.policy.rate import Window
from remit.policy.reception import Sender
from remit.protocol.codec import text_of
from remit.protocol.envelope import Response
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.submission import Submission
from remit.protocol.trace import Place, span_id, trace_id
from remit.relay import letters
from remit.relay.letters import Answers, Asks, Declines
from remit.relay.post import Post
from remit.relay.profile import Profile, Standing, counted, judge_incoming
from remit.relay.seal import Opened, Sealer
from remit.runtime.hub import Hub

_log = logging.getLogger("remit.relay")


class Shared(Struct, frozen=True, kw_only=True):
    """An agent of the hub that others may ask, and under which profile."""

    agent: str
    profile: Profile


class Told(Struct, frozen=True, kw_only=True):
    """What happened to a question, without a word of what was said."""

    device: str
    requester: str
    """In whose name that device asks, as it says."""
    shared: str
    """What the agent is shared as; empty if it is not clear which is meant."""
    event: Literal["asked", "answered", "declined"]
    code: str = ""
    """Why it was declined, as in the table of errors."""


class Sharing:
    """Answers what comes for the agents that this device shares; *told* hears of each question, and of what it came to.

    A question is forgotten in the same commit that seals its answer, and carried out under the id that its sender gave
    it: killed at any moment, this device answers each question once.
    """

    def __init__(
        self,
        hub: Hub,
        sealer: Sealer,
        post: Post,
        shared: Mapping[str, Shared],
        *,
        now_ms: Callable[[], int],
        told: Callable[[Told], None] = lambda _: None,
    ) -> None:
        self._hub = hub
        self._sealer = sealer
        self._post = post
        self._shared = shared
        self._now_ms = now_ms
        self._told = told
        self._windows: dict[tuple[str, str], Window] = {}
        self._under_way: dict[asyncio.Task[None], tuple[str, str]] = {}
        """Who is at work on what: the profile and the trace."""

    async def close(self) -> None:
        """Let go of what is under way: it is not forgotten, and is answered when this device is back."""
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def take(self, opened: Opened, asks: Asks) -> None:
        """Begin to answer a question; it is worked on beside others."""
        name = self._name(opened, asks)
        task = asyncio.create_task(self._answer(opened, asks, name))
        self._under_way[task] = (name, asks.control.trace_id)
        task.add_done_callback(self._ended)
        self._told(Told(device=opened.sender, requester=opened.requester, shared=name, event="asked"))

    def _ended(self, task: "asyncio.Task[None]") -> None:
        del self._under_way[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a question could not be answered (%s); it stays in the inbox", type(error).__name__)

    def _name(self, opened: Opened, asks: Asks) -> str:
        """Return which of the shared agents is meant; the only one that its sender may ask need not be named."""
        if asks.agent:
            return asks.agent
        theirs = [
            name for name, each in self._shared.items() if opened.sender in each.profile.allowed_shared_device_ids
        ]
        found = theirs or list(self._shared)
        return found[0] if len(found) == 1 else ""

    async def _answer(self, opened: Opened, asks: Asks, name: str) -> None:
        found = self._judged(opened, asks, name)
        if isinstance(found, Fault):
            await self._say(opened, name, _declined(asks, found))
            return
        try:
            request = self._hub.receive(self._submission(opened, asks, found), self._sender(opened, found))
            going = await self._hub.begin(request)
            response = going if isinstance(going, Response) else await asyncio.shield(going.task)
        except RemitError as error:
            await self._say(opened, name, _declined(asks, error.fault))
            return
        if response.result is None and response.fault is not None:
            await self._say(opened, name, _declined(asks, response.fault))
        else:
            text = text_of(response.result) or response.summary
            said = Answers(to=asks.id, session=asks.session, text=text, tokens=response.usage.total)
            await self._say(opened, name, said)

    def _judged(self, opened: Opened, asks: Asks, name: str) -> Shared | Fault:
        shared = self._shared.get(name)
        if shared is None:
            which = f"`{name}`" if name else "one that is named"
            return fault(Code.AGENT_NOT_FOUND, f"this device shares no agent {which}")
        profile, key, now_ms = shared.profile, (shared.profile.id, opened.sender), self._now_ms()
        # This task counts itself.
        others = [trace for name_, trace in self._under_way.values() if name_ == name]
        others.remove(asks.control.trace_id)
        standing = Standing(in_flight=len(others), window=self._windows.get(key, Window()), traces=frozenset(others))
        why = judge_incoming(
            profile,
            asks.control,
            sender=opened.sender,
            device=self._sealer.device.id,
            standing=standing,
            now_ms=now_ms,
        )
        if why is not None:
            return why
        self._windows[key] = counted(standing.window, profile, now_ms)
        return shared

    def _submission(self, opened: Opened, asks: Asks, shared: Shared) -> Submission:
        trace = trace_id(asks.control.trace_id)
        return Submission(
            target=shared.agent,
            id=opened.message,
            user=_user(opened),
            objective=asks.text,
            # Whatever two devices call their conversations, they are their own.
            session=f"{opened.sender}/{asks.session}"[:256],
            depth=asks.control.hop_count - 1,
            traceparent=str(Place(trace, span_id(asks.id), sampled=True)),
        )

    def _sender(self, opened: Opened, shared: Shared) -> Sender:
        return Sender(name=opened.sender, users=frozenset({_user(opened)}), targets=frozenset({shared.agent}))

    async def _say(self, opened: Opened, name: str, letter: Answers | Declines) -> None:
        def commit() -> None:
            with self._sealer.device.state.writing():
                self._sealer.seal(opened.sender, letters.write(letter))
                self._sealer.taken(opened.id)

        await self._post.do(commit)
        event, code = ("answered", "") if isinstance(letter, Answers) else ("declined", letter.code)
        self._told(Told(device=opened.sender, requester=opened.requester, shared=name, event=event, code=code))


def _user(opened: Opened) -> str:
    """Return in whose name a device asks: it is believed as far as it is known, so its own name stands first."""
    return f"{opened.sender}/{opened.requester}"[:256] if opened.requester else opened.sender


def _declined(asks: Asks, why: Fault) -> Declines:
    return Declines(to=asks.id, session=asks.session, code=why.code.value, reason=why.message[:2_000])
