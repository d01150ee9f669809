"""A local agent in a supervised process: one prompt at a time, started when needed, with a pause after failures."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine

from remit.agents.restart_pause import RestartPause
from remit.relay.bridge.ports import WITH_TOOLS_MS, Draft, DraftFailure, PromptRequest, time_limit_s
from remit.relay.bridge.process import Ending, MissingError, NotStartedError
from remit.runtime.clock import LoopClock
from remit.runtime.ports import Clock

# A profile may have a few sessions at once, and each prompt may take two minutes: more waiting prompts are refused.
MAX_WAITING = 8


class OneAtATime:
    """Runs one prompt at a time; up to `MAX_WAITING` others wait, in order."""

    def __init__(self) -> None:
        self._slot = asyncio.Semaphore(1)
        self._here = 0

    async def run(self, ask: Callable[[], Awaitable[Draft | DraftFailure]]) -> Draft | DraftFailure:
        """Run *ask* in its turn; fail softly at once if too many prompts wait already."""
        if self._here > MAX_WAITING:
            reason = f"{MAX_WAITING} prompts are already waiting for this local agent; try again later"
            return DraftFailure(reason=reason, hard=False)
        self._here += 1
        try:
            async with self._slot:
                return await ask()
        finally:
            self._here -= 1


log = logging.getLogger("remit.relay")

# After repeated failures the process is started less and less often; a person still waits a minute.
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)


PartialText = Callable[[PromptRequest, Callable[[], str]], None]
"""Takes a request whose draft is being written, and a function that returns the text so far."""


class AgentLink(ABC):
    """The connection to one process in one protocol, from its start to its end."""

    @abstractmethod
    async def open(self) -> None:
        """Start the process; raise a `NotStartedError` if it does not become ready."""

    @abstractmethod
    async def ask(self, request: PromptRequest, timer: asyncio.Timeout) -> Draft | DraftFailure:
        """Ask for a draft; *timer* limits the wait, and may be postponed while a person is asked."""

    @abstractmethod
    async def cancel_turn(self) -> bool:
        """Cancel the abandoned turn; return whether the process can be used again."""

    @abstractmethod
    async def end(self) -> None:
        """End the process and all that it started, even if it was never opened."""

    @abstractmethod
    async def exit_failure(self) -> Ending | None:
        """Return how the process failed since its last turn; None: it runs, or ended with exit code 0."""

    @property
    @abstractmethod
    def is_up(self) -> bool:
        """Whether it is ready for a prompt."""

    def explanation(self) -> str:
        """Return a possible cause of a missing answer, to append to a sentence; may be empty."""
        return ""


class SupervisedAgent:
    """Implements `LocalAgent` with one process after another.

    - One prompt runs at a time. Others wait (`OneAtATime`), and their time limit starts with their turn.
    - A process that crashed, broke the protocol or timed out is ended. The current prompt fails hard. The next prompt
      starts a new process, unless the pause after a failure (`PAUSES_S`, by failures in a row) is not over: then that
      prompt fails hard as well, and says when to try again.
    - A process that ended between prompts with exit code 0 is simply started again.
    - When the task of a prompt is cancelled, its turn is cancelled, or the process is ended if that is not possible.
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
        self._pause = RestartPause(PAUSES_S, self._clock.now)
        self._closed = False
        self.written: PartialText = lambda _request, _text: None
        """Called while a draft is being written, if the protocol tells its words one by one."""

    async def prompt(self, request: PromptRequest) -> Draft | DraftFailure:
        """Ask for the next message; see the class for failures."""
        return await self._turns.run(lambda: self._prompt(request))

    async def close(self) -> None:
        """End the process and all that it started; running and waiting prompts fail hard."""
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
            self._pause.succeed()
        return outcome

    async def _ready(self) -> AgentLink | DraftFailure:
        """Return a link that is ready, or why there is none."""
        if self._closed:
            return _closed()
        if self._link is not None:
            if self._link.is_up:
                return self._link
            died = await self._link.exit_failure()
            self._retire(self._link, blamed=died is not None)
            if died is not None:
                ended = "the local agent's process ended after its last turn"
                return DraftFailure(reason=f"{ended}: {died}", recorded=f"{ended}: {died.how}", hard=True)
            await self._wait_until_ended()
        if (wait_s := self._pause.left_s()) > 0:
            failures = self._pause.failures
            times = "once" if failures == 1 else f"{failures} times in a row"
            reason = f"the local agent failed {times}; it can be started again in {max(wait_s, 0.1):.1f} s"
            return DraftFailure(reason=reason, hard=True)
        if self._closed:
            return _closed()
        self._link = link = self._make()
        try:
            await link.open()
        except NotStartedError as error:
            self._retire(link, blamed=not isinstance(error, MissingError))
            if self._closed:
                return _closed()
            return DraftFailure(reason=str(error), recorded=error.recorded, hard=True)
        except BaseException:
            self._retire(link, blamed=False)
            raise
        if self._closed:  # it was closed while it started, so it must be ended here
            self._retire(link, blamed=False)
            return _closed()
        return link

    # ── ending ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _retire(self, link: AgentLink, *, blamed: bool = True) -> None:
        """End a link in the background; the next prompt waits for that."""
        self._link = None
        if blamed:
            self._pause.fail()
        self._begin(link.end())

    def _cancel_turn(self, link: AgentLink, *, blamed: bool = True) -> None:
        """Cancel the turn of a link, or end the link if that fails."""

        async def cancel() -> None:
            if not self._closed and await link.cancel_turn():
                return
            self._link = None
            if blamed:
                self._pause.fail()
            await link.end()

        self._begin(cancel())

    def _begin(self, ending: Coroutine[object, object, None]) -> None:
        self._ending = asyncio.get_running_loop().create_task(ending)

    async def _wait_until_ended(self) -> None:
        """Wait until the previous link has ended."""
        if (ending := self._ending) is None:
            return
        await asyncio.wait({ending})
        if self._ending is ending:
            self._ending = None
        if not ending.cancelled() and (error := ending.exception()) is not None:
            log.error("ending a local agent failed: %s", type(error).__name__)


def _closed() -> DraftFailure:
    return DraftFailure(reason="the local agent was closed", hard=True)
