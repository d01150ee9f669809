"""An agent of the local hub as the local agent of a profile, under all of the hub's guards."""

import asyncio

from remit.hub.hub import Hub
from remit.protocol.codec import text_of
from remit.protocol.envelope import Response
from remit.protocol.errors import TABLE, Code, Fault, RemitError
from remit.protocol.submission import AskOptions
from remit_relay.bridge.ports import (
    WITH_TOOLS_MS,
    Draft,
    DraftFailure,
    PromptRequest,
    held,
    in_words,
    shown,
    split_answer,
    time_limit_s,
)
from remit_relay.bridge.supervised_agent import OneAtATime


class HubAgent:
    """Implements `LocalAgent` by asking *agent* as *user*, one prompt at a time.

    Each run has a session of its own with the agent. The objective is the user's, the input is the prompt as text
    (`in_words`). A turn has the time of its constraints, without waiting for approvals, and *max_tokens* (default: the
    hub's budget for a run). Without `allow_tool_use` the agent may neither use tools nor delegate. The objective is met
    if its answer ends with the line `[DONE]`, or its metadata contain `done`.

    The hub must be open before the first prompt, and is not closed with this.
    """

    def __init__(
        self, hub: Hub, agent: str, *, user: str, max_tokens: int | None = None, ceiling_ms: int = WITH_TOOLS_MS
    ) -> None:
        self._hub = hub
        self._agent = agent
        self._user = user
        self._max_tokens = max_tokens
        self._ceiling_ms = ceiling_ms
        self._turns = OneAtATime()
        self._running: asyncio.Task[Response] | None = None
        self._closed = False

    async def prompt(self, request: PromptRequest) -> Draft | DraftFailure:
        """Ask the agent; a refusal of a guard or an error of the agent is a `DraftFailure`."""
        return await self._turns.run(lambda: self._prompt(request))

    async def close(self) -> None:
        """Cancel the current run and all its delegations."""
        self._closed = True
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    async def _prompt(self, request: PromptRequest) -> Draft | DraftFailure:
        if self._closed:
            return _closed()
        options = self._options(request)
        asking = self._hub.ask(self._agent, request.objective, user=self._user, **options)
        self._running = running = asyncio.get_running_loop().create_task(asking)
        try:
            await asyncio.wait({running})
        finally:
            self._running = None
            if not running.done():
                # The run ends as cancelled; that takes no longer than the agent's grace period.
                running.cancel()
                await asyncio.wait({running})
        if running.cancelled() or self._closed:
            return _closed()
        try:
            return self._outcome(running.result(), request)
        except RemitError as error:
            return self._refused(error.fault)

    def _options(self, request: PromptRequest) -> AskOptions:
        constraints = request.constraints
        options: AskOptions = {
            "input": in_words(request),
            "session": f"relay-{self._agent}-{request.profile_id}-{request.session_id}",
            "deadline_ms": round(time_limit_s(constraints, self._ceiling_ms) * 1_000),
            "max_tokens": self._max_tokens,
            "correlation": request.request_id,
        }
        if not constraints.allow_tool_use:
            options["tools"] = ()
            options["may_delegate"] = False
        return options

    def _outcome(self, response: Response, request: PromptRequest) -> Draft | DraftFailure:
        if not response.ok:
            return self._refused(response.fault)
        answer = response.summary if response.result is None else text_of(response.result)
        text, done = split_answer(answer)
        draft = Draft(
            text=text,
            confidence=response.confidence,
            done=done or response.metadata.get("done") is True,
            tokens=response.usage.total,
            tool_rounds=len(response.tool_calls),
            duration_ms=response.duration_ms,
        )
        return held(draft, request.constraints)

    def _refused(self, fault: Fault | None) -> DraftFailure:
        if fault is None:
            return DraftFailure(reason=f"{self._agent} failed and gave no reason", hard=False)
        # Asking again later helps for recoverable errors; a timeout is for the user to examine.
        hard = fault.code is Code.TIMEOUT or not TABLE[fault.code].recoverable
        recorded = f"{self._agent} failed ({fault.code})"
        return DraftFailure(reason=shown(f"{fault.message} ({fault.code})"), recorded=recorded, hard=hard)


def _closed() -> DraftFailure:
    return DraftFailure(reason="the local agent was closed", hard=True)
