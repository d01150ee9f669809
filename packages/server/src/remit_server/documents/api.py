"""The declaration of an operation of the HTTP API; those that clients and browsers call."""

import re
from functools import cache
from typing import Annotated, Any, Literal, TypedDict, get_args, get_type_hints

from msgspec import Struct
from msgspec.inspect import is_struct_type
from msgspec.structs import fields, replace

from remit.policy.reception import Permission
from remit.protocol.envelope import Response
from remit.protocol.errors import Code
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind
from remit.protocol.submission import Submission
from remit_server.documents.api_values import (
    STANDINGS,
    AgentList,
    AnswerGiven,
    AnswerOutcomes,
    ApprovalAnswer,
    ApprovalDetail,
    ApprovalList,
    FailureBody,
    Handle,
    PublicCard,
    PublicRunTree,
    Reason,
    RevealAsked,
    RevealedQuestion,
    RunAct,
    RunCancel,
    RunList,
    RunResume,
    RunRetry,
    SessionList,
    SessionView,
    SeveralAnswers,
)

JSON = "application/json"
EVENTS = "text/event-stream"


class Parameter(Struct, frozen=True, kw_only=True):
    """A parameter of an operation, in the query string unless *place* says otherwise."""

    name: str = ""
    """In a query type, that of the field."""
    meaning: str
    place: Literal["query", "path", "header"] = "query"
    kind: Literal["string", "integer"] = "string"
    required: bool = False
    one_of: tuple[str, ...] = ()
    """The values that it can have; empty: any."""
    some_of: tuple[str, ...] = ()
    """The words that it can have, separated by commas; empty: any."""
    pattern: str = ""


