"""The client of a hub for programs without an event loop."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator, Sequence
from typing import Any, TypeVar, Unpack

from remit.client.calls import ApprovalQuery, EventQuery, MessageQuery, RunsQuery, SessionQuery, SubmissionOptions
from remit.client.client import HubClient
from remit.client.connection import DEFAULT_TIMEOUT_S
from remit.client.streams import RunEvent
from remit.documents.api_approvals import (
    AnswerGiven,
    AnswerOutcomes,
    ApprovalDetail,
    ApprovalList,
    NamedAnswer,
    WaitingApproval,
)
from remit.documents.api_delegations import Handle, PublicCard
from remit.documents.api_runs import PublicRunTree, RunAct, RunList
from remit.documents.api_sessions import SessionList, SessionView
from remit.protocol.envelope import Json, Response

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
        self._run(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _read(self, events: AsyncGenerator[RunEvent]) -> Generator[RunEvent]:
        try:
            while (event := self._run(_next(events))) is not None:
                yield event
        finally:
            if not self._loop.is_closed():
                self._run(_closed(events))

    # ── delegations ───────────────────────────────────────────────────────────────────────────────────────────────────

    def ask(
        self, agent: str, text: str = "", *, timeout_s: float | None = None, **options: Unpack[SubmissionOptions]
    ) -> Response:
        """Ask an agent, and return the outcome; see `HubClient.ask`."""
        return self._run(self._client.ask(agent, text, timeout_s=timeout_s, **options))

    def begin(self, agent: str, text: str = "", **options: Unpack[SubmissionOptions]) -> Response | Handle:
        """Ask an agent, and return a handle as soon as the request is stored."""
        return self._run(self._client.begin(agent, text, **options))

    def stream(self, agent: str, text: str = "", **options: Unpack[SubmissionOptions]) -> Generator[RunEvent]:
        """Ask an agent, and yield the events of the run; the last one has the `outcome`."""
        return self._read(self._client.stream(agent, text, **options))

    def look(self, name: str) -> Response | Handle:
        """Return the outcome of a delegation, or a handle if it has not ended."""
        return self._run(self._client.look(name))

    def wait(self, name: str, *, timeout_s: float | None = None) -> Response:
        """Wait for the outcome of a delegation."""
        return self._run(self._client.wait(name, timeout_s=timeout_s))

    def cancel(self, name: str, reason: str = "") -> Response | Handle:
        """Cancel a delegation and everything below it."""
        return self._run(self._client.cancel(name, reason))

    def events(self, name: str, *, after: int | None = None) -> Generator[RunEvent]:
        """Yield the events of a delegation until it has ended."""
        return self._read(self._client.events(name, after=after))

    # ── agents, runs ──────────────────────────────────────────────────────────────────────────────────────────────────

    def agents(self) -> tuple[PublicCard, ...]:
        """Return the agents that this client may ask."""
        return self._run(self._client.agents())

    def agent(self, name: str) -> PublicCard:
        """Return one agent."""
        return self._run(self._client.agent(name))

    def runs(self, **query: Unpack[RunsQuery]) -> RunList:
        """Return runs, newest first."""
        return self._run(self._client.runs(**query))

    def run(self, run: str) -> PublicRunTree:
        """Return the delegations of a run."""
        return self._run(self._client.run(run))

    def cancel_run(self, run: str, *, delegation: str | None = None, reason: str = "") -> RunAct:
        """Cancel a run, or one of its delegations."""
        return self._run(self._client.cancel_run(run, delegation=delegation, reason=reason))

    def retry_run(self, run: str, *, max_tokens: int | None = None, deadline_ms: int | None = None) -> RunAct:
        """Repeat a run that did not succeed, as a new run."""
        return self._run(self._client.retry_run(run, max_tokens=max_tokens, deadline_ms=deadline_ms))

    def resume_run(self, run: str) -> RunAct:
        """Resume a run whose process is gone."""
        return self._run(self._client.resume_run(run))

    def all_events(self, *, after: int | None = None, **query: Unpack[EventQuery]) -> Generator[RunEvent]:
        """Yield the records of all runs that this client may see, without end."""
        return self._read(self._client.all_events(after=after, **query))

    # ── approvals, conversations ──────────────────────────────────────────────────────────────────────────────────────

    def approvals(self, **query: Unpack[ApprovalQuery]) -> ApprovalList:
        """Return what waits for a person, and what was answered lately."""
        return self._run(self._client.approvals(**query))

    def approval(self, name: str) -> ApprovalDetail:
        """Return a question with its request."""
        return self._run(self._client.approval(name))

    def answer(
        self,
        question: WaitingApproval,
        agree: bool,
        *,
        reason: str = "",
        edits: dict[str, Json] | None = None,
        by: str = "",
    ) -> AnswerGiven:
        """Answer a question as it was shown."""
        return self._run(self._client.answer(question, agree, reason=reason, edits=edits, by=by))

    def answer_several(self, answers: Sequence[NamedAnswer]) -> AnswerOutcomes:
        """Answer several questions; each has an outcome of its own."""
        return self._run(self._client.answer_several(answers))

    def sessions(self, **query: Unpack[SessionQuery]) -> SessionList:
        """Return conversations, the one with the newest request first."""
        return self._run(self._client.sessions(**query))

    def session(self, name: str, **query: Unpack[MessageQuery]) -> SessionView:
        """Return a conversation: its newest messages and its notes."""
        return self._run(self._client.session(name, **query))


async def _next(events: AsyncGenerator[RunEvent]) -> RunEvent | None:
    return await anext(events, None)


async def _closed(events: AsyncGenerator[RunEvent]) -> None:
    await events.aclose()
