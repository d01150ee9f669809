"""The operations of the HTTP API as values: what is sent, what comes back, and whether it may be sent twice."""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypedDict, TypeVar
from urllib.parse import quote, urlencode

from msgspec import Struct

from remit.documents.api_approvals import (
    AnswerGiven,
    AnswerOutcomes,
    ApprovalAnswer,
    ApprovalDetail,
    ApprovalList,
    NamedAnswer,
    SeveralAnswers,
)
from remit.documents.api_delegations import AgentList, Handle, PublicCard, Reason
from remit.documents.api_runs import PublicRunTree, RunAct, RunCancel, RunList, RunRetry
from remit.documents.api_sessions import SessionList, SessionView
from remit.protocol.codec import encode
from remit.protocol.envelope import Response
from remit.protocol.submission import AskOptions, Submission

T = TypeVar("T")


class SubmissionOptions(AskOptions, total=False):
    """The options of a request besides agent and text."""

    user: str | None
    """The user to ask for; None: the only one of the client."""


class RunsQuery(TypedDict, total=False):
    """What runs are searched for; lists are separated by commas."""

    q: str
    """A part of the id, objective, answer or error message."""
    user: str
    """The user of the run."""
    agent: str
    """The agent that was asked first."""
    state: str
    """Whether it is running or finished."""
    status: str
    """How it ended."""
    code: str
    """The code of its error."""
    correlation: str
    """The id that its caller gave it."""
    since_ms: int
    """Started at or after this time, in milliseconds since 1970."""
    until_ms: int
    """Started before this time."""
    before: str
    """The `next` of the page before."""
    limit: int
    """How many at most."""


class ApprovalQuery(TypedDict, total=False):
    """How much is listed of what was answered."""

    answered: int
    """How many answered questions are listed besides those that wait."""


class SessionQuery(TypedDict, total=False):
    """Which conversations are listed."""

    q: str
    """A part of the last objective or of the id."""
    user: str
    """The user of the conversation."""
    agent: str
    """The agent of the conversation."""
    since: int
    """Changed at or after this time, in milliseconds since 1970."""
    until: int
    """Changed before this time."""
    before: int
    """The `next` of the page before."""
    limit: int
    """How many at most."""


class MessageQuery(TypedDict, total=False):
    """Which messages of a conversation are listed."""

    before: int
    """The `next` of the page before."""
    limit: int
    """How many at most."""


class EventQuery(TypedDict, total=False):
    """Which records are followed."""

    run: str
    """The run whose records are followed; without it, those of all runs."""
    kinds: str
    """Separated by commas."""


class ApiCall(Struct, Generic[T], frozen=True, kw_only=True):
    """One request to the API."""

    method: str
    operation: str
    """The path, with names in braces, as the OpenAPI document has it."""
    path: str
    kind: Any
    """The type of the response, for which T stands."""
    body: bytes | None = None
    headers: dict[str, str] = {}
    repeatable: bool = False
    """Whether sending it twice has the effect of sending it once."""


def submission(agent: str, text: str, options: SubmissionOptions, request_id: str) -> Submission:
    """Return the request for an agent."""
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    given.pop("request_id", None)
    for name in ("tools", "targets"):
        if name in given:
            given[name] = frozenset(given[name])
    if "files" in given:
        given["files"] = tuple(given["files"])
    return Submission(target=agent, objective=text, id=request_id, **given)


def ask(sent: Submission, *, wait: bool) -> ApiCall[Response | Handle]:
    """Ask an agent; without *wait*, for a handle."""
    headers = {} if wait else {"prefer": "respond-async"}
    # The id makes it repeatable: the same one is carried out once.
    return _call("POST", "/v1/delegations", Response | Handle, body=sent, headers=headers, repeatable=True)


def look(name: str) -> ApiCall[Response | Handle]:
    """Look for the outcome of a delegation."""
    return _call("GET", "/v1/delegations/{id}", Response | Handle, id=name)


