"""Runs as the HTTP API shows them, and the acts on a run."""

from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct

from remit.protocol.errors import Code
from remit.protocol.lifecycle import Status
from remit.protocol.records import Delegation
from remit.protocol.remit import MAX_INTEGER, Name
from remit_server.documents.delegation_table import DelegationTable

RunStanding = Literal["waiting", "running", "silent", "finished"]
STANDINGS: tuple[str, ...] = get_args(RunStanding)
AtLeastOne = Annotated[int, Meta(ge=1, le=MAX_INTEGER)]


class PublicRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run in one line."""

    run: str
    user: str
    agent: str
    objective: str
    started_ms: int
    state: RunStanding
    """`silent`: the process that executes it has shown no sign of life for some seconds."""
    status: Status | None = None
    """How it ended."""
    code: Code | None = None
    """The error, if it did not succeed."""
    preview: str = ""
    """The first 200 characters of its answer."""
    tokens: int | None = None
    """Tokens spent, once it has ended."""
    duration_ms: int | None = None
    """How long it took, once it has ended."""
    changed_ms: int = 0
    """When it ended, or when it began if it has not ended."""
    questions: int = 0
    """Questions to people that are not answered yet."""
    session: str = ""
    via: str = ""
    """The hub or client that sent it; empty: it started here."""
    correlation: str = ""
    """The correlation id that links it to other runs; else its own id."""


class RunList(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Runs, newest first."""

    runs: tuple[PublicRun, ...]
    searched: int = 0
    """How many runs were read to find these."""
    next: str | None = None
    """The value of `before` for the next page; absent at the end. A page may hold fewer runs than `limit`, or none, and
    still have a next one: only so many are read for each.
    """


class PublicRunTree(Struct, frozen=True, kw_only=True):
    """The delegations of a run, and the outcome of each."""

    run: str
    delegations: tuple[Delegation, ...]


class RunTable(Struct, frozen=True, kw_only=True):
    """A run with its delegations in columns."""

    run: PublicRun
    seq: int
    """The number of the newest record that is counted: the value of `after` for the changes since."""
    now_ms: int
    """The time at the server, in milliseconds since 1970."""
    count: int
    """The number of delegations of the run, also of those that did not change."""
    currency: str
    """The currency of all costs, which are estimates."""
    delegations: DelegationTable
    """With `after`, only those that changed."""


class RunCancel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be cancelled, and why."""

    delegation: Name | None = None
    """The path of a delegation, to cancel it and everything below it; None: the whole run."""
    reason: str = ""
    """The reason. It is recorded."""


class RunRetry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the new run may spend; None: what the first one had. It is never more than the hub grants."""

    deadline_ms: AtLeastOne | None = None
    max_tokens: AtLeastOne | None = None


class RunAct(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an act on a run has led to, without any text of the run."""

    run: str
    """The run; after a retry, the new run."""
    outcome: Literal["cancelled", "asked", "over", "retried", "refused", "resuming", "running", "waiting"]
    """`asked`: the process that executes the run has not confirmed yet. `over`: it had ended before. `refused`: the
    retry did not start. `running`, `waiting`: there is nothing to resume.
    """
    delegation: str = ""
    """The delegation that was cancelled, if it was not the whole run."""
    status: Status | None = None
    """How the run, or the delegation, ended."""
    code: Code | None = None
    """Why, if it did not succeed."""


class RunResume(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a request to resume a run, which says nothing more."""