class ApiOperation(Struct, frozen=True, kw_only=True):
    """One operation: the router, the rights, the OpenAPI document and the client go by this declaration."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE", "*"]
    """`*`: any method."""
    path: str
    """With the names of its variable parts in braces; `{name:path}` may hold slashes."""
    name: str
    """The operation id, unique in the document."""
    summary: str
    description: str = ""
    takes: Any = None
    """The type of the request body; None: it has none."""
    answer: Any = None
    """The type of the response, or of the data of each event of a stream; None: it is no JSON document."""
    media: str = JSON
    """The content type of the response."""
    status: int = 200
    also: tuple[tuple[int, Any], ...] = ()
    """More responses that are expected: status and type."""
    failure: Any = FailureBody
    """The type that reports a failure; None: the operation cannot fail."""
    parameters: tuple[Parameter, ...] = ()
    is_lenient: bool = False
    """Whether unknown parameters in the query string are ignored; otherwise a GET with one is refused."""
    is_large: bool = False
    """Whether its responses may be large: they are encoded beside the event loop, and compressed for who accepts it."""
    is_repeatable: bool = False
    """Whether sending it twice has the effect of sending it once; so it is for every GET."""
    anyone: bool = False
    """Whether unauthenticated requests are allowed. If not, known senders may use it for what is their own."""
    needs: Permission | None = None
    """The permission that a sender needs to use it at all."""
    others: Permission | None = None
    """The permission that a sender needs to use it for what belongs to others."""

    @property
    def public_path(self) -> str:
        """The path as it is shown: what its parts may hold is for the router alone."""
        return re.sub(r":\w+}", "}", self.path)

    @property
    def query(self) -> tuple[str, ...]:
        """The names of the parameters in the query string."""
        return tuple(each.name for each in self.parameters if each.place == "query")

    @property
    def takes_nothing(self) -> bool:
        """Whether a request may have no body."""
        return self.takes is None or (
            is_struct_type(self.takes) and not any(each.required for each in fields(self.takes))
        )


@cache
def parameters_of(query: type) -> tuple[Parameter, ...]:
    """Return the parameters that a query type declares: a `TypedDict` whose fields carry a `Parameter`."""
    hints = get_type_hints(query, include_extras=True).items()
    return tuple(_parameter(name, *get_args(hint)) for name, hint in hints)


def _parameter(name: str, kind: Any, declared: Parameter) -> Parameter:
    one_of = get_args(kind)  # of a Literal
    return replace(declared, name=name, kind="integer" if kind is int else "string", one_of=one_of)


_READ, _CONTROL = Permission.READ, Permission.CONTROL
_DELEGATION = Parameter(
    name="id",
    place="path",
    meaning="The id of the run, or the sender's own request id while the server remembers it.",
)
_QUESTION = Parameter(name="id", place="path", meaning="The id of the question.")
AGENT = Parameter(name="name", place="path", meaning="The agent's name.")
RUN = Parameter(name="run", place="path", meaning="The run.")
_LAST_EVENT = Parameter(
    name="Last-Event-ID", place="header", meaning="The number of the last event received.", pattern="^[0-9]{1,18}$"
)
KINDS = tuple(kind for kind in Kind if kind is not Kind.DELTA)
"""The kinds of records; deltas are never stored."""
StreamForm = Literal["records", "runs"]
"""What the stream of all runs can consist of."""

# ── queries, which the server reads and the client sends ──────────────────────────────────────────────────────────────

PageSize = Annotated[int, Parameter(meaning="Maximum number of results.")]


class PageQuery(TypedDict, total=False):
    """Which page of a list is wanted."""

    before: Annotated[int, Parameter(meaning="The `next` of the page before.")]
    limit: PageSize


class TimeQuery(TypedDict, total=False):
    """The time of what is wanted."""

    since: Annotated[int, Parameter(meaning="Only what happened at this time or later, in milliseconds since 1970.")]
    until: Annotated[int, Parameter(meaning="Only what happened at this time or earlier, in milliseconds since 1970.")]


class RunsQuery(TypedDict, total=False):
    """What runs are searched for; lists are separated by commas."""

    q: Annotated[str, Parameter(meaning="Only runs with this text in id, objective, answer or error message.")]
    user: Annotated[str, Parameter(meaning="Only runs of this user.")]
    agent: Annotated[str, Parameter(meaning="Only runs that this agent was asked first.")]
    state: Annotated[str, Parameter(meaning="Only runs in one of these states.", some_of=STANDINGS)]
    status: Annotated[str, Parameter(meaning="Only runs that ended in one of these ways.", some_of=tuple(Status))]
    code: Annotated[str, Parameter(meaning="Only runs that ended with one of these error codes.", some_of=tuple(Code))]
    correlation: Annotated[str, Parameter(meaning="Only runs with this correlation id.")]
    since_ms: Annotated[int, Parameter(meaning="Only runs that started at this time or later (ms since 1970).")]
    until_ms: Annotated[int, Parameter(meaning="Only runs that started before this time (ms since 1970).")]
    before: Annotated[str, Parameter(meaning="Only runs that were submitted before this run: `next` of the last page.")]
    limit: PageSize


class ApprovalQuery(TypedDict, total=False):
    """How much is listed of what was answered."""

    answered: Annotated[int, Parameter(meaning="Maximum number of questions that were answered lately.")]


class SessionQuery(TimeQuery, PageQuery, total=False):
    """Which conversations are listed."""

    user: Annotated[str, Parameter(meaning="Only conversations of this user.")]
    agent: Annotated[str, Parameter(meaning="Only conversations with this agent.")]
    q: Annotated[str, Parameter(meaning="Only those whose last objective or id contains this text.")]


class EventQuery(TypedDict, total=False):
    """Which records are followed."""

    run: Annotated[str, Parameter(meaning="Only records of this run.")]
    kinds: Annotated[str, Parameter(meaning="Only records of these kinds.", some_of=KINDS)]


class StreamQuery(EventQuery, total=False):
    """Which records are followed, from where on, and in which form."""

    after: Annotated[int, Parameter(meaning="Begin after this record; without it, with what comes from now on.")]
    form: Annotated[StreamForm, Parameter(meaning="`records`, or `runs` for the runs that changed.")]


# ── delegations ───────────────────────────────────────────────────────────────────────────────────────────────────────

ASK = ApiOperation(
    method="POST",
    path="/v1/delegations",
    name="ask",
    summary="Ask an agent.",
    description="With `Accept: text/event-stream` the answer is a stream of events. The headers `X-Agent-Request-ID`, "
    "`X-Agent-Origin`, `X-Agent-Depth` and `X-Agent-Parent-Session` may be sent too; then each must agree with the "
    "envelope.",
    takes=Submission,
    answer=Response,
    also=((202, Handle),),
    parameters=(
        Parameter(
            name="Prefer", place="header", meaning="`respond-async`: answer with a handle once the request is stored."
        ),
        Parameter(
            name="traceparent",
            place="header",
            meaning="The trace of the request, as W3C Trace Context defines it.",
        ),
    ),
    is_repeatable=True,  # by the id of the request: the same one is carried out once
)
LOOK = ApiOperation(
    method="GET",
    path="/v1/delegations/{id}",
    name="look",
    summary="Get the outcome or the state of a delegation.",
    answer=Response,
    also=((202, Handle),),
    parameters=(_DELEGATION,),
    is_lenient=True,
    others=_READ,
)
READ_ALONG = ApiOperation(
    method="GET",
    path="/v1/delegations/{id}/events",
    name="read_along",
    summary="Follow the events of a delegation, from its start or after an event.",
    media=EVENTS,
    parameters=(_DELEGATION, _LAST_EVENT),
    others=_READ,
)
CANCEL = ApiOperation(
    method="POST",
    path="/v1/delegations/{id}/cancel",
    name="cancel",
    summary="Cancel a delegation and everything below it.",
    takes=Reason,
    answer=Response,
    also=((202, Handle),),
    parameters=(_DELEGATION,),
    is_repeatable=True,  # what is cancelled stays so
    others=_CONTROL,
)

# ── agents, runs ──────────────────────────────────────────────────────────────────────────────────────────────────────

AGENTS = ApiOperation(
    method="GET",
    path="/v1/agents",
    name="agents",
    summary="The agents that the client may ask.",
    answer=AgentList,
    is_lenient=True,
)
AGENT_CARD = ApiOperation(
    method="GET",
    path="/v1/agents/{name}",
    name="agent",
    summary="One agent.",
    answer=PublicCard,
    parameters=(AGENT,),
    is_lenient=True,
)
RUNS = ApiOperation(
    method="GET",
    path="/v1/runs",
    name="runs",
    summary="Search the runs, newest first.",
    description="The store selects by user, agent, time and correlation. For the rest at most 2,000 runs are read for "
    "each request: a page may hold few or none, and `next` says where to go on.",
    answer=RunList,
    parameters=parameters_of(RunsQuery),
    is_large=True,
    others=_READ,
)
RUN_TREE = ApiOperation(
    method="GET",
    path="/v1/runs/{run}",
    name="run",
    summary="The delegations of a run.",
    answer=PublicRunTree,
    parameters=(RUN,),
    is_lenient=True,
    is_large=True,
    others=_READ,
)
CANCEL_RUN = ApiOperation(
    method="POST",
    path="/v1/runs/{run}/cancel",
    name="cancel_run",
    summary="Cancel a run, or one delegation of it and everything below.",
    takes=RunCancel,
    answer=RunAct,
    also=((202, RunAct), (409, FailureBody)),
    parameters=(RUN,),
    is_repeatable=True,
    others=_CONTROL,
)
RETRY_RUN = ApiOperation(
    method="POST",
    path="/v1/runs/{run}/retry",
    name="retry_run",
    summary="Repeat a run that did not succeed, as a new run.",
    takes=RunRetry,
    answer=RunAct,
    also=((202, RunAct), (409, FailureBody)),
    parameters=(RUN,),
    others=_CONTROL,
)
RESUME_RUN = ApiOperation(
    method="POST",
    path="/v1/runs/{run}/resume",
    name="resume_run",
    summary="Resume a run whose process is gone, without waiting.",
    takes=RunResume,
    answer=RunAct,
    also=((202, RunAct), (409, FailureBody)),
    parameters=(RUN,),
    is_repeatable=True,  # once it runs, there is nothing to resume
    others=_CONTROL,
)
ALL_EVENTS = ApiOperation(
    method="GET",
    path="/v1/events",
    name="events",
    summary="Follow the records of all runs.",
    description="The first event is `ready`. Each record is sent once, in order, whichever process has committed it. "
    "With `form=runs` there is an event `run` for each run that changed, and `gap` if too many did.",
    media=EVENTS,
    parameters=(*parameters_of(StreamQuery), _LAST_EVENT),
    others=_READ,
)

# ── approvals, conversations ──────────────────────────────────────────────────────────────────────────────────────────

APPROVALS = ApiOperation(
    method="GET",
    path="/v1/approvals",
    name="approvals",
    summary="What waits for a person, and what was answered lately.",
    answer=ApprovalList,
    parameters=parameters_of(ApprovalQuery),
    others=_READ,
)
ANSWER_SEVERAL = ApiOperation(
    method="POST",
    path="/v1/approvals",
    name="answer_several",
    summary="Answer several questions; each has an outcome of its own.",
    takes=SeveralAnswers,
    answer=AnswerOutcomes,
    others=_CONTROL,
)
APPROVAL = ApiOperation(
    method="GET",
    path="/v1/approvals/{id}",
    name="approval",
    summary="A question with its request.",
    answer=ApprovalDetail,
    parameters=(_QUESTION,),
    others=_READ,
)
ANSWER = ApiOperation(
    method="POST",
    path="/v1/approvals/{id}",
    name="answer",
    summary="Answer a question.",
    description="It is refused if it was answered before, or is about another request by now.",
    takes=ApprovalAnswer,
    answer=AnswerGiven,
    also=((409, FailureBody),),
    parameters=(_QUESTION,),
    others=_CONTROL,
)
REVEAL = ApiOperation(
    method="POST",
    path="/v1/approvals/{id}/reveal",
    name="reveal",
    summary="Show a pending question with personal values in clear.",
    description="The record names the tokens, and who read what they stand for, before the reply is sent.",
    takes=RevealAsked,
    answer=RevealedQuestion,
    also=((409, FailureBody),),
    parameters=(_QUESTION,),
    needs=Permission.REVEAL,
    others=_READ,
)
SESSIONS = ApiOperation(
    method="GET",
    path="/v1/sessions",
    name="sessions",
    summary="Conversations, the one with the newest request first.",
    answer=SessionList,
    parameters=parameters_of(SessionQuery),
    others=_READ,
)
SESSION = ApiOperation(
    method="GET",
    path="/v1/sessions/{id}",
    name="session",
    summary="A conversation: its newest messages and its notes.",
    answer=SessionView,
    parameters=(Parameter(name="id", place="path", meaning="The session."), *parameters_of(PageQuery)),
    others=_READ,
)

# ── sessions of browsers, where a server serves the console ───────────────────────────────────────────────────────────


class ConsoleUser(Struct, frozen=True, kw_only=True):
    """The client of the server that a browser is signed in as."""

    name: str
    permissions: tuple[str, ...]
    may_approve: bool
    """Whether it may answer questions to a person."""


class ConsoleInfo(Struct, frozen=True, kw_only=True):
    """What this server offers to a browser."""

    version: str
    views: tuple[str, ...]
    """The parts that are served here: `operator`, `chat`."""
    who: ConsoleUser
    page_key: str
    """The value of the header `x-remit-page-key` that every request of the page needs; empty but at its sign-in."""
    team: str
    currency: str = "USD"
    """The currency of all costs, which are estimates."""


class SignIn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The token of a client, typed into the sign-in page."""

    token: str


