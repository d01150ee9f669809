"""The arguments and results of the MCP tools: as a host validates them, and as a model reads them."""

from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from remit.ports import Question, RunSummary
from remit.protocol.codec import convert, text_of
from remit.protocol.envelope import Artifact, Json, Response
from remit.protocol.errors import Code, Fault, RemitError, duration, fault
from remit.protocol.files import File
from remit.protocol.lifecycle import Status
from remit.protocol.remit import Count, Name
from remit.runtime.schemas import schema_for_models
from remit.words.failures import plain_failure, with_plain_summary
from remit_server.documents.api_values import FailureBody, PublicCard
from remit_server.documents.common import shown_as

T = TypeVar("T")

Seconds = Annotated[float, Meta(ge=0, le=86_400)]


# ── what they take ────────────────────────────────────────────────────────────────────────────────────────────────────


class DelegateTask(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of `delegate_task`."""

    agent: Annotated[Name, Meta(description="The agent to ask, as `list_agents` names it.")]
    task: Annotated[
        str, Meta(min_length=1, description="What it should do, in full: it sees nothing of this conversation.")
    ]
    input: Annotated[Json, Meta(description="Data for the task, if there is any: any JSON value.")] = None
    capability: Annotated[
        Name | None, Meta(description="Which of the agent's capabilities is wanted, by its code; usually left out.")
    ] = None
    session: Annotated[
        Name | None, Meta(description="The session of an earlier answer, to go on with that conversation.")
    ] = None
    deadline_seconds: Annotated[
        Annotated[float, Meta(gt=0, le=86_400)] | None,
        Meta(description="How long the work may take. Default: as long as the team allows."),
    ] = None
    max_tokens: Annotated[
        Count | None, Meta(description="What all agents together may spend. Default: what the team allows.")
    ] = None
    may_delegate: Annotated[bool, Meta(description="Whether the agent may ask others in turn.")] = True
    request_id: Annotated[
        Name | None,
        Meta(
            description="An id of your own. The same id with the same content is carried out only once, goes on if the "
            "connection breaks, and can be given to `delegation_status`."
        ),
    ] = None
    wait_seconds: Annotated[
        Seconds | None,
        Meta(
            description="Return an id if there is no result after this time; 0: at once. Default: wait for the result."
        ),
    ] = None


class ListAgents(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of `list_agents`: none."""


class DelegationStatus(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of `delegation_status`."""

    id: Annotated[
        Name | None,
        Meta(
            description="The `id` that `delegate_task` gave, or your `request_id`; without it, the newest are listed."
        ),
    ] = None
    wait_seconds: Annotated[Seconds, Meta(description="How long to wait for the result.")] = 0


class DelegationCancel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of `delegation_cancel`."""

    id: Annotated[Name, Meta(description="The `id` that `delegate_task` gave, or your `request_id`.")]
    reason: Annotated[str, Meta(max_length=200, description="The reason; it is recorded.")] = ""


def read_arguments(arguments: dict[str, Any] | None, kind: type[T]) -> T:
    """Return the arguments of a tool, or raise a `RemitError` that names every invalid one."""
    try:
        return convert(arguments or {}, kind)
    except RemitError as error:
        problems = error.fault.problems
        named = ", ".join(problem.path.removeprefix("$.") for problem in problems)
        raise RemitError(
            fault(Code.INPUT_VALIDATION_FAILED, f"invalid arguments: {named}", problems=problems)
        ) from error


# ── what they give ────────────────────────────────────────────────────────────────────────────────────────────────────


class McpQuestion(Struct, frozen=True, kw_only=True):
    """The question to a person before the work continues."""

    id: str
    text: str
    agent: str
    """The agent to be called if the person approves."""
    objective: str
    expires_ms: int
    """The deadline of the answer, in milliseconds since 1970."""
    answer_with: str
    """The command by which a person answers it."""


class McpFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file of an answer; its content is in a content block of the tool's result."""

    name: str
    media_type: str
    size: int = 0
    url: str = ""


class McpDelegation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state or outcome of a delegation."""

    id: str
    """The id for `delegation_status` and `delegation_cancel`."""
    state: Literal["running", "waiting", "finished"]
    agent: str = ""
    task: str = ""
    """The task, where several are listed."""
    status: Status | None = None
    result: Json = None
    summary: str = ""
    confidence: float | None = None
    session: str = ""
    """The id of its conversation: give it to `delegate_task` to continue."""
    requires_followup: bool = False
    unfinished: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    tokens_used: int = 0
    duration_ms: int = 0
    files: tuple[McpFile, ...] = ()
    question: McpQuestion | None = None
    fault: Fault | None = None


class McpDelegationList(Struct, frozen=True, kw_only=True):
    """The newest delegations first."""

    delegations: tuple[McpDelegation, ...]


class McpAgentList(Struct, frozen=True, kw_only=True):
    """The agents that can be asked."""

    agents: tuple[PublicCard, ...]


class McpToolResult(Struct, frozen=True, kw_only=True):
    """The result of a tool: a text for the model, the same as data for programs, and whether it is an error."""

    text: str
    data: Struct
    is_error: bool = False
    artifacts: tuple[Artifact, ...] = ()
    """What belongs to the answer besides its text."""
    run: str = ""
    """The run whose artifacts they are."""
    files: tuple[File, ...] = ()
    """Files that follow as content blocks."""


def ended_result(response: Response) -> McpToolResult:
    """Return the outcome of a delegation as a tool result."""
    response = with_plain_summary(response.outward())
    why = response.fault
    data = shown_as(
        McpDelegation,
        response,
        id=response.run,
        state="finished",
        agent=response.target,
        task="",
        session=response.session or "",
        tokens_used=response.usage.total,
        files=tuple(shown_as(McpFile, each, url=each.url or "") for each in response.files),
        question=None,
    )
    lines = [] if response.result is None else [text_of(response.result)]
    if why is not None:
        lines.append(worded(why))
    if response.unfinished:
        lines.append(f"Not done: {'; '.join(response.unfinished)}.")
    if response.requires_followup and response.session:
        lines.append(f"It asks a question: answer with delegate_task and session {response.session}.")
    if response.files:
        lines.append(f"Files: {', '.join(f'{each.name} ({each.media_type})' for each in response.files)}.")
    text = "\n\n".join(lines) or f"{response.target} finished without a result."
    return McpToolResult(
        text=text,
        data=data,
        is_error=not response.ok,
        artifacts=response.artifacts,
        run=response.run,
        files=response.files,
    )


def cancelled(response: Response) -> McpToolResult:
    """Return the outcome of a cancelled delegation: being cancelled is not an error here."""
    outcome = ended_result(response)
    return outcome if response.status is not Status.CANCELLED else replace(outcome, is_error=False)


def under_way(run: str, agent: str) -> McpToolResult:
    """Return that a delegation is running; *agent* is empty if it is not known."""
    text = f"{agent or 'It'} is still running. Get its result with delegation_status, id {run}."
    return McpToolResult(text=text, data=McpDelegation(id=run, state="running", agent=agent))


def waiting(run: str, agent: str, question: Question) -> McpToolResult:
    """Return that a delegation waits for approval, and how a person can answer."""
    view = _question_view(question)
    text = (
        f"Waiting for approval: {question.text}\n"
        f"Tell the user. The operator of this hub answers with:\n  {view.answer_with}\n"
        f"After that, delegation_status with id {run} returns the result. You cannot answer it yourself."
    )
    return McpToolResult(text=text, data=McpDelegation(id=run, state="waiting", agent=agent, question=view))


def _question_view(question: Question) -> McpQuestion:
    request = question.request
    return McpQuestion(
        id=question.id,
        text=question.text,
        agent=request.target,
        objective=request.objective,
        expires_ms=question.expires_ms,
        answer_with=f"remit pending approve {question.id}   (or: remit pending reject {question.id})",
    )


def delegations_result(runs: list[RunSummary], questions: dict[str, list[Question]]) -> McpToolResult:
    """Return the newest delegations, one per line, each with the open *questions* about it."""
    each = tuple(
        McpDelegation(
            id=summary.run,
            state="finished"
            if summary.response
            else "waiting"
            if summary.run in questions or summary.state == "waiting"
            else "running",
            agent=summary.agent,
            status=summary.response.status if summary.response else None,
            task=summary.objective[:200],
            question=_question_view(questions[summary.run][0]) if summary.run in questions else None,
        )
        for summary in runs
    )
    lines: list[str] = []
    for one in each:
        lines.append(f"{one.id}  {one.status or one.state}  {one.agent}: {one.task}")
        if one.question is not None:
            lines.append(f"  A person is asked: {' '.join(one.question.text.split())}  {one.question.answer_with}")
    return McpToolResult(text="\n".join(lines) or "No delegations yet.", data=McpDelegationList(delegations=each))


def known(cards: list[PublicCard]) -> McpToolResult:
    """Return the available agents, and what they are for."""
    lines: list[str] = []
    for card in cards:
        lines.append(f"- {card.name}: {' '.join(card.description.split())}".removesuffix(": "))
        lines += [f"  - {each.code}: {' '.join(each.description.split())}" for each in card.capabilities]
    return McpToolResult(
        text="\n".join(lines) or "No agents are available to you.", data=McpAgentList(agents=tuple(cards))
    )


def failed(why: Fault) -> McpToolResult:
    """Return a failed call."""
    why = why.outward()
    return McpToolResult(text=worded(why), data=FailureBody(fault=why, summary=plain_failure(why)), is_error=True)


def worded(why: Fault) -> str:
    """Return a fault as a model reads it: what is wrong, where, and what to do."""
    lines = [f"{why.code}: {why.message}", *(f"- {each.path}: {each.message}" for each in why.problems)]
    if why.retry_after_ms is not None and (wait := duration(why.retry_after_ms)) not in why.suggestion:
        lines.append(f"Try again in {wait}.")
    return "\n".join([*lines, why.suggestion]).strip()


# ── the tools ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class McpToolSpec(Struct, frozen=True, kw_only=True):
    """A tool as it is described to a host."""

    name: str
    title: str
    description: str
    takes: type[Struct]
    reads_only: bool = False

    @property
    def input_schema(self) -> dict[str, Any]:
        return schema_for_models(self.takes)


FORMS: tuple[McpToolSpec, ...] = (
    McpToolSpec(
        name="delegate_task",
        title="Ask an agent",
        description="Ask an agent to do a task, and get its result. Call list_agents first to see the agents. Long "
        "work goes on if you give `wait_seconds` or your host stops waiting: delegation_status gets its end.",
        takes=DelegateTask,
    ),
    McpToolSpec(
        name="list_agents",
        title="Whom to ask",
        description="List the agents that you can ask with delegate_task, and what they are for.",
        takes=ListAgents,
        reads_only=True,
    ),
    McpToolSpec(
        name="delegation_status",
        title="Delegation status",
        description="See how far a delegation is, or get its result; without an id, list your newest ones.",
        takes=DelegationStatus,
        reads_only=True,
    ),
    McpToolSpec(
        name="delegation_cancel",
        title="Stop it",
        description="Cancel a delegation and everything that was started for it.",
        takes=DelegationCancel,
    ),
)
