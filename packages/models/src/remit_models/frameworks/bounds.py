"""Enforces the limits of a brief on one run of a framework's agent, from the hooks that the framework has."""

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

from remit.policy.budget import LEAST_OUTPUT, estimate
from remit.ports.brief import HISTORY_TOKENS, Brief, as_arguments
from remit.protocol.card import Schema
from remit.protocol.codec import text_of
from remit.protocol.envelope import Answer, Json, Source, Usage
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.typed import written
from remit.runtime.aside import stepping_aside
from remit.runtime.origin import failure_of_tool, worded
from remit_models.model_output import answer_of
from remit_models.prompting import ModelPrompt, prompt_of, with_findings_as_text
from remit_models.reserve import LimitReached, Reserve
from remit_models.toolbox import ENDS_THE_TURN, ToolOffer, error_text, offers

# A longer run of characters without a space is not text but an encoded picture or file.
OPAQUE = 4_000

# The names of an answer's fields: as the models of `ModelAgent` use them, or as `Answer` does.
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
    """Return the output of a run as an answer: a text, JSON, or the fields of an answer (X2).

    *schema* is the schema of the result, None if there is none. A text is parsed as JSON if the schema requires that.
    """
    if isinstance(output, Answer):
        return replace(output, result=plain(output.result))
    free = schema is None or schema.get("type") == "string"
    if isinstance(output, str):
        if not free:
            with suppress(ValueError):  # the hub rejects a result that does not fit, with its own message
                return Answer(json.loads(output.strip().removeprefix("```json").strip("`")))
        return Answer(str(output))
    result = plain(output)
    # A result with a schema is used as it is, whatever the names of its fields are.
    if free and (fields := fields_of(result)) is not None:
        return answer_of(fields, text="", user=user, references=references)
    return Answer(result)


def fields_of(result: Json) -> dict[str, Json] | None:
    """Return a result as the fields of an answer; None unless it has an answer, something more, and no other field.

    A result with any other field is left whole, because an answer has no place for that field.
    """
    if not isinstance(result, dict):
        return None
    given = cast("dict[str, Json]", result)
    if not given.keys() <= _FIELDS.keys():
        return None
    fields = {_FIELDS[name]: value for name, value in given.items()}
    return fields if "answer" in fields and 1 < len(fields) == len(given) else None


def plain(value: object, *, without_none: bool = False) -> Json:
    """Return a value as JSON; a value without a JSON form becomes its text."""
    from pydantic_core import to_jsonable_python  # every adapted framework depends on it

    try:
        return to_jsonable_python(value, exclude_none=without_none, bytes_mode="base64", fallback=_other)
    except ValueError:  # bytes in a text field, or a value that contains itself
        return str(value)[:OPAQUE]


def _other(value: object) -> object:
    """Return a value that pydantic does not know, such as an msgspec Struct, as JSON or as text."""
    try:
        return msgspec.to_builtins(value, enc_hook=written)
    except (TypeError, ValueError, RecursionError):
        return str(value)


T = TypeVar("T")

LastCall = Callable[[ModelPrompt, int], Awaitable[tuple[str, Usage]]]
"""Calls the model of a run once more, without tools: with a prompt, and the most tokens that its answer may have.

It returns the text, and the usage: no tokens if the provider does not report them.
"""

# An agent that has called its model this often is lost, whatever is left of its budget.
MAX_MODEL_CALLS = 50
# Every current model can write this much at once, and some reject a higher limit. If more is left, a call is not
# limited, and its usage is metered like any other.
CAPPED_BELOW = 8_192
# How often a waiting thread checks whether its run still exists.
LOOK_S = 1.0


class RefusedToolError(Exception):
    """One of the agent's own tools may not be used; the message is for its model."""


class ToolFailure(NamedTuple):
    """What the framework tells its model of one of the agent's own tools that failed, and the error in words."""

    result: Any
    error: str