def cancel(name: str, reason: str) -> ApiCall[Response | Handle]:
    """Cancel a delegation; what is cancelled stays so."""
    return _call(
        "POST", "/v1/delegations/{id}/cancel", Response | Handle, body=Reason(reason=reason), repeatable=True, id=name
    )


def agents() -> ApiCall[AgentList]:
    """List the agents."""
    return _call("GET", "/v1/agents", AgentList)


def agent(name: str) -> ApiCall[PublicCard]:
    """Look at one agent."""
    return _call("GET", "/v1/agents/{name}", PublicCard, name=name)


def runs(query: RunsQuery) -> ApiCall[RunList]:
    """List runs."""
    return _call("GET", "/v1/runs", RunList, query=query)


def run(name: str) -> ApiCall[PublicRunTree]:
    """Look at the delegations of a run."""
    return _call("GET", "/v1/runs/{run}", PublicRunTree, run=name)


def cancel_run(name: str, delegation: str | None, reason: str) -> ApiCall[RunAct]:
    """Cancel a run, or a part of it."""
    body = RunCancel(delegation=delegation, reason=reason)
    return _call("POST", "/v1/runs/{run}/cancel", RunAct, body=body, repeatable=True, run=name)


def retry_run(name: str, max_tokens: int | None, deadline_ms: int | None) -> ApiCall[RunAct]:
    """Repeat a run as a new one; sent twice, it would be two new ones."""
    body = RunRetry(max_tokens=max_tokens, deadline_ms=deadline_ms)
    return _call("POST", "/v1/runs/{run}/retry", RunAct, body=body, run=name)


def resume_run(name: str) -> ApiCall[RunAct]:
    """Resume a run whose process is gone; once it runs, there is nothing to resume."""
    return _call("POST", "/v1/runs/{run}/resume", RunAct, repeatable=True, run=name)


def approvals(query: ApprovalQuery) -> ApiCall[ApprovalList]:
    """List questions and answers."""
    return _call("GET", "/v1/approvals", ApprovalList, query=query)


def approval(name: str) -> ApiCall[ApprovalDetail]:
    """Look at one question."""
    return _call("GET", "/v1/approvals/{id}", ApprovalDetail, id=name)


def answer(name: str, said: ApprovalAnswer) -> ApiCall[AnswerGiven]:
    """Answer a question; a second answer is refused, whoever gave the first."""
    return _call("POST", "/v1/approvals/{id}", AnswerGiven, body=said, id=name)


def answer_several(said: Sequence[NamedAnswer]) -> ApiCall[AnswerOutcomes]:
    """Answer several questions."""
    return _call("POST", "/v1/approvals", AnswerOutcomes, body=SeveralAnswers(answers=tuple(said)))


def sessions(query: SessionQuery) -> ApiCall[SessionList]:
    """List conversations."""
    return _call("GET", "/v1/sessions", SessionList, query=query)


def session(name: str, query: MessageQuery) -> ApiCall[SessionView]:
    """Look at one conversation."""
    return _call("GET", "/v1/sessions/{id}", SessionView, query=query, id=name)


def events(name: str) -> ApiCall[None]:
    """Follow the events of a delegation."""
    return _call("GET", "/v1/delegations/{id}/events", None, id=name)


def all_events(query: EventQuery) -> ApiCall[None]:
    """Follow the records of all runs."""
    return _call("GET", "/v1/events", None, query=query)


def _call(
    method: str,
    operation: str,
    kind: Any,
    *,
    body: Struct | None = None,
    query: Mapping[str, object] | None = None,
    headers: dict[str, str] | None = None,
    repeatable: bool = False,
    **names: str,
) -> ApiCall[Any]:
    path = operation.format_map({name: quote(value, safe="") for name, value in names.items()})
    given = {name: str(value) for name, value in (query or {}).items() if value not in (None, "")}
    return ApiCall(
        method=method,
        operation=operation,
        path=f"{path}?{urlencode(given)}" if given else path,
        kind=kind,
        body=None if body is None else encode(body),
        headers=headers or {},
        repeatable=repeatable or method == "GET",
    )
