"""Enforces the limits of a brief on one run of a framework's agent, from whichever hooks the framework has."""

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from concurrent import futures
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

import msgspec
from msgspec.structs import replace

from remit.agents.model_output import answer_of
from remit.agents.prompting import ModelPrompt, prompt_of
from remit.agents.toolbox import ToolOffer, offers
from remit.policy.budget import estimate
from remit.protocol.card import Schema
from remit.protocol.codec import text_of
from remit.protocol.envelope import Answer, Json, Source
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.plain import written
from remit.runtime.aside import stepping_aside
from remit.runtime.brief import HISTORY_TOKENS, Brief
from remit.runtime.origin import worded

# So many letters without a space are no text, but a picture or a file, written as one.
OPAQUE = 4_000

# How the fields of an answer are called: as the models of `ModelAgent` call them, or as `Answer` does.
_FIELDS = {
    "answer": "answer",
    "result": "answer",
    "summary": "summary",
    "confidence": "confidence",
    "sources": "sources",
    "facts": "facts",
    "new_facts": "facts",
    "artifacts": "artifacts",
    "follow_up": "follow_up",
    "requires_followup": "follow_up",
}


def answer_from(output: object, schema: Schema | None, *, user: str, references: Iterable[Source] = ()) -> Answer:
    """Return what a run gave back as an answer: a text, JSON, or the fields of an answer (X2).

    *schema* is what the result must fit, None if it may be anything. A text is read as JSON if that is wanted.
    """
    if isinstance(output, Answer):
        return replace(output, result=plain(output.result))
    free = schema is None or schema.get("type") == "string"
    if isinstance(output, str):
        if not free:
            with suppress(ValueError):  # a result that does not fit is refused by the hub, in its words
                return Answer(json.loads(output.strip().removeprefix("```json").strip("`")))
        return Answer(str(output))
    result = plain(output)
    # A result that must fit a schema is that result, whatever its fields are called.
    if free and (fields := fields_of(result)) is not None:
        return answer_of(fields, text="", user=user, references=references)
    return Answer(result)


def fields_of(result: Json) -> dict[str, Json] | None:
    """Return a result as the fields of an answer, None if it is none: an answer, something more, and nothing else.

    A result with any other field is left whole, since there would be no place for that field.
    """
    if not isinstance(result, dict):
        return None
    given = cast("dict[str, Json]", result)
    if not given.keys() <= _FIELDS.keys():
        return None
    fields = {_FIELDS[name]: value for name, value in given.items()}
    return fields if "answer" in fields and 1 < len(fields) == len(given) else None


def plain(value: object, *, without_none: bool = False) -> Json:
    """Return a value as JSON; what has no form in JSON is told by its text."""
    from pydantic_core import to_jsonable_python  # every framework that is adapted here has it

    try:
        return to_jsonable_python(value, exclude_none=without_none, bytes_mode="base64", fallback=_other)
    except ValueError:  # bytes in a value that takes them for text, or a value that holds itself
        return str(value)[:OPAQUE]


def _other(value: object) -> object:
    """Return what pydantic does not know, an msgspec Struct for one, as JSON or as text."""
    try:
        return msgspec.to_builtins(value, enc_hook=written)
    except (TypeError, ValueError, RecursionError):
        return str(value)


T = TypeVar("T")

# An agent that has asked its model so often is lost, whatever is left of its budget.
MAX_MODEL_CALLS = 50
# Every current model can say so much at once, and some refuse to be asked for more: where more is left, a call is not
# capped, and what it used is metered like any other.
CAPPED_BELOW = 8_192
# Some providers take no fewer, and nothing can be said in fewer.
LEAST_OUTPUT = 16
# How long a thread waits before it looks whether there is still anything to wait for.
LOOK_S = 1.0


class RunningTool(NamedTuple):
    """A tool of the agent's own, in use."""

    tool: str
    arguments: object
    started_s: float


