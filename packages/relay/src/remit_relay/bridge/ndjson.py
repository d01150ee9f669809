"""A local agent that exchanges lines of JSON on stdin and stdout: one request, one response (S3, S4)."""

import asyncio
import logging
import math
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from remit.agents.piped_process import LAST_WORDS_S, LineSplitter, OverlongLine
from remit.agents.program import Program
from remit.ports import Clock
from remit.runtime.clock import LoopClock
from remit_relay.bridge.ports import (
    RESPONSE,
    WITH_TOOLS_MS,
    Draft,
    DraftFailure,
    PromptMetrics,
    PromptRequest,
    PromptResponse,
    held,
    shown,
    too_long,
)
from remit_relay.bridge.supervised_agent import AgentLink, Child, Ending, SupervisedAgent

log = logging.getLogger("remit.relay")

# Several times the longest message, with JSON escapes.
MAX_LINE = 4_000_000
# Agents print; one that has printed this many bytes or lines since its last answer is broken.
MAX_NOISE = 64_000_000
MAX_NOISE_LINES = 100_000
# The most logged violations of one process.
MAX_LOGGED = 5


class NdjsonAgent(SupervisedAgent):
    """The agent of a profile as a process that reads a `PromptRequest` per line and writes a `PromptResponse` per line.

    Other output is ignored, within limits; so is a response to no open request, which is logged as a violation. An
    invalid response fails hard, and so does one that reports more tool rounds than allowed. A request cannot be
    cancelled in this protocol: when a prompt is cancelled, the process is ended.
    """

    def __init__(
        self, profile: str, program: Program, *, ceiling_ms: int = WITH_TOOLS_MS, clock: Clock | None = None
    ) -> None:
        """Use *program* for *profile*; no turn takes longer than *ceiling_ms*, whatever its constraints say."""
        clock = clock or LoopClock()
        super().__init__(lambda: NdjsonLink(profile, program, clock), ceiling_ms=ceiling_ms, clock=clock)


class _Head(Struct):
    """The fields that identify a response; the rest is checked later."""

    type: Any = None
    request_id: Any = None


class _Asked(NamedTuple):
    """The open request."""

    request: PromptRequest
    since: float
    outcome: asyncio.Future[Draft | DraftFailure]