class RunningTool(NamedTuple):
    """A running tool of the agent itself."""

    tool: str
    arguments: object
    started_s: float


class Bounds:
    """The tools, tokens and messages of one run.

    An error that must end the run is raised where it happens, and kept. A framework may report an exception to its
    model, or wrap it in its own; `ended` raises the original again. With *concludes*, the adapter makes a last answer
    at a limit.
    """

    def __init__(self, brief: Brief, *, concludes: bool = False) -> None:
        self.brief = brief
        self._concludes = concludes
        self.offers: dict[str, ToolOffer] = {offer.name: offer for offer in offers(brief, ends_turn=concludes)}
        self.stopped_by: RemitError | None = None
        self._name = brief.request.target
        self._calls = 0
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._waited_for: set[futures.Future[Any]] = set()
        self.in_progress: set[OwnToolInProgress] = set()
        self._in_flight: list[int] = []
        """The estimated prompt tokens of each model call in progress."""
        self.model: Any = None
        """The model of the run, where the framework shows it, for a last answer."""
        self._price_name = ""
        """The name of the model that was called first, by which its price is found."""
        self._streamed: list[str] = []
        """The model's text since the last finished call."""
        self._reserve = Reserve(brief, ModelPrompt(instructions="", messages=(), task=""), concludes=concludes)

    async def prompt(self) -> ModelPrompt:
        """Return the agent's prompt, including the format of its answer if there is one."""
        # At most half of the remaining tokens are spent on reading earlier messages.
        prompt = await prompt_of(self.brief, max_tokens=min(HISTORY_TOKENS, self.brief.tokens_left() // 2))
        prompt = replace(prompt, messages=with_findings_as_text(prompt.messages))
        if (schema := self.brief.result_schema) is not None and schema.get("type") != "string":
            wanted = f"Answer with nothing but JSON that fits this schema:\n{text_of(schema)}"
            prompt = replace(prompt, instructions="\n\n".join(part for part in (prompt.instructions, wanted) if part))
        self._reserve = Reserve(self.brief, prompt, concludes=self._concludes)
        return prompt

    # ── tools ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def restricted(self) -> bool:
        """Whether the remit limits the tools."""
        return self.brief.remit.tools is not None

    def allows(self, tool: str) -> bool:
        """Return whether a tool may be used, whether it is the hub's or the agent's own."""
        allowed = self.brief.remit.tools
        return allowed is None or tool in allowed or tool in self.offers

    def allowed(self, tools: Iterable[T], name: Callable[[T], str]) -> list[T]:
        """Return the agent's own tools that may be used."""
        return [tool for tool in tools if self.allows(name(tool))]

    def refuse_restriction(self, why: str) -> NoReturn:
        """Refuse a remit that limits the tools, for an agent on which that cannot be enforced."""
        named = ", ".join(sorted(self.brief.remit.tools or ())) or "none"
        message = f"{self._name} cannot be held to the tools that its remit names ({named}): {why}"
        suggestion = "Ask it without naming tools, or ask an agent that can be held to them."
        self.stop(fault(Code.TOOL_NOT_ALLOWED, message, suggestion=suggestion))

    def refuse_clash(self, own: Iterable[str]) -> None:
        """Refuse a team in which an agent's own tool has the name of an offered one."""
        for name in own:
            if name in self.offers:
                why = f"{self._name} has a tool of its own named `{name}`, and is offered another of that name"
                self.stop(fault(Code.TEAM_INVALID, why, suggestion="Rename its own, or do not offer the other."))

    async def use(self, tool: str, arguments: dict[str, Json] | str) -> str:
        """Call an offered tool and return the text for the model; *arguments* may still be JSON."""
        if isinstance(arguments, str):
            try:
                arguments = dict(json.loads(arguments or "{}"))
            except (ValueError, TypeError):
                return f"Error {Code.INPUT_VALIDATION_FAILED}: the arguments of {tool} must be a JSON object"
        with self.stopping():
            return await self._reserve.use(tool, arguments, self.offers[tool].call)

    async def use_own(
        self, tool: str, arguments: object, run: Callable[[dict[str, Json]], Awaitable[Any]], *, question: str = ""
    ) -> Any:
        """Use one of the agent's own tools as `Brief.use_own_tool` does, and return its result as a model may read it.

        *run* returns a `ToolFailure` if the framework handled the error of the tool. Raises a `RefusedToolError` with
        the text for the model if the tool may not be used. After a restart, the result of a use before it is JSON.
        """
        self.raise_if_stopped()
        results, raised = list[Any](), list[BaseException]()

        async def running(permitted: dict[str, Json]) -> Json:
            try:
                result = await run(permitted)
            except BaseException as error:
                raised.append(error)
                raise
            if isinstance(result, ToolFailure):
                results.append(result.result)
                raise RemitError(failure_of_tool(self._name, tool, str(result.error)))  # it may be of a kind of its own
            results.append(result)
            return plain(result)

        try:
            value = await self.brief.use_own_tool(
                tool, as_arguments(tool, plain(arguments)), running, question=question
            )
        except RemitError as error:
            if raised:
                raise
            if error.fault.code in ENDS_THE_TURN:
                self.stop(error.fault)
            if results:
                return await self._shown(tool, results[0])
            text = await self.brief.for_model(error_text(error.fault), tool=tool)
            raise RefusedToolError(str(text)) from error
        result = results[0] if results else value
        return None if result is None else await self._shown(tool, result, arguments, is_found=True)

    async def _shown(self, tool: str, result: Any, arguments: object = None, *, is_found: bool = False) -> Any:
        """Return a result as it is, unless something in it is redacted for the model: then as JSON, without pictures.

        What is found is remembered, for a last answer at a limit.
        """
        readable = _readable(plain(result))
        try:
            clean = await self.brief.for_model(readable, tool=tool)
        except RemitError as error:
            return error_text(error.fault)
        if is_found:
            with self.stopping():
                self._reserve.note_result(tool, text_of(clean), plain(arguments))
        return result if clean == readable else clean

    def question_about(self, tool: str, reason: object = None) -> str:
        """Return the question to a person for a tool whose author wants its use approved."""
        words = f" ({text_of(plain(reason))})" if reason else ""
        return f"May {self._name} use {tool}?{words}"

    def begin(self, tool: str, arguments: object) -> "RunningTool":
        """Record that the agent starts to use one of its own tools."""
        self.raise_if_stopped()
        return RunningTool(tool, arguments, time.monotonic())

    def end(self, use: "RunningTool", error: BaseException | str | None = None) -> None:
        """Record that the agent used one of its own tools, how long that took, and how it failed if it did."""
        duration_ms = round((time.monotonic() - use.started_s) * 1_000)
        words = worded(error) if isinstance(error, BaseException) else error
        try:
            with self.stopping():
                self.brief.record_tool_use(use.tool, plain(use.arguments), duration_ms=duration_ms, error=words)
        except RemitError:
            # A stopped delegation records nothing more, and is stopping already.
            if not isinstance(error, asyncio.CancelledError):
                raise

    # ── model calls ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def extend(self, prompt: int, model: str | None = "") -> None:
        """Ask a person before a model call, if its team says so and its run has too few tokens for it, or limited
        money and no price for the model.
        """
        self.raise_if_stopped()
        with self.stopping():
            await self._reserve.extend(prompt, model=model)

    def instructed(self, instructions: str) -> None:
        """Note what instructions the model of the run gets, for a last answer."""
        self._reserve.instruct(instructions)

    def extend_in_thread(self, prompt: int, model: str = "") -> None:
        """Do what `extend` does, in a thread of the framework; the event loop's own thread must not wait."""
        if threading.get_ident() != self._thread:
            self.wait(self.extend(prompt, model))

    def next_call(self, prompt: int, model: str = "") -> int | None:
        """Count a model call and return its `room`; raises if the model was called too often."""
        room = self.room(prompt, model)
        if self._calls >= MAX_MODEL_CALLS:
            why = f"{self._name} asked its model {MAX_MODEL_CALLS} times and did not come to an end"
            self.stop_at_limit(fault(Code.DELEGATION_FAILED, why))
        with self.stopping():
            self._reserve.begin_call(prompt, model)
        self._price_name = self._price_name or model
        self._calls += 1
        self._in_flight.append(prompt)
        return room

    def room(self, prompt: int, model: str = "") -> int | None:
        """Return how many tokens a model call may write; None for no limit.

        *prompt* is the estimated number of prompt tokens; raises if not even these are left, or cannot be paid for.
        """
        room = self.tokens_room(prompt)
        most = CAPPED_BELOW if room is None else room
        with self.stopping():
            affordable = self._reserve.affordable(prompt, most, model)
        return room if affordable == most else affordable

    def tokens_room(self, prompt: int) -> int | None:
        """Return what `room` returns, without regard to money."""
        self.raise_if_stopped()
        left = self.brief.tokens_left(prompt + CAPPED_BELOW)
        if left - prompt < LEAST_OUTPUT:
            why = f"a call of {self._name}'s model takes about {prompt} tokens and its answer; {left} are left"
            self.stop_at_limit(fault(Code.TOKEN_BUDGET_EXCEEDED, why))
        return left - prompt if left - prompt < CAPPED_BELOW else None

    def spent(
        self,
        prompt: int,
        completion: int,
        *,
        estimated: bool = False,
        cache_write: int = 0,
        cache_read: int = 0,
        model: str = "",
    ) -> None:
        """Meter the usage of a model call; raises if it was more than the remaining budget."""
        if prompt or completion:
            del self._in_flight[:1]
            self._reserve.end_call()
            self._streamed.clear()
        with self.stopping():
            self.brief.spend(
                prompt=prompt,
                completion=completion,
                estimated=estimated,
                cache_write=cache_write,
                cache_read=cache_read,
                model=model,
            )

    def _spend_in_flight(self) -> None:
        """Meter the usage of interrupted model calls, as far as it can be estimated."""
        cut, self._in_flight = self._in_flight, []
        for place, prompt in enumerate(cut):
            wrote = estimate("".join(self._streamed)) if place == 0 and self._streamed else 0
            with suppress(RemitError):  # an exhausted budget or a cancellation changes nothing any more
                self.brief.spend(prompt=prompt, completion=wrote, estimated=True, model=self._price_name)

    def say(self, text: str) -> None:
        """Stream a text to the listeners."""
        self._streamed.append(str(text))
        self._reserve.note_text(str(text))
        with self.stopping():
            self.brief.say(str(text))  # a framework may have its own string type

    # ── threads ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def in_loop(self, work: Callable[[], T]) -> T:
        """Call a function in the event loop of the brief, from any thread of the framework."""
        self.raise_if_stopped()
        if self.is_in_loop:
            return work()
        done: futures.Future[T] = futures.Future()

        def do() -> None:
            try:
                done.set_result(work())
            except BaseException as error:  # noqa: BLE001 - it is raised in the thread that waits
                done.set_exception(error)

        self._loop.call_soon_threadsafe(do)
        return self._result(done)

    @property
    def is_in_loop(self) -> bool:
        """Whether this thread is that of the event loop, in which nothing can be waited for."""
        return threading.get_ident() == self._thread

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait in a thread for a coroutine in the event loop of the brief; the wait ends with the run."""
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
        # A run, and then its loop, may end before this thread: nobody would ever notify it.
        while not futures.wait({done}, LOOK_S).done:
            if self._loop.is_closed():
                raise RuntimeError("the event loop of this run is closed")
        return done.result()

    def give_up(self) -> None:
        """Stop the waits of threads, and the threads at their next step, because they cannot be cancelled."""
        why = fault(Code.CANCELLED, f"{self._name} was told to stop")
        self.stopped_by = self.stopped_by or RemitError(why)
        for doing in tuple(self._waited_for):
            doing.cancel()

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def raise_if_stopped(self) -> None:
        """Raise the error that stopped the run, if there is one: the framework may have taken it for a tool's error."""
        if self.stopped_by is not None:
            raise self.stopped_by

    def stop(self, why: Fault) -> NoReturn:
        """End the run for a reason that the framework must not handle."""
        with self.stopping():
            raise RemitError(why)

    def stop_at_limit(self, why: Fault) -> NoReturn:
        """End the run at a limit, with a last answer if there is something to answer with."""
        with self.stopping():
            raise LimitReached(why)

    @contextmanager
    def stopping(self) -> Generator[None]:
        """Record a `RemitError` from the block as the error that ended the run."""
        try:
            yield
        except RemitError as error:
            self.stopped_by = self.stopped_by or error
            raise

    async def ended(self, run: Awaitable[T]) -> T:
        """Await a framework's run; raise the error that stopped it, whatever the framework made of that error."""
        try:
            result = await self._reserve.within(run)
        except asyncio.CancelledError:
            self._spend_in_flight()
            self.give_up()
            raise
        except LimitReached:
            self._spend_in_flight()
            self.give_up()
            raise
        except Exception as error:
            if self.stopped_by is not None:
                raise self.stopped_by from None
            self.refused_by_provider(error)
            raise
        finally:
            for use in tuple(self.in_progress):  # the framework has not told their end
                await use.cancel()
        self.raise_if_stopped()
        return result

    def refused_by_provider(self, error: BaseException) -> None:
        """End the run if a provider refused a model call with HTTP 429, however that error is wrapped."""
        if (limited := too_many_requests(error)) is not None:
            why = f"the provider of {self._name}'s model is asked too often (HTTP 429)"
            self.stop(fault(Code.RATE_LIMITED, why, retry_after_ms=limited.retry_after_ms))

    async def conclude(self, why: LimitReached, ask: LastCall) -> Answer:
        """Return the last answer of a run that came to a limit, marked as partial; raise *why* if there is none."""

        async def last(prompt: ModelPrompt, most: int) -> Answer:
            read, model = tokens_of(prompt.instructions, prompt.task), self._price_name
            most = self._reserve.affordable(read, most, model)
            try:
                text, usage = await ask(prompt, most)
            except asyncio.CancelledError:
                with suppress(RemitError):
                    self.brief.spend(prompt=read, estimated=True, model=model)
                raise
            if not usage.total:
                usage = Usage(prompt=read, completion=estimate(text), estimated=True)
            self.brief.spend(
                prompt=usage.prompt,
                completion=usage.completion,
                estimated=usage.estimated,
                cache_write=usage.cache_write,
                cache_read=usage.cache_read,
                model=model,
            )
            return self.answer(text)

        return await self._reserve.conclude(why, last)

    def unfinished(self, waits_for: str) -> NoReturn:
        """Fail a run that ended with a question that only a program of the framework itself could answer."""
        self.stop(fault(Code.DELEGATION_FAILED, f"{self._name} did not finish: it waits for {waits_for}"))

    def answer(self, output: object) -> Answer:
        """Return the output of a run as an answer: see `answer_from`."""
        brief = self.brief
        answer = answer_from(output, brief.result_schema, user=brief.user, references=brief.handoff.references)
        return replace(answer, findings=tuple(self._reserve.findings))


class OwnToolInProgress:
    """One use of an agent's own tool that a framework runs itself, and whose end it reports."""

    def __init__(self, bounds: Bounds, tool: str, arguments: object, question: str = "") -> None:
        loop = asyncio.get_running_loop()
        self.tool = tool
        self.arguments: dict[str, Json] = {}
        """The arguments as they are permitted."""
        self._began: asyncio.Future[None] = loop.create_future()
        self._ended: asyncio.Future[Any] = loop.create_future()
        self._use = loop.create_task(bounds.use_own(tool, arguments, self._run, question=question))
        bounds.in_progress.add(self)
        self._use.add_done_callback(lambda _: bounds.in_progress.discard(self))

    async def _run(self, permitted: dict[str, Json]) -> Any:
        self.arguments = permitted
        self._began.set_result(None)
        return await self._ended

    async def permitted(self) -> "OwnToolInProgress":
        """Wait until the tool may run; raises a `RefusedToolError` if it may not."""
        try:
            await asyncio.wait({self._began, self._use}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.cancel()
            raise
        if not self._began.done():
            # Otherwise it was refused, or has a result from before a restart, which the framework would not take.
            raise RefusedToolError(f"{self.tool} was used before, with this result: {text_of(plain(await self._use))}")
        return self

    async def end(self, error: BaseException | str | None = None, result: object = None) -> Any:
        """Record that the tool ended, and how it failed if it did; return its result as the model may read it."""
        if not self._ended.done():
            words = worded(error) if isinstance(error, BaseException) else error
            self._ended.set_result(result if words is None else ToolFailure(result, words))
        return await self._use

    async def cancel(self) -> None:
        """Record that the tool did not end."""
        self._use.cancel()
        await asyncio.wait({self._use})


class TooManyRequests(NamedTuple):
    """A provider's response with HTTP 429."""

    retry_after_ms: int | None


# Errors wrap errors, and a circular chain must not be followed for ever.
_MAX_CAUSES = 16
_STATUS_FIELDS = ("status_code", "code", "http_status", "status")


def too_many_requests(error: BaseException) -> TooManyRequests | None:
    """Return when to retry if a provider refused a call with 429, however the framework wrapped that error.

    Each client has its own errors: those of OpenAI and LiteLLM have a `status_code`, those of Google a `code`.
    """
    rest = [error]
    for _ in range(_MAX_CAUSES):
        if not rest:
            return None
        each = rest.pop(0)
        response = getattr(each, "response", None)
        statuses = [getattr(each, field, None) for field in _STATUS_FIELDS] + [getattr(response, "status_code", None)]
        if 429 in statuses:
            return TooManyRequests(_retry_after_ms(response))
        rest += (
            cast("BaseExceptionGroup[BaseException]", each).exceptions if isinstance(each, BaseExceptionGroup) else ()
        )
        rest += [cause for cause in (each.__cause__, each.__context__) if cause is not None]
    return None


def _retry_after_ms(response: Any) -> int | None:
    try:
        return max(0, round(float(response.headers["retry-after"]) * 1_000))
    except (AttributeError, KeyError, TypeError, ValueError):  # missing, or given as a date
        return None


def capped(wanted: int | None, left: int | None) -> int | None:
    """Return the smaller of the output limit in an agent's settings and the remaining tokens; None is no limit."""
    return min((each for each in (wanted, left) if each is not None), default=None)


def tokens_of(*values: object) -> int:
    """Return the estimated tokens of these texts; pictures and the like are left out."""
    texts = (each if isinstance(each, str) else _readable(plain(each, without_none=True)) for each in values)
    return sum(estimate(each) for each in texts if each)


def _readable(value: Json) -> Json:
    if isinstance(value, str):
        start = value[:OPAQUE]
        return "" if len(start) == OPAQUE and start.isascii() and not any(map(str.isspace, start)) else value
    if isinstance(value, list):
        return [_readable(each) for each in cast("list[Json]", value)]
    if isinstance(value, dict):
        return {key: _readable(each) for key, each in cast("dict[str, Json]", value).items()}
    return value