class Bounds:
    """The tools, tokens and words of one run.

    What must end the run is raised where it happens, and kept: a framework may tell its model of an exception, or wrap
    it in one of its own, and `ended` brings it out again as it was.
    """

    def __init__(self, brief: Brief) -> None:
        self.brief = brief
        self.offers: dict[str, ToolOffer] = {offer.name: offer for offer in offers(brief)}
        self.stopped_by: RemitError | None = None
        self._name = brief.request.target
        self._calls = 0
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._waited_for: set[futures.Future[Any]] = set()
        self._in_flight: list[int] = []
        """About how many tokens it took to ask each call of the model that has not ended."""
        self._heard: list[str] = []
        """What the model has said since the last call that ended."""

    async def prompt(self) -> ModelPrompt:
        """Return what the agent is told, and how its answer must look if that is laid down."""
        # Of what is left, at most half is spent on reading what was said before.
        prompt = await prompt_of(self.brief, max_tokens=min(HISTORY_TOKENS, self.brief.tokens_left() // 2))
        if (schema := self.brief.result_schema) is None or schema.get("type") == "string":
            return prompt
        wanted = f"Answer with nothing but JSON that fits this schema:\n{text_of(schema)}"
        return replace(prompt, instructions="\n\n".join(part for part in (prompt.instructions, wanted) if part))

    # ── tools ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def restricted(self) -> bool:
        """Whether the remit names the tools that may be used."""
        return self.brief.remit.tools is not None

    def allows(self, tool: str) -> bool:
        """Return whether a tool may be used, be it the hub's or the agent's own."""
        allowed = self.brief.remit.tools
        return allowed is None or tool in allowed or tool in self.offers

    def allowed(self, tools: Iterable[T], name: Callable[[T], str]) -> list[T]:
        """Return those of the agent's own tools that may be used."""
        return [tool for tool in tools if self.allows(name(tool))]

    def refuse_restriction(self, why: str) -> NoReturn:
        """Refuse a remit that names the tools that may be used, where the agent cannot be held to it."""
        named = ", ".join(sorted(self.brief.remit.tools or ())) or "none"
        message = f"{self._name} cannot be held to the tools that its remit names ({named}): {why}"
        suggestion = "Ask it without naming tools, or ask an agent that can be held to them."
        self.stop(fault(Code.TOOL_NOT_ALLOWED, message, suggestion=suggestion))

    def refuse_clash(self, own: Iterable[str]) -> None:
        """Refuse a team in which a tool of the agent's own has the name of one that it is offered."""
        for name in own:
            if name in self.offers:
                why = f"{self._name} has a tool of its own named `{name}`, and is offered another of that name"
                self.stop(fault(Code.TEAM_INVALID, why, suggestion="Rename its own, or do not offer the other."))

    async def use(self, tool: str, arguments: dict[str, Json] | str) -> str:
        """Use a tool that is offered and return what the model is told of it; *arguments* may still be JSON."""
        if isinstance(arguments, str):
            try:
                arguments = dict(json.loads(arguments or "{}"))
            except (ValueError, TypeError):
                return f"Error {Code.INPUT_VALIDATION_FAILED}: the arguments of {tool} must be a JSON object"
        with self.stopping():
            return await self.offers[tool].call(arguments)

    def begin(self, tool: str, arguments: object) -> "RunningTool":
        """Note that the agent begins to use a tool of its own."""
        self.go_on()
        return RunningTool(tool, arguments, time.monotonic())

    def end(self, use: "RunningTool", error: BaseException | str | None = None) -> None:
        """Record that the agent used a tool of its own, how long that took, and how it failed if it did."""
        duration_ms = round((time.monotonic() - use.started_s) * 1_000)
        words = worded(error) if isinstance(error, BaseException) else error
        try:
            with self.stopping():
                self.brief.used(use.tool, plain(use.arguments), duration_ms=duration_ms, error=words)
        except RemitError:
            # Of a delegation that was told to stop nothing more is recorded, and it is stopping already.
            if not isinstance(error, asyncio.CancelledError):
                raise

    @contextmanager
    def using(self, tool: str, arguments: object) -> Generator[None]:
        """Record the use of a tool of the agent's own around it, however it ends."""
        use = self.begin(tool, arguments)
        try:
            yield
        except (Exception, asyncio.CancelledError) as error:
            self.end(use, error)
            raise
        self.end(use)

    # ── model calls ───────────────────────────────────────────────────────────────────────────────────────────────────

    def next_call(self, prompt: int) -> int | None:
        """Count a call of the model and return its `room`; raises when it was called too often."""
        room = self.room(prompt)
        if self._calls >= MAX_MODEL_CALLS:
            why = f"{self._name} asked its model {MAX_MODEL_CALLS} times and did not come to an end"
            self.stop(fault(Code.DELEGATION_FAILED, why))
        self._calls += 1
        self._in_flight.append(prompt)
        return room

    def room(self, prompt: int) -> int | None:
        """Return how many tokens a call of the model may write, None if it need not be limited.

        *prompt* is about how many it takes to ask; raises when not even these are left.
        """
        self.go_on()
        left = self.brief.tokens_left()
        if left - prompt < LEAST_OUTPUT:
            why = f"a call of {self._name}'s model takes about {prompt} tokens and its answer; {left} are left"
            self.stop(fault(Code.TOKEN_BUDGET_EXCEEDED, why))
        return left - prompt if left - prompt < CAPPED_BELOW else None

    def spent(self, prompt: int, completion: int, *, estimated: bool = False) -> None:
        """Meter what a call of the model used; raises when that was more than there was."""
        if prompt or completion:
            del self._in_flight[:1]
            self._heard.clear()
        with self.stopping():
            self.brief.spend(prompt=prompt, completion=completion, estimated=estimated)

    def _spend_in_flight(self) -> None:
        """Meter what calls of the model that were cut off have used, as far as can be told."""
        cut, self._in_flight = self._in_flight, []
        for place, prompt in enumerate(cut):
            wrote = estimate("".join(self._heard)) if place == 0 and self._heard else 0
            with suppress(RemitError):  # that nothing is left, or that it was told to stop, changes nothing any more
                self.brief.spend(prompt=prompt, completion=wrote, estimated=True)

    def say(self, text: str) -> None:
        """Let whoever watches read along."""
        self._heard.append(str(text))
        with self.stopping():
            self.brief.say(str(text))  # a framework may have strings of its own kind

    # ── threads ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def in_loop(self, work: Callable[[], T]) -> T:
        """Do something where the brief is at home, from whichever thread the framework calls."""
        self.go_on()
        if threading.get_ident() == self._thread:
            return work()
        done: futures.Future[T] = futures.Future()

        def do() -> None:
            try:
                done.set_result(work())
            except BaseException as error:  # noqa: BLE001 - it is raised in the thread that waits
                done.set_exception(error)

        self._loop.call_soon_threadsafe(do)
        return self._result(done)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait in a thread for what happens where the brief is at home; it does not outlast the run."""
        if self.stopped_by is not None:
            work.close()
            raise self.stopped_by
        with stepping_aside.get()():
            doing = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._waited_for.add(doing)
            try:
                return self._result(doing)
            finally:
                self._waited_for.discard(doing)

    def _result(self, done: futures.Future[T]) -> T:
        # A thread may be left behind by its run, and then by its loop: nobody would ever tell it.
        while not futures.wait({done}, LOOK_S).done:
            if self._loop.is_closed():
                raise RuntimeError("the event loop of this run is closed")
        return done.result()

    def give_up(self) -> None:
        """End what threads wait for, and stop them at their next step: they do not hear that they were cancelled."""
        why = fault(Code.CANCELLED, f"{self._name} was told to stop")
        self.stopped_by = self.stopped_by or RemitError(why)
        for doing in tuple(self._waited_for):
            doing.cancel()

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def go_on(self) -> None:
        """Raise what stopped the run, if anything has: the framework may have taken it for a tool's error."""
        if self.stopped_by is not None:
            raise self.stopped_by

    def stop(self, why: Fault) -> NoReturn:
        """End the run for a reason that is not the framework's to judge."""
        with self.stopping():
            raise RemitError(why)

    @contextmanager
    def stopping(self) -> Generator[None]:
        """Keep a `RemitError` from inside as what ended the run."""
        try:
            yield
        except RemitError as error:
            self.stopped_by = self.stopped_by or error
            raise

    async def ended(self, run: Awaitable[T]) -> T:
        """Await a framework's run; what stopped it comes out as itself, whatever the framework made of it."""
        try:
            result = await run
        except asyncio.CancelledError:
            self._spend_in_flight()
            self.give_up()
            raise
        except Exception as error:
            if self.stopped_by is not None:
                raise self.stopped_by from None
            self.refused_by_provider(error)
            raise
        self.go_on()
        return result

    def refused_by_provider(self, error: BaseException) -> None:
        """End the run if a provider refused a call of the model with HTTP 429, in whatever that is wrapped."""
        if (limited := too_many_requests(error)) is not None:
            why = f"the provider of {self._name}'s model is asked too often (HTTP 429)"
            self.stop(fault(Code.RATE_LIMITED, why, retry_after_ms=limited.retry_after_ms))

    def unfinished(self, waits_for: str) -> NoReturn:
        """Fail a run that ended in a question, which only a program of the framework's own could answer."""
        self.stop(fault(Code.DELEGATION_FAILED, f"{self._name} did not finish: it waits for {waits_for}"))

    def answer(self, output: object) -> Answer:
        """Return what a run gave back as an answer: see `answer_from`."""
        brief = self.brief
        return answer_from(output, brief.result_schema, user=brief.user, references=brief.handoff.references)


class TooManyRequests(NamedTuple):
    """What a provider said with HTTP 429."""

    retry_after_ms: int | None


# Errors wrap errors, and one that holds itself must not be followed for ever.
_MAX_CAUSES = 16
_STATUS_FIELDS = ("status_code", "code", "http_status", "status")


def too_many_requests(error: BaseException) -> TooManyRequests | None:
    """Return when to come back if a provider refused a call with 429, in whatever the framework wrapped that.

    Each client has errors of its own: OpenAI's and LiteLLM's have a `status_code`, Google's a `code`.
    """
    rest = [error]
    for _ in range(_MAX_CAUSES):
        if not rest:
            return None
        each = rest.pop(0)
        response = getattr(each, "response", None)
        found = [getattr(each, field, None) for field in _STATUS_FIELDS] + [getattr(response, "status_code", None)]
        if 429 in found:
            return TooManyRequests(_retry_after_ms(response))
        rest += (
            cast("BaseExceptionGroup[BaseException]", each).exceptions if isinstance(each, BaseExceptionGroup) else ()
        )
        rest += [cause for cause in (each.__cause__, each.__context__) if cause is not None]
    return None


def _retry_after_ms(response: Any) -> int | None:
    try:
        return max(0, round(float(response.headers["retry-after"]) * 1_000))
    except (AttributeError, KeyError, TypeError, ValueError):  # none is given, or as a date
        return None


def capped(asked: int | None, left: int | None) -> int | None:
    """Return the smaller of what an agent's settings let a call write, and what is left; None limits nothing."""
    return min((each for each in (asked, left) if each is not None), default=None)


def tokens_of(*values: object) -> int:
    """Return about how many tokens it takes to say these; pictures and the like are left out."""
    said = (each if isinstance(each, str) else _readable(plain(each, without_none=True)) for each in values)
    return sum(estimate(each) for each in said if each)


def _readable(value: Json) -> Json:
    if isinstance(value, str):
        start = value[:OPAQUE]
        return "" if len(start) == OPAQUE and start.isascii() and not any(map(str.isspace, start)) else value
    if isinstance(value, list):
        return [_readable(each) for each in cast("list[Json]", value)]
    if isinstance(value, dict):
        return {key: _readable(each) for key, each in cast("dict[str, Json]", value).items()}
    return value