class NdjsonLink(AgentLink):
    """One process of the agent."""

    def __init__(self, profile: str, program: Program, clock: Clock) -> None:
        self._profile = profile
        self._program = program
        self._clock = clock
        self._child: Child | None = None
        self._reading: asyncio.Task[None] | None = None
        self._pending: _Asked | None = None
        self._noise = self._noise_lines = 0
        """Bytes and lines since its last answer."""
        self._garbage = self._violations = 0
        """Lines since it was last asked."""
        self._printed, self._violated = False, 0
        self._silent = False
        """Whether its output has ended."""

    async def open(self) -> None:
        self._child = Child(self._program)
        await self._child.connect()
        self._reading = asyncio.get_running_loop().create_task(self._read_output(self._child))

    @property
    def is_up(self) -> bool:
        return self._child is not None and self._child.exit_code is None and not self._silent

    async def ask(self, request: PromptRequest, timer: asyncio.Timeout) -> Draft | DraftFailure:  # noqa: ARG002
        child = self._child
        assert child is not None, "open() comes before ask()"
        outcome: asyncio.Future[Draft | DraftFailure] = asyncio.get_running_loop().create_future()
        self._pending = _Asked(request, self._clock.now(), outcome)
        self._garbage = self._violations = 0
        try:
            try:
                await child.write(msgspec.json.encode(request))
            except OSError:
                # Most likely it is ending, and the reader will report how.
                await asyncio.wait({outcome}, timeout=LAST_WORDS_S)
                if not outcome.done():
                    return DraftFailure(reason="the local agent's process no longer accepts input", hard=True)
            return await outcome
        finally:
            self._pending = None

    async def cancel_turn(self) -> bool:
        return False

    async def end(self) -> None:
        if self._child is None:
            return
        await self._child.end()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})

    async def exit_failure(self) -> Ending | None:
        if self._child is None:
            return None
        how = await self._child.how_it_ended()
        return None if self._child.exit_code == 0 else how

    def explanation(self) -> str:
        output = [
            *([f"{self._garbage} lines that are not responses"] if self._garbage else []),
            *([f"{self._violations} responses to other requests"] if self._violations else []),
        ]
        return f"; it wrote {' and '.join(output)}" if output else ""

    # ── output ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _read_output(self, child: Child) -> None:
        lines = LineSplitter(MAX_LINE)
        while chunk := await child.output.read(65_536):
            self._noise += len(chunk)
            for line in lines.feed(chunk):
                self._noise_lines += 1
                self._take(line)
            if self._noise > MAX_NOISE or self._noise_lines > MAX_NOISE_LINES:
                much = f"{self._noise} bytes in {self._noise_lines} lines"
                reason = f"the local agent wrote {much} without an answer"
                log.warning("profile %s: its agent writes too much output and is ended", self._profile)
                child.kill()
                self._silent = True
                self._settle(DraftFailure(reason=reason, hard=True))
                return
        self._silent = True
        self._settle(await self._lost(child))

    async def _lost(self, child: Child) -> DraftFailure:
        how, ended = await child.how_it_ended(), "the local agent's process ended without an answer"
        return DraftFailure(reason=f"{ended}: {how}", recorded=f"{ended}: {how.how}", hard=True)

    def _take(self, line: bytes | OverlongLine) -> None:
        if isinstance(line, OverlongLine):
            self._take_long(line)
            return
        head = _head(line)
        if head is None or head.type != RESPONSE:
            self._pass_over()
        elif (
            self._pending is None or self._pending.outcome.done() or head.request_id != self._pending.request.request_id
        ):
            self._violate()
        else:
            self._noise = self._noise_lines = 0
            self._settle(self._read_response(line, self._pending))

    def _take_long(self, line: OverlongLine) -> None:
        pending = self._pending
        if pending is not None and RESPONSE.encode() in line.head and pending.request.request_id.encode() in line.head:
            self._settle(too_long(pending.request.constraints))
        else:
            self._pass_over()

    def _read_response(self, line: bytes, pending: _Asked) -> Draft | DraftFailure:
        try:
            response = msgspec.json.decode(line, type=PromptResponse)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            invalid = "invalid response from the local agent"
            return DraftFailure(reason=f"{invalid}: {shown(str(error))}", recorded=invalid, hard=True)
        if response.status == "error":
            why = shown(response.reason or "")
            reason = f"the local agent says: {why}" if why else "the local agent gave no reason"
            return DraftFailure(reason=reason, recorded="the local agent reported an error", hard=False)
        metrics = response.metrics or PromptMetrics()
        draft = Draft(
            text=response.draft_message or "",
            confidence=response.confidence,
            done=bool(response.done),
            tokens=_whole(metrics.tokens),
            tool_rounds=_whole(metrics.tool_rounds),
            duration_ms=round((self._clock.now() - pending.since) * 1_000),
        )
        return held(draft, pending.request.constraints)

    def _settle(self, outcome: Draft | DraftFailure) -> None:
        if self._pending is not None and not self._pending.outcome.done():
            self._pending.outcome.set_result(outcome)

    def _pass_over(self) -> None:
        self._garbage += 1
        if not self._printed:
            self._printed = True
            log.info("profile %s: ignoring output of its agent that is not a response", self._profile)

    def _violate(self) -> None:
        self._violations += 1
        self._violated += 1
        if self._violated <= MAX_LOGGED:
            more = "; further ones are not logged" if self._violated == MAX_LOGGED else ""
            log.warning("profile %s: protocol violation: response to no open request%s", self._profile, more)


def _whole(count: float | None) -> int | None:
    """Return a count as a whole number: programs whose numbers are all floating-point write 3.0, or an average."""
    return None if count is None else math.ceil(count)


def _head(line: bytes) -> _Head | None:
    """Return the type of a line; None: it is not a JSON object."""
    if not line.lstrip().startswith(b"{"):  # true for most output, and ten times faster to check
        return None
    try:
        # As text, because otherwise invalid UTF-8 in unknown fields would not be noticed.
        return msgspec.json.decode(line.decode(), type=_Head)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
