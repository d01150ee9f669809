"""What is kept back of a model's tokens and time, so that it can answer with what it found before they run out."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

from msgspec.structs import replace

from remit.policy.budget import estimate
from remit.ports.brief import Brief
from remit.protocol.envelope import Answer, Handover, Json, ToolFinding
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit_models.prompting import ModelPrompt

T = TypeVar("T")

# Few answers are longer. If a run has less left for one, and its team says so, a person is asked for more tokens.
ENOUGH_OUTPUT = 2_000
# A last answer says in some ten sentences what was found, and what is missing.
LAST_OUTPUT = 400
# Of all findings together; a last answer without any of them would say nothing.
LEAST_FINDINGS = 300
# What a model writes at least to use a tool.
TOOL_CALL = 100
# A model writes a last answer in some seconds; a short delegation cannot spare as many.
MOST_TIME_MS = 10_000
TIME_SHARE = 5
# How often a turn whose time is nearly over looks whether it may be stopped.
_LOOK_S = 0.05
# Roles, separators and the like.
_AROUND = 40
# No text has fewer letters in a token, on the average of a sentence.
_LETTERS = 2

_ANSWER_NOW = (
    "You had to stop before you were done, and can use no more tools. Answer now with what was found, and say what is "
    "missing. What was found so far:"
)
_CUT = {
    Code.TOKEN_BUDGET_EXCEEDED: "its tokens were nearly spent",
    Code.TIMEOUT: "its time was nearly over",
}
_MONEY_CUT = "its money was nearly spent"


class LimitReached(RemitError):
    """A turn comes to a limit of tokens, money, calls or time; a last answer is possible if anything was found."""

    def __init__(self, why: Fault, cut: str = "") -> None:
        super().__init__(why)
        self.cut = cut or _CUT.get(why.code, "it had used its model as often as it may")
        """What ran out, for those who read the last answer."""


class TransferredConversation(LimitReached):
    """A turn ends because its model hands the conversation over, and has nothing more to say itself."""

    def __init__(self, handover: Handover) -> None:
        super().__init__(fault(Code.CANCELLED, f"the conversation was handed over to {handover.to}"))
        self.handover = handover


class RelayedAnswer(LimitReached):
    """A turn ends with the answer of an agent that its model asked, as it is."""

    def __init__(self, answer: Answer, text: str) -> None:
        super().__init__(fault(Code.CANCELLED, "the answer of another agent is the answer"))
        self.answer = answer
        self.text = text
        """What the model reads if it has more to do."""


@contextmanager
def _money_cut() -> Generator[None]:
    """Raise a refusal from the block as a limit of money."""
    try:
        yield
    except RemitError as error:
        raise LimitReached(error.fault, _MONEY_CUT) from None


def time_to_keep_ms(total_ms: int) -> int:
    """Return how much of an agent's time is kept for its last answer."""
    return min(MOST_TIME_MS, total_ms // TIME_SHARE)


class Reserve:
    """What one turn of a model found, and what is kept back of its tokens and time for a last answer.

    Without *concludes* no last answer is possible, and nothing is kept back for it.
    """

    def __init__(self, brief: Brief, prompt: ModelPrompt, form: str = "", *, concludes: bool = True) -> None:
        self._brief = brief
        self._concludes = concludes
        self._prompt = prompt
        self._form = form
        self.instruct(prompt.instructions)
        self.findings: list[ToolFinding] = []
        """What its tools returned, errors left out."""
        self._streamed: list[str] = []
        """The model's text since its last call began."""
        self._round = 0
        """The number of tools that were used since the last call of the model."""
        self._in_use: set[asyncio.Future[None]] = set()
        self._calls: list[int] = []
        """How much time was left when each model call in progress began."""
        self._longest_ms = 0
        self._is_last = False

    def instruct(self, instructions: str) -> None:
        """Set the instructions of the last answer: all that the model gets, from its brief or from its agent."""
        prompt = self._prompt = replace(self._prompt, instructions=instructions)
        self._base = _AROUND + sum(map(estimate, (instructions, prompt.task, self._form, _ANSWER_NOW)))

    # ── what was found ────────────────────────────────────────────────────────────────────────────────────────────────

    async def use(
        self, tool: str, arguments: dict[str, Json], call: Callable[[dict[str, Json]], Awaitable[str]]
    ) -> str:
        """Return what an offered tool returns to the model, and remember it.

        Meanwhile the tokens of a last answer are kept from the agents that it asks. A tool that ends the turn does so
        once those that the model called with it have ended; an answer is relayed only if there were none.
        """
        if self._concludes:
            self._brief.keep_back(self._needed)
        self._round += 1
        ended = asyncio.get_running_loop().create_future()
        self._in_use.add(ended)
        try:
            text = await call(arguments)
        except RelayedAnswer as relayed:
            if self._round == 1:
                raise
            text = relayed.text
        except TransferredConversation:
            await asyncio.sleep(0)  # those that were called with it begin
            if others := self._in_use - {ended}:
                await asyncio.wait(others)
            raise
        finally:
            self._in_use.discard(ended)
            ended.set_result(None)
        self.note_result(tool, text, arguments)
        return text

    def note_result(self, tool: str, text: str, arguments: Json = None) -> None:
        """Remember the result of a tool: if the turn is cut off, it is the answer so far."""
        if text and not text.startswith("Error "):
            self.findings.append(ToolFinding(tool=tool, arguments=arguments, result=text))
            self._brief.progress("", partial=self._so_far)

    def note_text(self, text: str) -> None:
        """Remember a piece of text that the model has streamed."""
        self._streamed.append(text)

    def _so_far(self) -> Answer:
        text = "".join(self._streamed) or self._listed(self.findings)
        return Answer(None if self._brief.result_schema else text, unfinished=("the answer to what was found",))

    # ── limits ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def extend(self, prompt: int, most: int = ENOUGH_OUTPUT, model: str | None = "") -> None:
        """Before a call: have a person asked, if the team says so and its run has too few tokens for it, or limited
        money and no price for the model. Without a *model* that is left for later.
        """
        if model is not None:
            with _money_cut():
                await self._brief.allow_unpriced(model)
        self._brief.keep_back(0)  # the call may be the answer
        output = min(most, ENOUGH_OUTPUT)
        await self._brief.more_tokens(prompt + (max(output, TOOL_CALL + self._needed) if self._is_kept else output))

    @property
    def _is_kept(self) -> bool:
        return self._concludes and bool(self.findings) and not self._is_last

    @property
    def _needed(self) -> int:
        return (self._base + LEAST_FINDINGS) * 11 // 10 + LAST_OUTPUT

    @property
    def _time_kept_ms(self) -> int:
        """The time of a last answer: what the longest call took, and some more, but at most half of all."""
        total = self._brief.remit.time_ms
        return min(total // 2, max(time_to_keep_ms(total), self._longest_ms * 5 // 4))

    def affordable(self, prompt: int, most: int, model: str) -> int:
        """Return how many of *most* tokens a call can answer with for the money left; raises if it is too little."""
        with _money_cut():
            return self._brief.affordable(prompt, most, model=model)

    def begin_call(self, prompt: int, model: str = "") -> None:
        """Raise if a call would leave too little for a last answer, unless nothing was found; else note its begin."""
        if self._is_kept and self._brief.time_left_ms() <= self._time_kept_ms + self._longest_ms:
            raise LimitReached(fault(Code.TIMEOUT, f"{self._brief.request.target} has no time left to go on"))
        left = self._brief.tokens_left(prompt + TOOL_CALL + self._needed) if self._is_kept else 0
        if self._is_kept and left < prompt + TOOL_CALL + self._needed:
            why = f"a call of {self._brief.request.target}'s model takes about {prompt} tokens; {left} are left"
            raise LimitReached(fault(Code.TOKEN_BUDGET_EXCEEDED, why))
        written = TOOL_CALL + LAST_OUTPUT
        if self._is_kept and self.affordable(prompt + self._needed - LAST_OUTPUT, written, model) < written:
            why = f"{self._brief.request.target} has too little money left to go on"
            raise LimitReached(fault(Code.TOKEN_BUDGET_EXCEEDED, why), _MONEY_CUT)
        self._streamed.clear()
        self._round = 0
        self._calls.append(self._brief.time_left_ms())

    def end_call(self) -> None:
        """Note the end of a call."""
        if self._calls:
            self._longest_ms = max(self._longest_ms, self._calls.pop(0) - self._brief.time_left_ms())

    async def within(self, run: Awaitable[T]) -> T:
        """Await a run; cut it off with `LimitReached` while there is time for a last answer.

        A run is not cut off while its model streams, or answers within its usual time: that may be the answer.
        """
        loop = asyncio.get_running_loop()
        limit = asyncio.timeout(None)
        timer: asyncio.TimerHandle | None = None

        def look() -> None:
            nonlocal timer
            if self._may_cut():
                limit.reschedule(loop.time())
            else:
                left_ms = self._brief.time_left_ms() - self._time_kept_ms
                timer = loop.call_later(max(_LOOK_S, left_ms / 1_000), look)

        try:
            async with limit:
                look()
                return await run
        except TimeoutError:
            if not limit.expired():
                raise
            why = fault(Code.TIMEOUT, f"{self._brief.request.target} was not done before its time was nearly over")
            raise LimitReached(why) from None
        finally:
            if timer is not None:
                timer.cancel()

    def _may_cut(self) -> bool:
        left_ms = self._brief.time_left_ms()
        if not self._is_kept or self._streamed or left_ms > self._time_kept_ms:
            return False
        return all(began - left_ms > 2 * self._longest_ms for began in self._calls)

    # ── the last answer ───────────────────────────────────────────────────────────────────────────────────────────────

    async def conclude(self, why: LimitReached, ask: Callable[[ModelPrompt, int], Awaitable[Answer]]) -> Answer:
        """Return the model's last answer from what was found, marked as partial; raise *why* if there is none.

        *ask* calls the model once, without tools: with a prompt, and the tokens that its answer may have.
        """
        self._brief.keep_back(0)
        if isinstance(why, TransferredConversation):
            return Answer(handover=why.handover)
        if isinstance(why, RelayedAnswer):
            return why.answer
        left = self._brief.tokens_left(self._needed)
        self._is_last = True
        output = min(LAST_OUTPUT, left // 3)
        room = (left - output) * 10 // 11 - self._base
        if not self.findings or room < 1:
            raise why
        self._streamed.clear()
        findings = self._listed(self.findings, room * _LETTERS)
        prompt = replace(self._prompt, messages=(), task=f"{self._prompt.task}\n\n{_ANSWER_NOW}\n{findings}")
        most = left - (self._base + estimate(findings)) * 11 // 10
        try:
            answer = await ask(prompt, most)
        except Exception as error:  # the model has failed, and what was found is still there
            raise why from error
        if answer.result in (None, ""):
            raise why
        return replace(answer, unfinished=(*answer.unfinished, f"{why.cut}, and it answered with what it had"))

    def _listed(self, findings: list[ToolFinding], room: int = 100_000) -> str:
        """Return what was found in at most so many letters: the newest where not all of it fits."""
        lines = list[str]()
        for place, finding in enumerate(reversed(findings)):
            line, text = f"- {finding.tool}: ", finding.result
            part = max(0, (room - len(line)) // (len(findings) - place))
            line += text if len(text) <= part else f"{text[: max(0, part - 1)]}…"
            if len(line) > room:
                break
            lines.insert(0, line)
            room -= len(line) + 1
        return "\n".join(lines)
