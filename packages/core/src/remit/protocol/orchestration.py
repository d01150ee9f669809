"""What orchestration is told: the steps of a workflow as data, and how sure an orchestrator has to be."""

from typing import Annotated

from msgspec import Meta, Struct

from remit.protocol.envelope import ContextFilter, Json, Text
from remit.protocol.remit import Count, Name

# Names stand in references and conditions, so they are words.
StepName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}\Z")]
# With a question mark: after that step, however it ended.
StepAfter = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}\??\Z")]
Share = Annotated[float, Meta(gt=0, le=1)]

# More is an endless loop; a callee that failed this often will not succeed by being asked again.
MAX_ATTEMPTS = 10
# A condition is one line.
MAX_CONDITION = 500


class Step(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One delegation of a workflow: whom to ask for what, when, and what to do if it fails.

    `{step}` and `{step.path.to.it}` in the objective and in the input stand for results of other steps, `{input}` for
    the workflow's own input and `{request}` for the user's text. A text that is only a reference becomes the value;
    `{{word}}` stands for `{word}` itself.
    """

    name: StepName  # Its name, unique in the workflow.
    agent: Name | None = None  # The agent to ask; None: whoever offers the capability.
    capability: Name | None = None  # The capability to ask for.
    objective: Text = ""  # What to ask for.
    input: Json = None  # The input, with references.
    after: tuple[StepAfter, ...] = ()
    """Steps that must have ended before, besides those that it refers to; `a?`: however `a` ended."""
    when: Annotated[str, Meta(max_length=MAX_CONDITION)] | None = None
    """A condition, `npv.value > 0 and not audit.failed`: if it is false, the step is skipped."""
    fallback: tuple[Name, ...] = ()
    """Agents that are asked in turn if it fails."""
    attempts: Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)] = 1
    """How often one agent is asked, if its fault says that a retry may help."""
    time_ms: Count | None = None  # The time for it.
    tokens: Count | None = None  # The tokens for it.
    cost: Count | None = None  # The money for it, in millionths of the team's currency.
    share: Share | None = None
    """Its share of the workflow's tokens."""
    optional: bool = False
    """Whether the workflow can succeed without it; steps that refer to it then begin without its result."""
    default: Json = None
    """The value of references to this step if it was skipped, or failed and steps continue without it."""
    title: str = ""
    """The progress text for the user while it runs."""
    context: ContextFilter | None = None  # Which part of the conversation it sees.
    files: bool = False
    """Whether its callee gets the files of the workflow's request."""


class Workflow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Delegations that belong together, called like an agent; the steps are in the order of their results."""

    name: Name  # Its name; it is called like an agent.
    description: str = ""  # What it is for.
    steps: tuple[Step, ...]  # Its steps.
    result: StepName | None = None
    """The step whose result is the workflow's; without one, all results are combined."""
    compare: tuple[StepName, ...] = ()
    """Steps that check each other: where their results contradict each other, the answer says so."""
    examples: tuple[str, ...] = ()  # Requests that it is for.


# ── thresholds ────────────────────────────────────────────────────────────────────────────────────────────────────────

Likelihood = Annotated[float, Meta(ge=0, le=1)]

# A contradiction that a well-calibrated entailment model is this sure of is wrong once in ten times at most.
ENTAILMENT_THRESHOLD = 0.9


class Thresholds(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How sure a reader has to be for each action of an orchestrator.

    The figures in the comments are for 100 clear, 100 vague and 100 foreign requests in five domains whose words are
    mostly not those of the examples, read by embeddings. What changes something is never done without a yes.
    """

    # A capability that only reads is used at once: 17 of 100 clear requests, with one of the vague ones.
    do: Likelihood = 0.7
    # The best guess is said back for a yes, with two others beside it: 64 of 100, in 52 of them the guess was right.
    say_back: Likelihood = 0.4
    # A text that is this likely far from everything is told so, with what comes nearest; the others are offered
    # options. 0.7 cost four of 100 clear requests.
    far: Likelihood = 0.8


THRESHOLDS = Thresholds()

# How long a decision is reused: for users who repeat a failed request, or talk in circles.
DECISION_MS = 10 * 60_000
