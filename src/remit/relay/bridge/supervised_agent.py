"""A local agent in a process: asked one thing at a time, started when it is needed, and left alone after it failed."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine

from remit.relay.bridge.frames import PromptRequest
from remit.relay.bridge.limits import WITH_TOOLS_MS, time_limit_s
from remit.relay.bridge.ports import Draft, DraftFailure
from remit.relay.bridge.process import MissingError, NotStartedError
from remit.relay.bridge.prompt_queue import OneAtATime
from remit.runtime.clock import LoopClock
from remit.runtime.ports import Clock

log = logging.getLogger("remit.relay")

# Whoever fails again and again is started ever less often; a minute is what a person still waits for.
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)


class AgentLink(ABC):
    """A process that is spoken with in one protocol, from its start to its end."""

    @abstractmethod
    async def open(self) -> None:
        """Start the process; raise a `NotStartedError` if it does not come to the point where it can be asked."""

    @abstractmethod
    async def ask(self, request: PromptRequest, timer: asyncio.Timeout) -> Draft | DraftFailure:
        """Ask for a draft; *timer* ends the wait, and may be put off while a person is asked."""

    @abstractmethod
    async def cancel_turn(self) -> bool:
        """Have it give up what it was asked and nobody waits for; return whether it can be asked again."""

    @abstractmethod
    async def end(self) -> None:
        """End the process and all that it started; also one that was never opened."""

    @abstractmethod
    async def exit_failure(self) -> str | None:
        """Return how the process failed since it was last asked; None: it did not, though it may have ended well."""

    @property
    @abstractmethod
    def is_up(self) -> bool:
        """Whether it can be asked."""

    def explanation(self) -> str:
        """Return what may explain that it did not answer, to stand behind a sentence; empty: nothing."""
        return ""


class SupervisedAgent:
    """Implements `LocalAgent` over links that are made one after another.

    - One prompt is in flight at a time. Others wait their turn (`OneAtATime`), and their time counts from then.
    - A process that crashed, broke the rules or let its time run out is ended. The prompt in flight fails hard. The
      next one starts it anew, unless the pause after a failure (`PAUSES_S`, by failures in a row) is not over: then
      that prompt fails hard as well, and says when to try again.
    - One that ended by itself between prompts with exit code 0 is simply started again.
    - A prompt whose task is cancelled is given up: the process is asked to stop it, or ended where it cannot be asked.
    """

    def __init__(
        self, link: Callable[[], AgentLink], *, ceiling_ms: int = WITH_TOOLS_MS, clock: Clock | None = None
    ) -> None:
        self._make = link
        self._ceiling_ms = ceiling_ms
        self._clock = clock or LoopClock()
        self._link: AgentLink | None = None
        self._turns = OneAtATime()
        self._idle = asyncio.Event()
        self._idle.set()
        self._ending: asyncio.Task[None] | None = None
        self._failures = 0
        self._not_before = float("-inf")
        self._closed = False

    async def prompt(self, request: PromptRequest) -> Draft | DraftFailure:
        """Ask for the next message; see the class for what happens when it does not come."""
        return await self._turns.run(lambda: self._prompt(request))

    async def close(self) -> None:
        """End the process and all that it started; a prompt that is in flight, or waits, fails hard."""
        self._closed = True
        if self._link is not None:
            await self._link.end()
        await self._idle.wait()
        await self._wait_until_ended()

    async def _prompt(self, request: PromptRequest) -> Draft | DraftFailure:
        self._idle.clear()
        try:
            return await self._ask(request)
        finally:
            self._idle.set()

    async def _ask(self, request: PromptRequest) -> Draft | DraftFailure:
        await self._wait_until_ended()
        link = await self._ready()
        if isinstance(link, DraftFailure):
            return link
        limit_s = time_limit_s(request.constraints, self._ceiling_ms)
        try:
            async with asyncio.timeout(limit_s) as timer:
                outcome = await link.ask(request, timer)
        except TimeoutError:
            self._cancel_turn(link)
            return DraftFailure(
                reason=f"the local agent did not answer within {limit_s:g} s{link.explanation()}", hard=True
            )
        except BaseException:
            self._cancel_turn(link, blamed=False)
            raise
        if self._closed:
            return _closed()
        if isinstance(outcome, DraftFailure) and outcome.hard:
            self._retire(link)
        else:
            self._failures = 0
        return outcome

    async def _ready(self) -> AgentLink | DraftFailure:
        """Return a link that is up, or why there is none."""
        if self._closed:
            return _closed()
        if self._link is not None:
            if self._link.is_up:
                return self._link
            died = await self._link.exit_failure()
            self._retire(self._link, blamed=died is not None)
            if died is not None:
                return DraftFailure(reason=f"the local agent's process died since its last turn: {died}", hard=True)
            await self._wait_until_ended()
        if (wait_s := self._not_before - self._clock.now()) > 0:
            times = "once" if self._failures == 1 else f"{self._failures} times in a row"
            reason = f"the local agent failed {times}; it is started again in {max(wait_s, 0.1):.1f} s at the earliest"
            return DraftFailure(reason=reason, hard=True)
        if self._closed:
            return _closed()
        self._link = link = self._make()
        try:
            await link.open()
        except NotStartedError as error:
            self._retire(link, blamed=not isinstance(error, MissingError))
            return _closed() if self._closed else DraftFailure(reason=str(error), hard=True)
        except BaseException:
            self._retire(link, blamed=False)
            raise
        if self._closed:  # while it started, so that nobody else ends it
            self._retire(link, blamed=False)
            return _closed()
        return link

    # ── letting go ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _retire(self, link: AgentLink, *, blamed: bool = True) -> None:
        """Have a link end by itself; the next prompt waits until it is gone."""
        self._link = None
        if blamed:
            self._failed()
        self._begin(link.end())

    def _cancel_turn(self, link: AgentLink, *, blamed: bool = True) -> None:
        """Have a link give up its turn, or end if it does not."""

        async def cancel() -> None:
            if not self._closed and await link.cancel_turn():
                return
            self._link = None
            if blamed:
                self._failed()
            await link.end()

        self._begin(cancel())

    def _begin(self, ending: Coroutine[object, object, None]) -> None:
        self._ending = asyncio.get_running_loop().create_task(ending)

    async def _wait_until_ended(self) -> None:
        """Return once whatever was let go is gone."""
        if (ending := self._ending) is None:
            return
        await asyncio.wait({ending})
        if self._ending is ending:
            self._ending = None
        if not ending.cancelled() and (error := ending.exception()) is not None:
            log.error("a local agent could not be let go: %s", type(error).__name__)

    def _failed(self) -> None:
        self._not_before = self._clock.now() + PAUSES_S[min(self._failures, len(PAUSES_S) - 1)]
        self._failures += 1


def _closed() -> DraftFailure:
    return DraftFailure(reason="the local agent was closed", hard=True)
