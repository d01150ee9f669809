"""What the client sends: the options of a request, the queries, and one call of an operation of the HTTP API."""

from collections.abc import Mapping
from typing import Any, TypedDict
from urllib.parse import quote, urlencode

from msgspec import Struct

from remit.protocol.codec import encode
from remit.protocol.submission import AskOptions, Submission
from remit_server.documents.api import ApiOperation


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


class ApiCall(Struct, frozen=True, kw_only=True):
    """One request to the API."""

    operation: ApiOperation
    path: str
    body: bytes | None = None
    headers: dict[str, str] = {}

    @property
    def is_repeatable(self) -> bool:
        """Whether sending it twice has the effect of sending it once."""
        return self.operation.is_repeatable or self.operation.method == "GET"


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


def call_of(
    operation: ApiOperation,
    *,
    body: Struct | None = None,
    query: Mapping[str, object] | None = None,
    headers: dict[str, str] | None = None,
    **names: str,
) -> ApiCall:
    """Return a request for an operation; *names* are the variable parts of its path."""
    path = operation.path.format_map({name: quote(value, safe="") for name, value in names.items()})
    given = {name: str(value) for name, value in (query or {}).items() if value not in (None, "")}
    return ApiCall(
        operation=operation,
        path=f"{path}?{urlencode(given)}" if given else path,
        body=None if body is None else encode(body),
        headers=headers or {},
    )
