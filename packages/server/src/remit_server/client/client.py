"""The client of a hub, for programs with an event loop and for those without."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack
from uuid import uuid4

from remit.protocol.envelope import Json, Response
from remit.protocol.errors import Code, RemitError, fault
from remit_server.client.connection import (
    DEFAULT_TIMEOUT_S,
    HubConnection,
    RunEvent,
    SubmissionOptions,
    all_events,
    call_of,
    run_events,
    submission,
)
from remit_server.documents import api
from remit_server.documents.api import ApprovalQuery, EventQuery, PageQuery, RunsQuery, SessionQuery
from remit_server.documents.api_values import (
    AnswerGiven,
    AnswerOutcomes,
    ApprovalAnswer,
    ApprovalDetail,
    ApprovalList,
    Handle,
    NamedAnswer,
    PublicCard,
    PublicRunTree,
    Reason,
    RevealAsked,
    RevealedQuestion,
    RunAct,
    RunCancel,
    RunList,
    RunRetry,
    SessionList,
    SessionView,
    SeveralAnswers,
    WaitingApproval,
)


class HubClient:
    """A client of one server. Every method raises a `RemitError` if it is refused; its fault has a code.

    A delegation that fails is an outcome and no error: `ask` returns a `Response` whose `fault` says why. A call is
    repeated after a lost connection where that cannot do anything twice. *timeout_s* bounds each call with its
    repetitions.
    """

    def __init__(self, url: str, *, token: str | None = None, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._connection = HubConnection(url, token, timeout_s)

    async def __aenter__(self) -> "HubClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._connection.close()

    # ── delegations ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def ask(
        self, agent: str, text: str = "", *, timeout_s: float | None = None, **options: Unpack[SubmissionOptions]
    ) -> Response:
        """Ask an agent, and return the outcome, also if a person has to agree first.

        After *timeout_s* the wait ends with an error, and the run goes on: `look` or `wait` with the same `request_id`
        returns its outcome. `deadline_ms` bounds the run itself.
        """
        name = options.get("request_id") or uuid4().hex
        sent = submission(agent, text, options, name)
        limit_s = self._connection.timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit_s):
                reply = await self._connection.result(call_of(api.ASK, body=sent), limit_s)
                return reply if isinstance(reply, Response) else await self._outcome(reply.run)
        except TimeoutError as error:
            raise _too_long(name, limit_s) from error

    async def begin(self, agent: str, text: str = "", **options: Unpack[SubmissionOptions]) -> Response | Handle:
        """Ask an agent, and return a handle as soon as the request is stored; its outcome, if it has ended by then."""
        name = options.get("request_id") or uuid4().hex
        sent = submission(agent, text, options, name)
        return await self._connection.result(call_of(api.ASK, body=sent, headers={"prefer": "respond-async"}))

    async def stream(
        self, agent: str, text: str = "", **options: Unpack[SubmissionOptions]
    ) -> AsyncGenerator[RunEvent]:
        """Ask an agent, and yield the events of the run; the last one has the `outcome`."""
        begun = await self.begin(agent, text, **options)
        async for event in self.events(begun.run):
            yield event

    async def look(self, name: str) -> Response | Handle:
        """Return the outcome of a delegation, or a handle if it has not ended; *name* is its run or its request id."""
        return await self._connection.result(call_of(api.LOOK, id=name))

    async def wait(self, name: str, *, timeout_s: float | None = None) -> Response:
        """Wait for the outcome of a delegation."""
        limit_s = self._connection.timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit_s):
                reply = await self.look(name)
                return reply if isinstance(reply, Response) else await self._outcome(reply.run)
        except TimeoutError as error:
            raise _too_long(name, limit_s) from error

    async def cancel(self, name: str, reason: str = "") -> Response | Handle:
        """Cancel a delegation and everything below it."""
        return await self._connection.result(call_of(api.CANCEL, body=Reason(reason=reason), id=name))

    async def events(self, name: str, *, after: int | None = None) -> AsyncGenerator[RunEvent]:
        """Yield the events of a delegation, from its start or after a number, until it has ended."""
        async for event in run_events(self._connection, call_of(api.READ_ALONG, id=name), after):
            yield event

    async def _outcome(self, run: str) -> Response:
        async for event in self.events(run):
            if event.outcome is not None:
                break
        reply = await self.look(run)  # worded for whoever asked, which a record is not
        if isinstance(reply, Response):
            return reply
        raise RemitError(fault(Code.OUTCOME_UNKNOWN, f"the run {run} has ended without an outcome"))

    # ── agents, runs ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def agents(self) -> tuple[PublicCard, ...]:
        """Return the agents that this client may ask."""
        return (await self._connection.result(call_of(api.AGENTS))).agents

    async def agent(self, name: str) -> PublicCard:
        """Return one agent."""
        return await self._connection.result(call_of(api.AGENT_CARD, name=name))

    async def runs(self, **query: Unpack[RunsQuery]) -> RunList:
        """Return runs, newest first. `agent`, `user`, `state`, `q`, `limit` and others select, as in `GET /v1/runs`."""
        return await self._connection.result(call_of(api.RUNS, query=query))

    async def run(self, run: str) -> PublicRunTree:
        """Return the delegations of a run."""
        return await self._connection.result(call_of(api.RUN_TREE, run=run))

    async def cancel_run(self, run: str, *, delegation: str | None = None, reason: str = "") -> RunAct:
        """Cancel a run, or one of its delegations, whichever process executes it."""
        wanted = RunCancel(delegation=delegation, reason=reason)
        return await self._connection.result(call_of(api.CANCEL_RUN, body=wanted, run=run))

    async def retry_run(
        self, run: str, *, max_tokens: int | None = None, deadline_ms: int | None = None, max_cost: int | None = None
    ) -> RunAct:
        """Repeat a run that did not succeed, as a new run; never sent twice by itself."""
        wanted = RunRetry(max_tokens=max_tokens, deadline_ms=deadline_ms, max_cost=max_cost)
        return await self._connection.result(call_of(api.RETRY_RUN, body=wanted, run=run))

    async def resume_run(self, run: str) -> RunAct:
        """Resume a run whose process is gone."""
        return await self._connection.result(call_of(api.RESUME_RUN, run=run))

    async def all_events(self, *, after: int | None = None, **query: Unpack[EventQuery]) -> AsyncGenerator[RunEvent]:
        """Yield the records of all runs that this client may see, without end: from now on, or after a number."""
        async for event in all_events(self._connection, call_of(api.ALL_EVENTS, query=query), after):
            yield event

    # ── approvals, conversations ──────────────────────────────────────────────────────────────────────────────────────

    async def approvals(self, **query: Unpack[ApprovalQuery]) -> ApprovalList:
        """Return what waits for a person, and what was answered lately."""
        return await self._connection.result(call_of(api.APPROVALS, query=query))

    async def approval(self, name: str) -> ApprovalDetail:
        """Return a question with its request."""
        return await self._connection.result(call_of(api.APPROVAL, id=name))

    async def reveal(self, name: str, *, by: str = "") -> RevealedQuestion:
        """Return what a person is shown of a question, with personal values in clear; the record says who read them."""
        return await self._connection.result(call_of(api.REVEAL, body=RevealAsked(by=by), id=name))

    async def answer(
        self,
        question: WaitingApproval,
        agree: bool,
        *,
        reason: str = "",
        edits: dict[str, Json] | None = None,
        by: str = "",
    ) -> AnswerGiven:
        """Answer a question as it was shown; one that changed since is refused."""
        approval_answer = ApprovalAnswer(agree=agree, digest=question.digest, reason=reason, edits=edits or {}, by=by)
        return await self._connection.result(call_of(api.ANSWER, body=approval_answer, id=question.id))

    async def answer_several(self, answers: Sequence[NamedAnswer]) -> AnswerOutcomes:
        """Answer several questions; each has an outcome of its own."""
        return await self._connection.result(call_of(api.ANSWER_SEVERAL, body=SeveralAnswers(answers=tuple(answers))))

    async def sessions(self, **query: Unpack[SessionQuery]) -> SessionList:
        """Return conversations, the one with the newest request first."""
        return await self._connection.result(call_of(api.SESSIONS, query=query))

    async def session(self, name: str, **query: Unpack[PageQuery]) -> SessionView:
        """Return a conversation: its newest messages and its notes."""
        return await self._connection.result(call_of(api.SESSION, query=query, id=name))


def _too_long(name: str, limit_s: float) -> RemitError:
    why = f"no outcome of `{name}` within {limit_s:g} s; it goes on at the server"
    return RemitError(fault(Code.TIMEOUT, why, suggestion=f"Wait for it: wait({name!r})."))


P = ParamSpec("P")
T = TypeVar("T")


class SyncHubClient:
    """`HubClient` without await: also in notebooks, where an event loop is running already.

    It has an event loop in a thread of its own, which ends with `close` or the `with` block.
    """

    def __init__(self, url: str, *, token: str | None = None, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._client = HubClient(url, token=token, timeout_s=timeout_s)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="remit-client", daemon=True)
        self._thread.start()

    def __enter__(self) -> "SyncHubClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, and end the thread."""
        if self._loop.is_closed():
            return
        self._finish(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _finish(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    @staticmethod
    def _blocking(
        method: Callable[Concatenate[HubClient, P], Coroutine[Any, Any, T]],
    ) -> Callable[Concatenate["SyncHubClient", P], T]:
        """Return a method of `HubClient` as one that waits for its result."""

        @wraps(method)
        def wait_for(self: "SyncHubClient", *args: P.args, **options: P.kwargs) -> T:
            return self._finish(method(self._client, *args, **options))

        return wait_for

    @staticmethod
    def _iterated(
        method: Callable[Concatenate[HubClient, P], AsyncGenerator[RunEvent]],
    ) -> Callable[Concatenate["SyncHubClient", P], Generator[RunEvent]]:
        """Return a method of `HubClient` that yields events as one that waits for each."""

        @wraps(method)
        def read(self: "SyncHubClient", *args: P.args, **options: P.kwargs) -> Generator[RunEvent]:
            events = method(self._client, *args, **options)
            try:
                while (event := self._finish(_next(events))) is not None:
                    yield event
            finally:
                if not self._loop.is_closed():
                    self._finish(_closed(events))

        return read

    ask = _blocking(HubClient.ask)
    begin = _blocking(HubClient.begin)
    stream = _iterated(HubClient.stream)
    look = _blocking(HubClient.look)
    wait = _blocking(HubClient.wait)
    cancel = _blocking(HubClient.cancel)
    events = _iterated(HubClient.events)

    agents = _blocking(HubClient.agents)
    agent = _blocking(HubClient.agent)
    runs = _blocking(HubClient.runs)
    run = _blocking(HubClient.run)
    cancel_run = _blocking(HubClient.cancel_run)
    retry_run = _blocking(HubClient.retry_run)
    resume_run = _blocking(HubClient.resume_run)
    all_events = _iterated(HubClient.all_events)

    approvals = _blocking(HubClient.approvals)
    approval = _blocking(HubClient.approval)
    reveal = _blocking(HubClient.reveal)
    answer = _blocking(HubClient.answer)
    answer_several = _blocking(HubClient.answer_several)
    sessions = _blocking(HubClient.sessions)
    session = _blocking(HubClient.session)


async def _next(events: AsyncGenerator[RunEvent]) -> RunEvent | None:
    return await anext(events, None)


async def _closed(events: AsyncGenerator[RunEvent]) -> None:
    await events.aclose()