class SignedOut(Struct, frozen=True, kw_only=True):
    """Whether a session has ended."""

    signed_out: bool


class OneTimeLink(Struct, frozen=True, kw_only=True):
    """A link that signs in one browser, once."""

    url: str
    expires_in_ms: int


CONSOLE = ApiOperation(
    method="GET",
    path="/v1/console",
    name="console",
    summary="What is served here, and who is signed in.",
    answer=ConsoleInfo,
)
SIGN_IN = ApiOperation(
    method="POST",
    path="/v1/console/session",
    name="sign_in",
    summary="Sign in a browser by the token of a client: sets a cookie.",
    takes=SignIn,
    answer=ConsoleInfo,
    status=201,
    anyone=True,
)
SIGN_OUT = ApiOperation(
    method="DELETE",
    path="/v1/console/session",
    name="sign_out",
    summary="End the session of the browser.",
    answer=SignedOut,
)
ENTER = ApiOperation(
    method="GET",
    path="/v1/console/enter",
    name="enter",
    summary="Sign in a browser by a one-time link: sets a cookie and redirects.",
    media="",
    status=303,
    parameters=(Parameter(name="code", meaning="The code in the link.", required=True),),
    anyone=True,
)
LINKS = ApiOperation(
    method="POST",
    path="/v1/console/links",
    name="make_link",
    summary="Make a link that signs in one browser, once; only with a token.",
    answer=OneTimeLink,
    status=201,
)

BROWSER_OPERATIONS = (CONSOLE, SIGN_IN, SIGN_OUT, ENTER, LINKS)
